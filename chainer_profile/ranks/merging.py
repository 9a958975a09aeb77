"""Recordings of a training's ranks -> :class:`Ranks`: iterations matched, times set together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import plural
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.comparison.significance import Floats, Ints
from chainer_profile.ranks.stragglers import Judged, judge
from chainer_profile.record.budget import RUNNING
from chainer_profile.record.journal import KILLED
from chainer_profile.record.recording import (
    COMPLETE,
    INTERVAL,
    TIME_LIMIT,
    Layer,
    Rank,
    Recording,
    Settings,
)

#: What of an iteration is in no phase.
OUTSIDE = "outside of phases"
#: A rank with fewer than this part of the iterations that most have is left out.
_FEW = 0.5
#: Ranks that are named in a line.
MOST_NAMED = 8
_BROADCAST = "Bcast"
#: How programs and recordings end in good order.
_IN_ORDER = frozenset({COMPLETE, "exit code 0", "interrupted", INTERVAL, TIME_LIMIT})
#: Differences of less than so many empty windows of the recorder are none.
_WINDOWS = 2


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of one training, in the iterations that all of them recorded.

    The first axis of all arrays is the ranks, the second the iterations; times are integer
    nanoseconds. ``iteration_ns = phase_ns.sum(axis=2)``, and on every rank ``waiting_ns +
    moving_ns`` is what passed from the arrival at a collective to its leaving.
    """

    ranks: tuple[Rank, ...]  #: Those that are there, in the order of their numbers.
    settings: Settings  #: What the lowest of them ran.
    iterations: Ints  #: Their numbers, (iterations,).
    layers: tuple[Layer, ...]  #: The rows of an iteration, which are the same on all ranks.
    self_ns: Ints  #: Self times of the layers, (ranks, iterations, layers).
    phases: tuple[str, ...]  #: In their order; the last is :data:`OUTSIDE`.
    phase_ns: Ints  #: With what lies between rows, (ranks, iterations, phases).
    #: Indices of the rows whose arrivals are known and can be compared: not on several hosts,
    #: which have clocks of their own.
    collectives: tuple[int, ...]
    arrived_ns: Ints  #: On the clock of their host, (ranks, iterations, collectives).
    waiting_ns: Ints  #: For the last to come, likewise.
    moving_ns: Ints  #: The rest of the time there, likewise.
    window_s: float  #: What the clock can tell apart of a layer.
    notes: tuple[str, ...]  #: What is missing or was left out, a line each.

    @property
    def size(self) -> int:
        """Number of ranks of the training, those that are missing included."""
        return self.ranks[0].size

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))

    @property
    def iteration_ns(self) -> Ints:
        """Time of an iteration, (ranks, iterations)."""
        whole: Ints = self.phase_ns.sum(axis=2)
        return whole

    @property
    def communication_ns(self) -> Ints:
        """Time in collectives, (ranks, iterations); of the rows themselves without arrivals."""
        if self.collectives:
            stays: Ints = (self.waiting_ns + self.moving_ns).sum(axis=2)
            return stays
        rows = [row.index for row in self.layers if row.phase == COMMUNICATION]
        times: Ints = self.self_ns[:, :, rows].sum(axis=2)
        return times

    @property
    def between_ns(self) -> Ints:
        """What the phase of communication takes beside its collectives, (ranks, iterations)."""
        if COMMUNICATION not in self.phases:
            return np.zeros_like(self.iteration_ns)
        phase = self.phase_ns[:, :, self.phases.index(COMMUNICATION)]
        rest: Ints = np.maximum(phase - self.communication_ns, 0)
        return rest

    @property
    def computing_ns(self) -> Ints:
        """What an iteration takes without its phase of communication, (ranks, iterations)."""
        rest: Ints = self.iteration_ns - self.communication_ns - self.between_ns
        return rest

    @cached_property
    def computing(self) -> tuple[int, ...]:
        """Indices of the layers that are no communication."""
        return tuple(row.index for row in self.layers if row.phase != COMMUNICATION)

    @cached_property
    def judged(self) -> Judged:
        """Stragglers and slow ranks, by the places of :attr:`computing`."""
        return judge(
            self.self_ns[:, :, self.computing],
            [self.layers[index] for index in self.computing],
            float(np.median(self.iteration_ns)) * NS,
            self.window_s,
        )

    @property
    def efficiency(self) -> float:
        """Part of an iteration that is computing: median of the ranks' means; NaN of none."""
        # What N ranks are worth, estimated, is N times this: each does on its own batch what one
        # rank alone would do without communication.
        whole = self.iteration_ns
        if not whole.size or not whole.all():
            return float("nan")
        return float(np.median((self.computing_ns / whole).mean(axis=0)))

    @property
    def last(self) -> Floats:
        """Part of the iterations in which each rank was the one waited for, (ranks,)."""
        # That is the rank that itself waited least in all collectives of the iteration.
        if not self.collectives or not len(self.iterations):
            return np.zeros(len(self.ranks))
        least = self.waiting_ns.sum(axis=2).argmin(axis=0)
        return np.bincount(least, minlength=len(self.ranks)) / len(self.iterations)

    @property
    def moving_of_last_ns(self) -> Ints:
        """What a collective took once all had come: of the last to come, (iterations, ...)."""
        last = self.arrived_ns.argmax(axis=0)
        found: Ints = np.take_along_axis(self.moving_ns, last[None], axis=0)[0]
        return found


def merge(
    recordings: Mapping[str, Recording],
    problems: Sequence[str] = (),
    outcomes: Mapping[str, str] | None = None,
) -> Ranks:
    """Put the recordings of ranks together, if they are of one training."""
    notes, found = [*problems], []
    for name, one in recordings.items():
        if one.rank is None or one.iteration is None:
            notes.append(f"{name}: left out, because it is not a recording of a rank")
        else:
            found.append(_Found(name, one.rank, one, one.iteration.tolist()))
    found.sort(key=lambda one: one.rank.number)
    if not found:
        raise ProfileError("; ".join(notes) or "there is no recording of a rank")
    _check_together(found)
    notes += _missing(found, notes)
    if died := who_died({one.name: one.recording for one in found}, outcomes or {}):
        notes.append(died)
    found = _with_enough(found, notes)
    if note := _not_compared(found):
        notes.append(note)
    common = sorted(set.intersection(*(set(one.iterations) for one in found)))
    if not common:
        raise ProfileError(
            "the ranks have no iteration in common: record the same iterations on all"
        )
    most = max(one.recording.n_trials for one in found)
    if len(common) < most:
        were = "was" if len(common) == 1 else "were"
        of = plural(most, "iteration")
        notes.append(f"{len(common):,d} of {of} {were} recorded on all ranks shown")
    return _together(found, common, tuple(notes))


@dataclass(frozen=True, eq=False)
class _Found:
    name: str
    rank: Rank
    recording: Recording
    iterations: list[int]  #: Their numbers, of every trial.


def _check_together(found: Sequence[_Found]) -> None:
    first = found[0]
    for before, one in pairwise(found):
        if one.rank.size != first.rank.size:
            raise ProfileError(
                "these are not the ranks of one training: "
                f"{first.name} is one of {first.rank.size}, {one.name} one of {one.rank.size}"
            )
        if one.rank.number == before.rank.number:
            raise ProfileError(
                f"{before.name} and {one.name} are both rank {one.rank.number}: remove one"
            )
    rows = _rows(first.recording)
    for one in found:
        has = _rows(one.recording)
        if has == rows:
            continue
        said = f"no iteration with just the {plural(len(rows), 'row')}"
        if missing := next((row for row in rows if row not in has), None):
            path, function, phase = missing
            said = f"no {function} at {path} in {phase}"
        raise ProfileError(
            f"these are not the ranks of one training: {one.name} has {said}, which "
            f"{first.name} has"
        )


def _rows(recording: Recording) -> list[tuple[str, str, str]]:
    return [(row.path, row.function, row.phase) for row in recording.layers]


def _missing(found: Sequence[_Found], notes: Sequence[str]) -> Iterator[str]:
    """The ranks without a recording of which nothing was said."""
    size = found[0].rank.size
    known = {one.rank.number for one in found}
    gone = [
        str(number)
        for number in range(size)
        if number not in known and not any(note.startswith(f"rank-{number}:") for note in notes)
    ]
    if gone:
        more = ", ..." if len(gone) > MOST_NAMED else ""
        noun = "rank" if len(gone) == 1 else "ranks"
        named = ", ".join(gone[:MOST_NAMED])
        yield f"there is no recording of {noun} {named}{more} ({len(gone):,d} of {size:,d})"


def _with_enough(found: Sequence[_Found], notes: list[str]) -> list[_Found]:
    """The ranks with enough iterations to be set beside the others; notes say the rest."""
    most = max(one.recording.n_trials for one in found)
    for one in found:
        count, ended = one.recording.n_trials, one.recording.ended
        left_out = "left out: " if count < _FEW * most else ""
        why = "" if ended == COMPLETE else f", its run ended early ({ended})"
        if left_out or why:
            notes.append(f"{one.name}: {left_out}{count:,d} of {plural(most, 'iteration')}{why}")
    return [one for one in found if one.recording.n_trials >= _FEW * most]


def _hosts(found: Sequence[_Found]) -> set[str]:
    return {one.rank.host for one in found}


def _not_compared(found: Sequence[_Found]) -> str:
    """Why waiting in collectives is not told; empty where it is, or where there are none."""
    collectives = any(row.phase == COMMUNICATION for row in found[0].recording.layers)
    if not collectives or len(_hosts(found)) == 1:
        return ""
    return (
        f"waiting in collectives is not told: the ranks ran on {len(_hosts(found))} hosts, and "
        "arrivals on the clocks of several hosts cannot be compared"
    )


def _together(found: Sequence[_Found], common: Sequence[int], notes: tuple[str, ...]) -> Ranks:
    runs = []
    for one in found:
        place = {number: at for at, number in reversed([*enumerate(one.iterations)])}
        runs.append((one.recording, [place[number] for number in common]))
    first = found[0].recording
    rows = [row.index for row in first.layers if row.phase == COMMUNICATION]
    known = all(run.arrived_ns is not None and run.left_ns is not None for run, _ in runs)
    collectives = tuple(rows) if known and len(_hosts(found)) == 1 else ()
    stays = np.zeros((2, len(runs), len(common), len(collectives)), np.int64)
    if collectives:
        for row, (run, at) in enumerate(runs):
            for side, times in zip(stays, (run.arrived_ns, run.left_ns), strict=True):
                if times is not None:
                    side[row] = times[at]
    arrived, left = stays
    # In a collective nobody goes on before all have come, so what passes on a rank from its own
    # arrival to the last rank's is waiting, and the rest of its stay is moving. A broadcast waits
    # for its root alone, which is rank 0 in ChainerMN.
    awaited = arrived.max(axis=0)
    for column, index in enumerate(collectives):
        if first.layers[index].function == _BROADCAST and found[0].rank.number == 0:
            awaited[:, column] = arrived[0, :, column]
    waiting = np.clip(awaited - arrived, 0, left - arrived)
    phases = tuple(dict.fromkeys([row.phase for row in first.layers] + [*first.phases]))
    return Ranks(
        ranks=tuple(one.rank for one in found),
        settings=first.settings,
        iterations=np.array(common, np.int64),
        layers=first.layers,
        self_ns=np.stack([run.self_ns[at] for run, at in runs]),
        phases=(*phases, OUTSIDE),
        phase_ns=np.stack([_phase_ns(run, phases)[at] for run, at in runs]),
        collectives=collectives,
        arrived_ns=arrived,
        waiting_ns=waiting,
        moving_ns=left - arrived - waiting,
        window_s=_WINDOWS * NS * max(run.conditions.window_ns or 0.0 for run, _ in runs),
        notes=notes,
    )


def _phase_ns(recording: Recording, phases: Sequence[str]) -> Ints:
    """Time in every phase and outside of all, (trials, phases + 1)."""
    own = np.zeros((recording.n_trials, len(phases) + 1), np.int64)
    for at, phase in enumerate(phases):
        rows = [row.index for row in recording.layers if row.phase == phase]
        own[:, at] = recording.self_ns[:, rows].sum(axis=1)
        if phase in recording.phases and recording.framework_ns is not None:
            own[:, at] += recording.framework_ns[:, recording.phases.index(phase)]
    if recording.trial_ns is not None:
        own[:, -1] = recording.trial_ns - own.sum(axis=1)
    return own


def who_died(recordings: Mapping[str, Recording], outcomes: Mapping[str, str]) -> str:
    """Which rank died, as a sentence; empty where none did."""
    # A rank that fails leaves its error; those that the launcher kills then leave none. Of ranks
    # that all were killed, the one whose last iteration is the earliest stopped first.
    ends = {**{name: one.ended for name, one in recordings.items()}, **outcomes}
    killed = [name for name, end in ends.items() if end in (KILLED, RUNNING)]
    failed = {
        name: end for name, end in ends.items() if name not in killed and end not in _IN_ORDER
    }
    # Where an exception ended the program, its recording alone may be complete all the same.
    whole = [name for name in ends if name not in killed and outcomes.get(name) in _IN_ORDER]
    if failed:
        said = "; ".join(f"{name} died: {end}" for name, end in failed.items())
        return f"{said}; {_were(killed)} killed from outside" if killed else said
    if killed and len(killed) + len(whole) == len(ends) and whole:
        return f"{_were(killed)} killed; {', '.join(whole)} finished"
    if len(killed) < max(len(ends), 1):
        return ""
    last = {
        name: int(one.iteration.max())
        for name, one in recordings.items()
        if one.iteration is not None and len(one.iteration)
    }
    earliest = min(last.values(), default=0)
    first = [name for name, iteration in last.items() if iteration == earliest]
    if len(last) < len(ends) or len(first) == len(last):
        return "all ranks were killed, and it is unknown which one died first"
    return (
        f"all ranks were killed; {', '.join(first)} stopped first, after iteration "
        f"{earliest:,d}, the others after {max(last.values()):,d}"
    )


def _were(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'was' if len(names) == 1 else 'were'}"
