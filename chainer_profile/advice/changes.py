"""The table of cures for ``advise`` and ``run --try``, and the changes that a profile proposes."""

from __future__ import annotations

import os
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
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import BACKWARD, export_command_of
from chainer_profile.engines.catalogue import ENGINES

#: The times that decide: CPU time where both run on one thread, as other programs disturb it least.
CPU, WALL = "CPU time", "wall"
#: The network as it is.
AS_IT_IS = Change()
#: The place of a variable that changes a program.
BEFORE = "before the command"

#: Makes the method that replaces one of Chainer's own, from that.
Wrap = Callable[[Any], Any]
#: Lets Chainer's own method run where the new one raises.
Guard = Callable[[Wrap], Wrap]


@dataclass(frozen=True)
class Cure:
    """A change of a fixed kind, and its needs."""

    change: Change
    needs: str = ""  #: What the machine must have, a key of :func:`lacking`; empty for nothing.
    device: str = "cpu"  #: The device that it changes: ``cpu`` or ``gpu``; empty for both.
    within: bool = True  #: Whether it can be switched on and off in a running program.
    lasts: bool = False  #: Whether a part of it stays when switched off; it is then tried last.


#: BLAS threads come before these. A larger batch and another type change the training itself: only
#: ``advise`` proposes them.
CURES = (
    Cure(Change(kernels="numpy")),
    Cure(Change(kernels="torch"), needs="torch"),
    Cure(Change(config=("type_check",)), device=""),
    Cure(Change(config=("autotune",)), device="gpu"),
    Cure(Change(config=("cudnn_fast_batch_normalization",)), device="gpu"),
    Cure(Change(keep_memory=True), needs="glibc", lasts=True),
    Cure(Change(engine="onnxruntime"), needs="onnxruntime", within=False),
)


class _Entry(NamedTuple):
    """An entry of ``chainer.config``: the name of its change, and its new value."""

    name: str
    value: bool
    variable: str = ""  #: Sets it for the whole program; empty if only code can.


_CONFIG = {
    "type_check": _Entry("type checks off", False, "CHAINER_TYPE_CHECK=0"),
    "autotune": _Entry("cuDNN's autotuning", True),
    "cudnn_fast_batch_normalization": _Entry("cuDNN's fast batch normalisation", True),
}
#: Names of kernels in a program, where keeping memory is a change of its own.
_KERNELS = {"numpy": "faster NumPy kernels", "torch": "PyTorch's kernels"}
#: The variable for the threads of a BLAS, by its name in threadpoolctl.
_THREAD_VARIABLES = {"mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}


def lacking() -> dict[str, str]:
    """By each need of cures, why this machine lacks it and how to install it; else empty."""
    missing = {
        name: "" if all(map(find_spec, entry.needs)) else f"not installed: {entry.install}"
        for name, entry in ENGINES.items()
    }
    missing["torch"] = "" if find_spec("torch") else "not installed: python -m pip install torch"
    is_glibc = platform.libc_ver()[0] == "glibc"
    return {**missing, "glibc": "" if is_glibc else "needs glibc, which this system lacks"}


# -- within a running program


@dataclass
class Cures:
    """The changes to try in a running program, in three stages, and those that cannot be tried."""

    threads: Sequence[Change] = ()  #: Other numbers of BLAS threads.
    others: Sequence[Change] = ()  #: Changes that can be switched off again.
    last: Sequence[Change] = ()  #: Changes of which something stays.
    untried: Sequence[Untried] = field(default_factory=list)


def cures_here(on_gpu: bool) -> Cures:
    """The changes to try in this process."""
    threads: list[Change] = []
    others: list[Change] = []
    last: list[Change] = []
    untried: list[Untried] = []
    if not on_gpu:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        counts = dict.fromkeys((1, max(1, (cores or 1) // 2), cores or 1))
        threads = [Change(threads=count) for count in counts if count != blas_threads()]
        if not threads:
            untried.append(Untried("BLAS threads", "there is one core"))
    lacks = lacking()
    for cure in CURES:
        if not cure.within or cure.device == ("cpu" if on_gpu else "gpu"):
            continue
        why = "the program has it already" if is_made(cure.change) else lacks.get(cure.needs, "")
        if why:
            untried.append(Untried(name_of(cure.change), why))
        else:
            (last if cure.lasts else others).append(cure.change)
    return Cures(threads, others, last, untried)


@cache
def _blas() -> Any:
    """The BLAS libraries of the process; finding them takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    """Threads that BLAS has now; 1 without any BLAS."""
    return max((library["num_threads"] for library in _blas().info()), default=1)


def is_made(change: Change) -> bool:
    """Whether the process already has a change of kernels, memory or configuration."""
    import chainer

    from chainer_profile.kernels.accelerate import kernels_now
    from chainer_profile.kernels.memory import is_kept

    if change.kernels:
        return kernels_now() == change.kernels
    if change.keep_memory:
        return is_kept()
    return all(getattr(chainer.config, name) is _CONFIG[name].value for name in change.config)


@contextmanager
def switched(change: Change, guard: Guard) -> Iterator[None]:
    """Within this the process has a change; methods that it replaces are guarded."""
    from chainer import using_config

    from chainer_profile.kernels.accelerate import kernels_named
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
            kernels = kernels_named(change.kernels)
            if change.threads and hasattr(kernels, "set_threads"):
                stack.callback(kernels.set_threads, kernels.threads())
                kernels.set_threads(change.threads)
            replaced = stack.enter_context(Replacements())
            for owner, name, wrap in replacements(kernels):
                replaced.wrap(owner, name, guard(wrap))
        yield


def name_of(change: Change) -> str:
    """The name of changes of a program together; :func:`code` gives what to write for them."""
    names = [Change(threads=change.threads).name] if change.threads else []
    names += [_KERNELS[change.kernels]] if change.kernels else []
    names += ["memory kept"] if change.keep_memory else []
    return " + ".join((*names, *(_CONFIG[name].name for name in change.config)))


def variables(change: Change) -> str:
    """The variables before a program's command that make a change; empty if it needs none."""
    words = []
    if change.threads:
        kinds = {library["internal_api"] for library in _blas().info()}
        names = sorted({_THREAD_VARIABLES.get(kind, "OPENBLAS_NUM_THREADS") for kind in kinds})
        words += [f"{name}={change.threads}" for name in names]
    words += [_CONFIG[name].variable for name in change.config if _CONFIG[name].variable]
    if change.keep_memory and not change.kernels:
        words.append(Change(keep_memory=True).keep().removesuffix(f" {BEFORE}"))
    return " ".join(words)


def code(change: Change) -> list[str]:
    """The statements in a program that make a change; a ``with`` stands around the loop."""
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


# -- what is proposed


@dataclass(frozen=True)
class Candidate:
    name: str
    reason: str  #: Why it could help, in one line.
    keep: str  #: What to write or to type to keep it.
    change: Change
    #: The change that it is compared with. If this is not :data:`AS_IT_IS`, the run has made that.
    against: Change = AS_IT_IS
    decides: str = CPU  #: Or :data:`WALL`.
    alone: bool = True  #: Whether it takes the place of others, as kernels and engines do.


def candidate_within(change: Change, against: Change) -> Candidate:
    """A change of a running program, named by its difference from the one it is compared with."""
    name, beside = name_of(change), ""
    if against != AS_IT_IS:
        more = {
            part.name: getattr(change, part.name)
            for part in fields(Change)
            if getattr(change, part.name) != getattr(against, part.name)
        }
        if "config" in more:
            more["config"] = tuple(entry for entry in change.config if entry not in against.config)
        name, beside = f"+ {name_of(Change(**more))}", f"beside {name_of(against)}"
    keep = "; ".join(filter(None, (variables(change), *code(change))))
    return Candidate(name, beside, keep, change, against, decides=WALL)


@dataclass(frozen=True)
class Possible:
    """The abilities of this machine."""

    #: Why needs of cures cannot be met, by need (:func:`lacking`); empty where they can.
    lacks: Mapping[str, str]
    threads: int  #: BLAS threads of the run.
    cores: int  #: Threads that BLAS takes by itself.
    asked: bool = False  #: Whether the user asked for the run's number of threads.
    export: str = ""  #: The command that exports the run's network.


def propose(summary: Summary, possible: Possible) -> tuple[list[Candidate], list[Untried]]:
    """The changes that are worth a try, by a profile of the network as it is, and the others."""
    every = [*_of_findings(summary, possible), *_of_threads(possible)]
    return (
        [change for change in every if isinstance(change, Candidate)],
        [change for change in every if isinstance(change, Untried)],
    )


def _of_findings(summary: Summary, possible: Possible) -> Iterator[Candidate | Untried]:
    """The changes of findings; those that this machine cannot make are untried."""
    trains = BACKWARD in set(summary.layers["phase"])
    needs = {cure.change: cure.needs for cure in CURES}
    for finding in proposed(summary):
        if isinstance(finding, Untried):
            yield finding
            continue
        for change in finding.changes:
            if lacks := possible.lacks.get(needs.get(change, ""), ""):
                yield Untried(change.name, lacks)
                continue
            keep = change.keep(possible.export)
            if change.batchsize and trains:
                keep += " (this changes the training: choose the learning rate again)"
            yield Candidate(
                change.name,
                finding.text.partition(". ")[0].removesuffix("."),
                keep,
                change,
                decides=CPU if possible.threads == 1 else WALL,
                alone=not (change.batchsize or change.dtype),
            )


def _of_threads(possible: Possible) -> Iterator[Candidate | Untried]:
    cores, has_one = possible.cores, possible.threads == 1
    if cores < 2:
        yield Untried("more BLAS threads", "BLAS already uses one")
        return
    single, every = Change(threads=1), Change(threads=cores)
    many = cores if has_one else possible.threads
    reason = f"small products lose more by waiting for {many} threads than they gain"
    fewer = Candidate(single.name, reason, single.keep(), single, decides=WALL, alone=False)
    if not has_one:
        yield fewer
    elif possible.asked:
        reason, keep = f"the run used one of {cores}", "without --threads 1"
        yield replace(fewer, name=every.name, reason=reason, keep=keep, change=every)
    else:
        yield replace(fewer, reason=f"{reason}; the run used one", change=AS_IT_IS, against=every)


def summed(promising: Sequence[Candidate]) -> list[Candidate]:
    """The sum of changes that help alone, best first: one that excludes others, and the rest."""
    own = [candidate for candidate in promising if candidate.against == AS_IT_IS]
    best = [candidate for candidate in own if candidate.alone][:1]
    parts = [*best, *(candidate for candidate in own if not candidate.alone)]
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
