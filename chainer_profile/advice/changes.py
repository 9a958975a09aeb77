"""The cures in one table, for ``advise`` and ``run --try``; and those that a profile proposes."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache, reduce
from importlib.util import find_spec
from typing import Any, NamedTuple

from chainer_profile.analyse.changes import Untried, proposed
from chainer_profile.analyse.findings import Change, Finding
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import BACKWARD
from chainer_profile.engines.catalogue import ENGINES

#: What decides: CPU time where both run on one thread, as other programs disturb it least.
CPU, WALL = "CPU time", "wall"
#: The network as it is.
AS_IT_IS = Change()
#: Where a variable is set that changes a program.
BEFORE = "before the command"

#: Gives a method that takes the place of Chainer's own, from that.
Wrap = Callable[[Any], Any]
#: Makes of it one that lets Chainer's own run where the new method raises.
Guard = Callable[[Wrap], Wrap]


@dataclass(frozen=True)
class Cure:
    """A change of a fixed kind, and what it takes."""

    change: Change
    needs: str = ""  #: What the machine must have, a key of :func:`lacking`; empty for nothing.
    device: str = "cpu"  #: Where it changes anything: ``cpu`` or ``gpu``; empty for both.
    within: bool = True  #: Whether it can be switched on and off in a running program.
    lasts: bool = False  #: Whether some of it stays when it is switched off: it is tried last.


#: BLAS threads come before these; see :func:`thread_changes`. A larger batch and another type
#: change the training itself: only ``advise`` proposes them.
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
    """An entry of ``chainer.config``: what a change of it is called, and what it is set to."""

    label: str
    value: bool
    variable: str = ""  #: What sets it for the whole program; empty if only code does.


_CONFIG = {
    "type_check": _Entry("type checks off", False, "CHAINER_TYPE_CHECK=0"),
    "autotune": _Entry("cuDNN's autotuning", True),
    "cudnn_fast_batch_normalization": _Entry("cuDNN's fast batch normalisation", True),
}
#: The variable that sets the threads of a BLAS, by what threadpoolctl calls that.
_THREAD_VARIABLES = {"mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}


def thread_changes(threads: int, cores: int) -> list[Change]:
    """Other numbers of BLAS threads than those of a run: one, half of the cores, and all."""
    counts = dict.fromkeys((1, max(1, cores // 2), cores))
    return [Change(threads=count) for count in counts if count != threads]


def lacking() -> dict[str, str]:
    """Why this machine cannot try what cures need, by name, with what would install it."""
    found = {
        name: "" if all(map(find_spec, entry.needs)) else f"not installed: {entry.install}"
        for name, entry in ENGINES.items()
    }
    found["torch"] = "" if find_spec("torch") else "not installed: python -m pip install torch"
    is_glibc = platform.libc_ver()[0] == "glibc"
    return {**found, "glibc": "" if is_glibc else "needs glibc, which this system lacks"}


# -- within a running program


@cache
def _blas() -> Any:
    """The BLAS libraries of the process; finding them takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    """Threads that BLAS has now; 1 without any BLAS."""
    return max((library["num_threads"] for library in _blas().info()), default=1)


def is_made(change: Change) -> bool:
    """Whether the process has a change of kernels, memory or configuration already."""
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
    """Within this the process has a change; what it puts in the place of methods is guarded."""
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


def label(change: Change) -> str:
    """What a change within a program is called: the code or the variable that makes it."""
    if change.config:
        return _CONFIG[change.config[0]].label
    if not change.kernels:
        return change.name
    options = [f'"{change.kernels}"'] if change.kernels != "numpy" else []
    if change.kernels == "torch" and change.threads:
        options.append(f"threads={change.threads}")
    if not change.keep_memory:
        options.append("keep_memory=False")
    return f"accelerate({', '.join(options)})"


def labels(change: Change) -> str:
    """The same of several changes at once."""
    parts = []
    if change.threads:
        parts.append(label(Change(threads=change.threads)))
    if change.kernels or change.keep_memory:
        parts.append(label(Change(kernels=change.kernels, keep_memory=change.keep_memory)))
    parts += [label(Change(config=(name,))) for name in change.config]
    return " + ".join(parts)


def difference(change: Change, against: Change) -> Change:
    """What a change has beyond another one."""
    own = {
        one.name: getattr(change, one.name)
        for one in fields(Change)
        if getattr(change, one.name) != getattr(against, one.name)
    }
    if "config" in own:
        own["config"] = tuple(name for name in change.config if name not in against.config)
    return Change(**own)


def variables(change: Change) -> str:
    """What stands before the command of a program to make a change; empty for nothing."""
    words = []
    if change.threads:
        kinds = {library["internal_api"] for library in _blas().info()}
        names = sorted({_THREAD_VARIABLES.get(kind, "OPENBLAS_NUM_THREADS") for kind in kinds})
        words += [f"{name}={change.threads}" for name in names]
    words += [_CONFIG[name].variable for name in change.config if _CONFIG[name].variable]
    if change.keep_memory and not change.kernels:
        words.append(Change(keep_memory=True).keep.removesuffix(f" {BEFORE}"))
    return " ".join(words)


def code(change: Change) -> list[str]:
    """What stands in a program to make a change: statements, of which ``with`` is around a loop."""
    lines = [
        f"chainer.config.{name} = True" for name in change.config if not _CONFIG[name].variable
    ]
    if change.kernels:
        lines.append(f"with chainer_profile.{label(change)}:")
    return lines


# -- what is proposed for a network


@dataclass(frozen=True)
class Candidate:
    name: str
    reason: str  #: Why it could help, in one line.
    keep: str  #: What to write or to type to keep it.
    change: Change
    against: Change = (
        AS_IT_IS  #: What it is held against; that has the change already, if not this.
    )
    decides: str = CPU  #: Or :data:`WALL`.
    alone: bool = True  #: Whether it takes the place of others, as kernels and engines do.
    parts: tuple[str, ...] = ()  #: Names of those that this one is the sum of.


@dataclass(frozen=True)
class Possible:
    """What this machine and this network have."""

    #: By what cures need (:func:`lacks`): why it cannot be used; empty where it can.
    lacks: Mapping[str, str]
    threads: int  #: BLAS threads of the run.
    cores: int  #: Threads that BLAS takes by itself.
    asked: bool = False  #: Whether the user asked for the run's number of threads.


def propose(summary: Summary, possible: Possible) -> tuple[list[Candidate], list[Untried]]:
    """The changes worth a try by a profile of the network as it is, and the others."""
    found = [one for said in proposed(summary) for one in _changes(said, possible, summary)]
    found += _threads(possible)
    candidates = [one for one in found if isinstance(one, Candidate)]
    return candidates, [one for one in found if isinstance(one, Untried)]


def _changes(
    said: Finding | Untried, possible: Possible, summary: Summary
) -> Iterator[Candidate | Untried]:
    """The changes of a finding that this machine has what it takes for."""
    if isinstance(said, Untried):
        yield said
        return
    for change in said.changes:
        if lacks := possible.lacks.get(_needs(change), ""):
            yield Untried(change.name, lacks)
            continue
        anew = change.batchsize and BACKWARD in set(summary.layers["phase"])
        yield Candidate(
            change.name,
            said.text.partition(". ")[0].removesuffix("."),
            change.keep
            + (" (this changes the training: choose the learning rate again)" if anew else ""),
            change,
            decides=CPU if possible.threads == 1 else WALL,
            alone=not (change.batchsize or change.dtype),
        )


def _needs(change: Change) -> str:
    return next((cure.needs for cure in CURES if cure.change == change), "")


def summed(promising: list[Candidate]) -> list[Candidate]:
    """Sums of changes that help alone, best first: one that takes others' place, with the rest."""
    own = [one for one in promising if one.against == AS_IT_IS]
    best = [one for one in own if one.alone][:1]
    parts = [*best, *(one for one in own if not one.alone)]
    if not best or len(parts) < 2:
        return []
    return [
        Candidate(
            " + ".join(one.name for one in parts),
            "each of them helps alone",
            "; ".join(one.keep for one in parts),
            reduce(Change.with_, (one.change for one in parts)),
            decides=WALL if any(one.decides == WALL for one in parts) else CPU,
            parts=tuple(one.name for one in parts),
        )
    ]


def _threads(possible: Possible) -> Iterator[Candidate | Untried]:
    cores, has_one = possible.cores, possible.threads == 1
    if cores < 2:
        yield Untried("more BLAS threads", "BLAS already uses one")
        return
    one, every = Change(threads=1), Change(threads=cores)
    many = cores if has_one else possible.threads
    fewer = Candidate(
        one.name,
        f"small products lose more by waiting for {many} threads than they gain",
        one.keep,
        one,
        decides=WALL,
        alone=False,
    )
    reason = f"{fewer.reason}; the run used one"
    if not has_one:
        yield fewer
    elif possible.asked:
        reason = f"the run used one of {cores}"
        yield replace(
            fewer, name=every.name, reason=reason, keep="without --threads 1", change=every
        )
    else:
        yield replace(fewer, reason=reason, change=AS_IT_IS, against=every)
