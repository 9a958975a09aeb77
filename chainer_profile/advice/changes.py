"""Table of changes for ``advise`` and ``run --try``, and proposals based on a profile."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache, reduce
from importlib.util import find_spec
from typing import Any, NamedTuple

from chainer_profile.analyse.changes import Untried, proposed
from chainer_profile.analyse.findings import Change
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.parsing import usable_cores
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import BACKWARD, export_command_of
from chainer_profile.engines.catalogue import ENGINES

#: Kinds of time that a comparison can use. CPU time suits variants with one thread, because other
#: programs disturb it least.
CPU, WALL = "CPU time", "wall"
#: No change: the network or program as the user wrote it.
UNCHANGED = Change()
#: The position in which a user writes an environment variable.
BEFORE = "before the command"

#: Returns the replacement of a method of Chainer.
Wrap = Callable[[Any], Any]
#: Adds a fallback to a replacement: Chainer's method runs if the replacement raises.
Guard = Callable[[Wrap], Wrap]


@dataclass(frozen=True)
class KnownChange:
    """A change that needs no number from the profile, and what it requires."""

    change: Change
    requirement: str = ""  #: A key of :func:`missing_requirements`; empty for none.
    device: str = "cpu"  #: Device that the change concerns: ``cpu`` or ``gpu``; empty for both.
    switchable: bool = True  #: Whether a running program can switch it on and off.
    persists: bool = False  #: Whether switching it off leaves an effect. It is then tried last.


#: The number of BLAS threads is tried before these. A larger batch and another data type change
#: the training itself, so only ``advise`` proposes them.
KNOWN_CHANGES = (
    KnownChange(Change(kernels="numpy")),
    KnownChange(Change(kernels="torch"), requirement="torch"),
    KnownChange(Change(config=("type_check",)), device=""),
    KnownChange(Change(config=("autotune",)), device="gpu"),
    KnownChange(Change(config=("cudnn_fast_batch_normalization",)), device="gpu"),
    KnownChange(Change(keep_memory=True), requirement="glibc", persists=True),
    KnownChange(Change(engine="onnxruntime"), requirement="onnxruntime", switchable=False),
)


class _ConfigEntry(NamedTuple):
    """A setting of ``chainer.config``: the name of the change, and the new value."""

    name: str
    value: bool
    variable: str = ""  #: Environment variable that sets it; empty if only code can set it.


_CONFIG = {
    "type_check": _ConfigEntry("type checks off", False, "CHAINER_TYPE_CHECK=0"),
    "autotune": _ConfigEntry("cuDNN's autotuning", True),
    "cudnn_fast_batch_normalization": _ConfigEntry("cuDNN's fast batch normalisation", True),
}
#: Names of kernels in a running program, where keeping memory is a separate change.
_KERNELS = {"numpy": "faster NumPy kernels", "torch": "PyTorch's kernels"}
#: The environment variable with the number of threads, by threadpoolctl's name of the BLAS.
_THREAD_VARIABLES = {"mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}


def missing_requirements() -> dict[str, str]:
    """For each requirement, why this machine does not meet it; empty if it does."""
    missing = {
        name: "" if all(map(find_spec, entry.needs)) else f"not installed: {entry.install}"
        for name, entry in ENGINES.items()
    }
    missing["torch"] = "" if find_spec("torch") else "not installed: python -m pip install torch"
    is_glibc = platform.libc_ver()[0] == "glibc"
    return {**missing, "glibc": "" if is_glibc else "needs glibc, which this system lacks"}


# -- in a running program


@dataclass
class PlannedChanges:
    """The changes to try in a running program, in three stages."""

    threads: Sequence[Change] = ()  #: Other numbers of BLAS threads.
    others: Sequence[Change] = ()  #: Changes that leave no effect when they are switched off.
    last: Sequence[Change] = ()  #: Changes that leave an effect.
    untried: Sequence[Untried] = field(default_factory=list)


def plan_changes(on_gpu: bool) -> PlannedChanges:
    """Choose the changes to try in this process."""
    threads: list[Change] = []
    others: list[Change] = []
    last: list[Change] = []
    untried: list[Untried] = []
    if not on_gpu:
        cores = usable_cores() or 1
        counts = dict.fromkeys((1, max(1, cores // 2), cores))
        threads = [Change(threads=count) for count in counts if count != blas_threads()]
        if not threads:
            untried.append(Untried("BLAS threads", "there is one core"))
    missing = missing_requirements()
    for known in KNOWN_CHANGES:
        if not known.switchable or known.device == ("cpu" if on_gpu else "gpu"):
            continue
        why = missing.get(known.requirement, "")
        if is_active(known.change):
            why = "the program has it already"
        if why:
            untried.append(Untried(combined_name(known.change), why))
        else:
            (last if known.persists else others).append(known.change)
    return PlannedChanges(threads, others, last, untried)


@cache
def _blas() -> Any:
    """Return threadpoolctl's controller of the BLAS libraries; finding them takes 1 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    """Current number of BLAS threads; 1 if the process has no BLAS."""
    return max((library["num_threads"] for library in _blas().info()), default=1)


def is_active(change: Change) -> bool:
    """Whether a change of kernels, memory or configuration is already in effect."""
    import chainer

    from chainer_profile.kernels.accelerate import kernels_now
    from chainer_profile.kernels.memory import is_kept

    if change.kernels:
        return kernels_now() == change.kernels
    if change.keep_memory:
        return is_kept()
    return all(getattr(chainer.config, name) is _CONFIG[name].value for name in change.config)


@contextmanager
def applied(change: Change, guard: Guard) -> Iterator[None]:
    """Apply a change to this process, with a fallback for each method that it replaces."""
    from chainer import using_config

    from chainer_profile.kernels.accelerate import import_kernels
    from chainer_profile.kernels.functions import replacements
    from chainer_profile.kernels.memory import keeping_memory

    with ExitStack() as stack:
        if change.threads:
            stack.enter_context(_blas().limit(limits=change.threads))
        if change.keep_memory:
            stack.enter_context(keeping_memory())
        for name in change.config:
            stack.enter_context(using_config(name, _CONFIG[name].value))
        if change.kernels:
            kernels = import_kernels(change.kernels)
            if change.threads and hasattr(kernels, "set_threads"):
                stack.callback(kernels.set_threads, kernels.threads())
                kernels.set_threads(change.threads)
            replaced = stack.enter_context(Replacements())
            for owner, name, wrap in replacements(kernels):
                replaced.wrap(owner, name, guard(wrap))
        yield


def combined_name(change: Change) -> str:
    """Join the names of all parts of a change."""
    names = [Change(threads=change.threads).name] if change.threads else []
    names += [_KERNELS[change.kernels]] if change.kernels else []
    names += ["memory kept"] if change.keep_memory else []
    return " + ".join((*names, *(_CONFIG[name].name for name in change.config)))


def environment_variables(change: Change) -> str:
    """Environment variables that apply a change, as written before a command; may be empty."""
    words = []
    if change.threads:
        kinds = {library["internal_api"] for library in _blas().info()}
        names = sorted({_THREAD_VARIABLES.get(kind, "OPENBLAS_NUM_THREADS") for kind in kinds})
        words += [f"{name}={change.threads}" for name in names]
    words += [_CONFIG[name].variable for name in change.config if _CONFIG[name].variable]
    if change.keep_memory and not change.kernels:
        words.append(Change(keep_memory=True).keep().removesuffix(f" {BEFORE}"))
    return " ".join(words)


def statements(change: Change) -> list[str]:
    """Python statements that apply a change; a ``with`` statement encloses the loop."""
    lines = [
        f"chainer.config.{name} = True" for name in change.config if not _CONFIG[name].variable
    ]
    if change.kernels:
        options = [f'"{change.kernels}"'] if change.kernels != "numpy" else []
        if change.kernels == "torch" and change.threads:
            options.append(f"threads={change.threads}")
        if not change.keep_memory:
            options.append("keep_memory=False")
        lines.append(f"with chainer_profile.accelerate({', '.join(options)}):")
    return lines


# -- proposals


@dataclass(frozen=True)
class Candidate:
    """A change to try, and the change that it is compared with."""

    name: str
    reason: str  #: Why it could help, in one line.
    keep: str  #: Code or command that keeps the change.
    change: Change
    #: The change that it is compared with. If ``advise`` compares with another one than
    #: :data:`UNCHANGED`, the profiled run already has ``change``.
    against: Change = UNCHANGED
    decides: str = CPU  #: The time to compare: :data:`CPU` or :data:`WALL`.
    alone: bool = True  #: Whether it excludes other such changes, as kernels and engines do.


def candidate_for_program(change: Change, against: Change) -> Candidate:
    """Make a candidate for a running program, named by its difference from ``against``."""
    name, reason = combined_name(change), ""
    if against != UNCHANGED:
        added = {
            part.name: getattr(change, part.name)
            for part in fields(Change)
            if getattr(change, part.name) != getattr(against, part.name)
        }
        if "config" in added:
            added["config"] = tuple(name for name in change.config if name not in against.config)
        name = f"+ {combined_name(Change(**added))}"
        reason = f"in addition to {combined_name(against)}"
    keep = "; ".join(filter(None, (environment_variables(change), *statements(change))))
    return Candidate(name, reason, keep, change, against, decides=WALL)


@dataclass(frozen=True)
class Capabilities:
    """Abilities of this machine, and the BLAS threads of the profiled run."""

    missing: Mapping[str, str]  #: From :func:`missing_requirements`.
    threads: int  #: BLAS threads of the run.
    cores: int  #: BLAS threads that a process has by default.
    threads_requested: bool = False  #: Whether the user set the run's number of threads.
    export: str = ""  #: The command that exports the run's network.


def propose(summary: Summary, capabilities: Capabilities) -> tuple[list[Candidate], list[Untried]]:
    """Choose changes to try from a profile of the unchanged network, and explain the others."""
    every = [*_from_findings(summary, capabilities), *_thread_candidates(capabilities)]
    return (
        [change for change in every if isinstance(change, Candidate)],
        [change for change in every if isinstance(change, Untried)],
    )


def _from_findings(summary: Summary, capabilities: Capabilities) -> Iterator[Candidate | Untried]:
    """Yield the changes that findings propose; untried if this machine lacks a requirement."""
    trains = BACKWARD in set(summary.layers["phase"])
    requirements = {known.change: known.requirement for known in KNOWN_CHANGES}
    for finding in proposed(summary):
        if isinstance(finding, Untried):
            yield finding
            continue
        for change in finding.changes:
            if why := capabilities.missing.get(requirements.get(change, ""), ""):
                yield Untried(change.name, why)
                continue
            keep = change.keep(capabilities.export)
            if change.batchsize and trains:
                keep += " (this changes the training: choose the learning rate again)"
            yield Candidate(
                change.name,
                finding.text.partition(". ")[0].removesuffix("."),
                keep,
                change,
                decides=CPU if capabilities.threads == 1 else WALL,
                alone=not (change.batchsize or change.dtype),
            )


def _thread_candidates(capabilities: Capabilities) -> Iterator[Candidate | Untried]:
    cores, has_one = capabilities.cores, capabilities.threads == 1
    if cores < 2:
        yield Untried("more BLAS threads", "BLAS already uses one")
        return
    single, every = Change(threads=1), Change(threads=cores)
    many = cores if has_one else capabilities.threads
    reason = f"small products lose more by waiting for {many} threads than they gain"
    fewer = Candidate(single.name, reason, single.keep(), single, decides=WALL, alone=False)
    if not has_one:
        yield fewer
    elif capabilities.threads_requested:
        reason, keep = f"the run used one of {cores}", "without --threads 1"
        yield replace(fewer, name=every.name, reason=reason, keep=keep, change=every)
    else:
        yield replace(fewer, reason=f"{reason}; the run used one", change=UNCHANGED, against=every)


def combine(promising: Sequence[Candidate]) -> list[Candidate]:
    """Make one candidate of the best exclusive change and all changes that exclude no other.

    The candidates must be ranked. Returns an empty list if there is nothing to combine.
    """
    on_unchanged = [candidate for candidate in promising if candidate.against == UNCHANGED]
    best = [candidate for candidate in on_unchanged if candidate.alone][:1]
    parts = [*best, *(candidate for candidate in on_unchanged if not candidate.alone)]
    if not best or len(parts) < 2:
        return []
    change = reduce(Change.with_, (part.change for part in parts))
    keeps = [part.keep for part in parts]
    if change.engine and change.batchsize:  # one file, for that batch
        others = [part.keep for part in parts[1:] if not part.change.batchsize]
        keeps = [export_command_of(best[0].keep, change.batchsize), *others]
    return [
        Candidate(
            " + ".join(part.name for part in parts),
            "each of them helps alone",
            "; ".join(keeps),
            change,
            decides=WALL if any(part.decides == WALL for part in parts) else CPU,
        )
    ]
