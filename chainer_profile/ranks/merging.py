"""Recordings of a training's ranks -> :class:`Ranks`, with the iterations that all have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from chainer_profile.analyse.grouping import framework_by_phase
from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import format_count, join_words, plural
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.comparison.compare import MIN_WINDOWS
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

#: Name of the time of an iteration outside of phases.
OUTSIDE = "outside of phases"
#: A rank is left out if it has fewer iterations than this fraction of the longest recording.
_MIN_PART = 0.5
#: A line names at most this number of ranks.
MAX_NAMED = 8
_BROADCAST = "Bcast"
#: Outcomes of programs and recordings that are not failures.
_IN_ORDER = frozenset({COMPLETE, "exit code 0", "interrupted", INTERVAL, TIME_LIMIT})


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of a training, in the iterations that all of them recorded.

    The first axis of all arrays is the ranks, the second the iterations. Times are integer
    nanoseconds. ``iteration_ns`` is the sum of ``phase_ns`` over the phases. On every rank,
    ``waiting_ns + moving_ns`` is the time from the arrival at a collective to leaving it.
    """

    ranks: tuple[Rank, ...]  #: Recorded ranks, in the order of their numbers.
    settings: Settings  #: The settings of the lowest rank.
    iterations: Ints  #: Numbers of the iterations, (iterations,).
    layers: tuple[Layer, ...]  #: The rows of an iteration, equal on all ranks.
    self_ns: Ints  #: Self times of the layers, (ranks, iterations, layers).
    phases: tuple[str, ...]  #: Names of the phases in order; the last is :data:`OUTSIDE`.
    phase_ns: Ints  #: Times of phases with the time between rows, (ranks, iterations, phases).
    #: Indices of the rows with recorded arrivals. Empty on several hosts, because their clocks
    #: differ.
    collectives: tuple[int, ...]
    arrived_ns: Ints  #: Arrivals on the clock of the host, (ranks, iterations, collectives).
    waiting_ns: Ints  #: Time until the last rank arrives, (ranks, iterations, collectives).
    moving_ns: Ints  #: The rest of the time in the collective, (ranks, iterations, collectives).
    window_s: float  #: Shortest difference that the clock resolves.
    notes: tuple[str, ...]  #: Lines about ranks that are missing or left out.

    @property
    def size(self) -> int:
        """Number of ranks of the training, with missing ones."""
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
        """Time in collectives, (ranks, iterations).

        Without recorded arrivals, it is the self time of the rows.
        """
        if self.collectives:
            in_collectives: Ints = (self.waiting_ns + self.moving_ns).sum(axis=2)
            return in_collectives
        rows = [row.index for row in self.layers if row.phase == COMMUNICATION]
        times: Ints = self.self_ns[:, :, rows].sum(axis=2)
        return times

    @property
    def between_ns(self) -> Ints:
        """Time of the phase ``communication`` outside of collectives, (ranks, iterations)."""
        if COMMUNICATION not in self.phases:
            return np.zeros_like(self.iteration_ns)
        phase = self.phase_ns[:, :, self.phases.index(COMMUNICATION)]
        rest: Ints = np.maximum(phase - self.communication_ns, 0)
        return rest

    @property
    def computing_ns(self) -> Ints:
        """Time of an iteration without the communication phase, (ranks, iterations)."""
        rest: Ints = self.iteration_ns - self.communication_ns - self.between_ns
        return rest

    @cached_property
    def computing(self) -> tuple[int, ...]:
        """Indices of the layers that are not communication."""
        return tuple(row.index for row in self.layers if row.phase != COMMUNICATION)

    @cached_property
    def judged(self) -> Judged:
        """Stragglers and slow ranks; their layers are positions in :attr:`computing`."""
        return judge(
            self.self_ns[:, :, self.computing],
            [self.layers[index] for index in self.computing],
            float(np.median(self.iteration_ns)) * NS,
            self.window_s,
        )

    @property
    def efficiency(self) -> float:
        """Fraction of an iteration without communication: mean over ranks, median over iterations.

        NaN if there are no iterations or an iteration took no time. N times this estimates the
        speed-up by N ranks: each rank computes its own batch, and one rank alone would not
        communicate.
        """
        whole = self.iteration_ns
        if not whole.size or not whole.all():
            return float("nan")
        return float(np.median((self.computing_ns / whole).mean(axis=0)))

    @property
    def last(self) -> Floats:
        """Fraction of the iterations in which the other ranks waited for a rank, (ranks,).

        All are 0 without recorded arrivals.
        """
        # The last rank to arrive waits least, summed over the collectives of the iteration.
        if not self.collectives or not len(self.iterations):
            return np.zeros(len(self.ranks))
        last_ranks = self.waiting_ns.sum(axis=2).argmin(axis=0)
        return np.bincount(last_ranks, minlength=len(self.ranks)) / len(self.iterations)

    @property
    def moving_of_last_ns(self) -> Ints:
        """Time of a collective after the last arrival, (iterations, collectives)."""
        last = self.arrived_ns.argmax(axis=0)
        moving: Ints = np.take_along_axis(self.moving_ns, last[None], axis=0)[0]
        return moving


def merge(
    recordings: Mapping[str, Recording],
    problems: Sequence[str] = (),
    outcomes: Mapping[str, str] | None = None,
) -> Ranks:
    """Merge the recordings of ranks.

    Args:
        recordings: The recordings, by the names of the ranks' folders.
        problems: Lines about recordings that are missing or damaged.
        outcomes: Known outcomes of the ranks' programs, by the same names.

    Raises:
        ProfileError: The ranks are not ranks of one training, or have no iteration in common.
    """
    notes, members = [*problems], []
    for name, recording in recordings.items():
        if recording.rank is None or recording.iteration is None:
            notes.append(f"{name}: left out, because it is not a recording of a rank")
        else:
            members.append(_Member(name, recording.rank, recording, recording.iteration.tolist()))
    members.sort(key=lambda member: member.rank.number)
    if not members:
        raise ProfileError("; ".join(notes) or "there is no recording of a rank")
    _check_same_training(members)
    notes += _missing(members, notes)
    if died := who_died({member.name: member.recording for member in members}, outcomes or {}):
        notes.append(died)
    members = _long_enough(members, notes)
    if note := _not_compared(members):
        notes.append(note)
    common = sorted(set.intersection(*(set(member.iterations) for member in members)))
    if not common:
        raise ProfileError(
            "the ranks have no iteration in common: record the same iterations on all"
        )
    longest = max(member.recording.n_trials for member in members)
    if len(common) < longest:
        were = "was" if len(common) == 1 else "were"
        notes.append(
            f"{format_count(len(common))} of {plural(longest, 'iteration')} {were} recorded on all "
            "ranks shown"
        )
    return _merged(members, common, tuple(notes))


@dataclass(frozen=True, eq=False)
class _Member:
    """A rank with its recording."""

    name: str
    rank: Rank
    recording: Recording
    iterations: list[int]  #: The number of the iteration, for each trial.


def _check_same_training(members: Sequence[_Member]) -> None:
    first = members[0]
    for before, member in pairwise(members):
        rank = member.rank
        if rank.size != first.rank.size:
            raise ProfileError(
                "these are not the ranks of one training: "
                f"{first.name} is one of {first.rank.size}, {member.name} one of {rank.size}"
            )
        if rank.number == before.rank.number:
            raise ProfileError(
                f"{before.name} and {member.name} are both rank {rank.number}: remove one"
            )
    rows = _rows(first.recording)
    for member in members:
        own_rows = _rows(member.recording)
        if own_rows == rows:
            continue
        lack = f"no iteration with just the {plural(len(rows), 'row')}"
        if missing := next((row for row in rows if row not in own_rows), None):
            path, function, phase = missing
            lack = f"no {function} at {path} in {phase}"
        raise ProfileError(
            f"these are not the ranks of one training: {member.name} has {lack}, which "
            f"{first.name} has"
        )


def _rows(recording: Recording) -> list[tuple[str, str, str]]:
    return [(row.path, row.function, row.phase) for row in recording.layers]


def _missing(members: Sequence[_Member], notes: Sequence[str]) -> Iterator[str]:
    """A line about ranks that have no recording and that no note mentions."""
    size = members[0].rank.size
    recorded = {member.rank.number for member in members}
    missing = [
        str(number)
        for number in range(size)
        if number not in recorded and not any(note.startswith(f"rank-{number}:") for note in notes)
    ]
    if missing:
        named = ", ".join([*missing[:MAX_NAMED], *(["..."] if len(missing) > MAX_NAMED else [])])
        noun, count = "rank" if len(missing) == 1 else "ranks", format_count(len(missing))
        yield f"there is no recording of {noun} {named} ({count} of {format_count(size)})"


def _long_enough(members: Sequence[_Member], notes: list[str]) -> list[_Member]:
    """The ranks with enough iterations. Adds notes about the others and about early ends."""
    longest = max(member.recording.n_trials for member in members)
    for member in members:
        count, ended = member.recording.n_trials, member.recording.ended
        left_out = "left out: " if count < _MIN_PART * longest else ""
        reason = "" if ended == COMPLETE else f", its run ended early ({ended})"
        if left_out or reason:
            iterations = f"{format_count(count)} of {plural(longest, 'iteration')}"
            notes.append(f"{member.name}: {left_out}{iterations}{reason}")
    return [member for member in members if member.recording.n_trials >= _MIN_PART * longest]


def _hosts(members: Sequence[_Member]) -> set[str]:
    return {member.rank.host for member in members}


def _not_compared(members: Sequence[_Member]) -> str:
    """Why waiting in collectives is unknown; empty if it is known or there are no collectives."""
    collectives = any(row.phase == COMMUNICATION for row in members[0].recording.layers)
    if not collectives or len(_hosts(members)) == 1:
        return ""
    return (
        f"waiting in collectives is unknown: the ranks ran on {len(_hosts(members))} hosts, and "
        "arrivals on the clocks of several hosts cannot be compared"
    )


def _merged(members: Sequence[_Member], common: Sequence[int], notes: tuple[str, ...]) -> Ranks:
    runs = []
    for member in members:
        # If an iteration has several trials, the first one counts.
        trials = {number: trial for trial, number in reversed([*enumerate(member.iterations)])}
        runs.append((member.recording, [trials[number] for number in common]))
    first = members[0].recording
    rows = [row.index for row in first.layers if row.phase == COMMUNICATION]
    have_arrivals = all(run.arrived_ns is not None and run.left_ns is not None for run, _ in runs)
    collectives = tuple(rows) if have_arrivals and len(_hosts(members)) == 1 else ()
    moments = np.zeros((2, len(runs), len(common), len(collectives)), np.int64)
    if collectives:
        for row, (run, at) in enumerate(runs):
            for moment, times in zip(moments, (run.arrived_ns, run.left_ns), strict=True):
                if times is not None:
                    moment[row] = times[at]
    arrived, left = moments
    # No rank leaves a collective before all have arrived. So a rank waits from its own arrival to
    # the last one, and the rest of its time is moving. A broadcast waits for its root alone, which
    # is rank 0 in ChainerMN.
    awaited = arrived.max(axis=0)
    for column, index in enumerate(collectives):
        if first.layers[index].function == _BROADCAST and members[0].rank.number == 0:
            awaited[:, column] = arrived[0, :, column]
    waiting = np.clip(awaited - arrived, 0, left - arrived)
    phases = tuple(dict.fromkeys([row.phase for row in first.layers] + [*first.phases]))
    return Ranks(
        ranks=tuple(member.rank for member in members),
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
        window_s=MIN_WINDOWS * NS * max(run.conditions.window_ns or 0.0 for run, _ in runs),
        notes=notes,
    )


def _phase_ns(recording: Recording, phases: Sequence[str]) -> Ints:
    """Times of phases, and last the time outside of phases, (trials, phases + 1)."""
    times_ns = np.zeros((recording.n_trials, len(phases) + 1), np.int64)
    framework = framework_by_phase(recording)
    for index, phase in enumerate(phases):
        rows = [row.index for row in recording.layers if row.phase == phase]
        times_ns[:, index] = recording.self_ns[:, rows].sum(axis=1) + framework.get(phase, 0)
    if recording.trial_ns is not None:
        times_ns[:, -1] = recording.trial_ns - times_ns.sum(axis=1)
    return times_ns


def typical_s(times_ns: Ints) -> float:
    """Median over the iterations of the mean over the ranks, of times (ranks, iterations)."""
    return float(np.median(times_ns.mean(axis=0))) * NS


def who_died(recordings: Mapping[str, Recording], outcomes: Mapping[str, str]) -> str:
    """Name the ranks that died, in a sentence; empty if no rank died.

    Args:
        recordings: Recordings of ranks by name.
        outcomes: Known outcomes of the ranks' programs, by the same names.
    """
    # A rank that fails leaves its error. The launcher then kills the others, which leave no error.
    # If all were killed, the rank with the earliest last iteration stopped first.
    ends = {name: recording.ended for name, recording in recordings.items()} | dict(outcomes)
    killed = [name for name, end in ends.items() if end == RUNNING or end.startswith(KILLED)]
    were_killed = f"{join_words(killed)} {'was' if len(killed) == 1 else 'were'} killed"
    failed = {
        name: end for name, end in ends.items() if name not in killed and end not in _IN_ORDER
    }
    # An exception may end the program after its recording is complete.
    finished = [name for name in ends if name not in killed and outcomes.get(name) in _IN_ORDER]
    if failed:
        deaths = "; ".join(f"{name} died: {end}" for name, end in failed.items())
        return f"{deaths}; {were_killed} from outside" if killed else deaths
    if killed and finished and len(killed) + len(finished) == len(ends):
        return f"{were_killed}; {join_words(finished)} finished"
    if len(killed) < max(len(ends), 1):
        return ""
    last = {
        name: int(recording.iteration.max())
        for name, recording in recordings.items()
        if recording.iteration is not None and len(recording.iteration)
    }
    earliest = min(last.values(), default=0)
    first = [name for name, iteration in last.items() if iteration == earliest]
    if len(last) < len(ends) or len(first) == len(last):
        return "all ranks were killed, and it is unknown which one died first"
    return (
        f"all ranks were killed; {join_words(first)} stopped first, after iteration "
        f"{format_count(earliest)}, the others after {format_count(max(last.values()))}"
    )
