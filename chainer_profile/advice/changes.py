"""Findings of a summary -> the changes to try on this machine, and why others are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from chainer_profile.analyse.changes import Untried, proposed
from chainer_profile.analyse.findings import Change, Finding
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import plural
from chainer_profile.basics.words import BACKWARD

#: What decides: CPU time where both run on one thread, as other programs disturb it least.
CPU, WALL = "CPU time", "wall"
#: The network as it is.
AS_IT_IS = Change()


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

    #: By name of an engine, ``torch`` or ``glibc``: why it cannot be used, with what would install
    #: it; empty where it can.
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
        needed = change.kernels or change.engine or ("glibc" if change.keep_memory else "")
        if lacks := possible.lacks.get(needed, ""):
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
    many = cores if has_one else possible.threads
    one = Candidate(
        "one BLAS thread",
        f"small products lose more by waiting for {many} threads than they gain",
        "OPENBLAS_NUM_THREADS=1 (or MKL_NUM_THREADS=1) before the command",
        Change(threads=1),
        decides=WALL,
        alone=False,
    )
    every, reason = Change(threads=cores), f"{one.reason}; the run used one"
    if not has_one:
        yield one
    elif possible.asked:
        name, reason = plural(cores, "BLAS thread"), f"the run used one of {cores}"
        yield replace(one, name=name, reason=reason, keep="without --threads 1", change=every)
    else:
        yield replace(one, reason=reason, change=AS_IT_IS, against=every)
