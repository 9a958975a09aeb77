"""Compares changes with the unchanged network, in fresh processes that run interleaved blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainer_profile.advice import results
from chainer_profile.advice.changes import UNCHANGED, WALL, Candidate, combine
from chainer_profile.advice.worker import BLOCK, CHECK, LAYERS, READY, WorkerError
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.errors import ProfileError
from chainer_profile.engines.results import Speedup

#: Fraction of the time that the first look may take, and its number of groups.
LOOK_PART, LOOK_GROUPS = 0.3, 2
#: Smallest and largest number of rounds of a group.
MIN_ROUNDS, MAX_ROUNDS = 4, 200
#: How long to wait for one process: a fraction of the remaining time, and at least some seconds.
_TIMEOUT_PART, _MIN_TIMEOUT_S = 0.25, 30.0
#: Largest number of layers in a result, and the number of groups before layers are timed.
_MAX_LAYERS, _BEFORE_LAYERS = 5, 2


#: Starts a process with a change: a :class:`.worker.Worker` or a substitute.
Start = Callable[[Change], Any]
#: CPU and wall time per input of one block of each change.
Round = dict[Change, dict[str, float]]


@dataclass
class _CandidateState:
    """A candidate and its measurements so far."""

    candidate: Candidate
    #: For each group: the speed-ups by CPU and by wall time, and the median wall time in seconds
    #: without the change.
    groups: list[tuple[float, ...]] = field(default_factory=list)
    #: For each group that timed layers: the layers without and with the change.
    layers: list[tuple[Any, Any]] = field(default_factory=list)
    is_chosen: bool = False  #: Whether the first look chose the change.
    first_groups: Sequence[tuple[float, ...]] = ()  #: The groups of the first look, if chosen.
    checked: bool = False  #: Whether the outputs were compared.
    error: str = ""  #: Why the change was dropped.

    def result(self) -> results.ChangeResult:
        """Compute the result from the groups after the first look, or from all if these are few."""
        groups = self.groups
        if len(groups) < results.MIN_PAIRS:  # there was no time for others
            groups = [*self.first_groups, *groups]
        if not groups:
            return results.ChangeResult(self.candidate, error=self.error)
        cpu, wall, before_s = zip(*groups, strict=True)
        in_wall_time, median_s = results.gain(wall), float(np.median(before_s))
        return results.ChangeResult(
            self.candidate,
            wall=in_wall_time,
            cpu=results.gain(cpu),
            pairs=len(groups),
            confirmed=self.is_chosen and bool(self.groups),
            before_s=median_s,
            # The ratio of medians over all rounds is not the median of the rounds' ratios.
            after_s=median_s / in_wall_time.factor,
            layers=_layer_gains(self.layers),
            error=self.error,
        )

    def add_group(self, rounds: Sequence[Round]) -> None:
        """Add the medians over the rounds of a group."""
        without, with_ = self.candidate.against, self.candidate.change
        blocks = [
            (times[without], times[with_]) for times in rounds if times.keys() >= {without, with_}
        ]
        if len(blocks) < MIN_ROUNDS:  # stopped
            return
        cpus = [(before["cpu_s"], after["cpu_s"]) for before, after in blocks]
        walls = [(before["wall_s"], after["wall_s"]) for before, after in blocks]
        cpu = np.median([before / after if after > 0 else 1.0 for before, after in cpus])
        wall = np.median([before / after for before, after in walls])
        before_s = np.median([before for before, _ in walls])
        self.groups.append((float(cpu), float(wall), float(before_s)))

    @property
    def settled(self) -> bool:
        """Whether more groups would not change the verdict."""
        return bool(self.groups) and results.settled(self.result().gain, len(self.groups))


class Experiment:
    """Measures all candidates of one network.

    Times differ more between processes than within one, because memory addresses differ. So a group
    has a process for each change and one for the unchanged network. The group runs rounds of short
    blocks and gives one speed-up per change; then the next group starts with new processes. A first
    look with few groups chooses the promising changes. The reported gains come from later groups.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        start: Start,
        *,
        seconds: float,
        at_once: int = 16,
        now: Callable[[], float] = time.monotonic,
        stop: Callable[[], str] = lambda: "",
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare an experiment.

        Args:
            candidates: The most promising ones first.
            start: Starts a process.
            seconds: Time budget.
            at_once: Number of processes that fit into memory.
            now: Clock in seconds.
            stop: Returns why to stop early, or an empty text.
            say: Shows progress.
        """
        self._states = list(map(_CandidateState, candidates))
        self._start, self._now, self._asked_to_stop, self._say = start, now, stop, say
        self.ended = ""  #: Why the experiment stopped early; empty if it did not.
        self._at_once = max(2, at_once)
        self._begin, self._seconds = now(), seconds
        # Seconds that the shortest group takes, by the change that candidates are compared with.
        self._min_s: dict[Change, float] = {}
        # The processes and candidates of the current group.
        self._workers: dict[Change, Any] = {}
        self._active: Sequence[_CandidateState] = ()

    def run(self) -> tuple[tuple[results.ChangeResult, ...], tuple[Untried, ...]]:
        """Measure all candidates; return the results, and the changes that had no time."""
        self.look(LOOK_PART)
        self._choose()
        end = self._begin + self._seconds
        while wanted := [state for state in self._running if state.is_chosen and not state.settled]:
            done = min(len(state.groups) for state in wanted)
            seconds = (end - self._now()) / max(1, results.PAIRS - done)
            if self._stop() or not self._groups(wanted, seconds, end, "again"):
                break
        tried = [state.result() for state in self._states]
        undone = [change for change in tried if change.gain is None and not change.error]
        return (
            results.ranked([change for change in tried if change not in undone]),
            tuple(Untried(change.candidate.name, "no time was left") for change in undone),
        )

    def look(self, part: float = 1.0) -> list[Speedup | None]:
        """Measure all candidates briefly, in a fraction of the time; return their gains."""
        end = self._begin + part * self._seconds
        for left in range(LOOK_GROUPS, 0, -1):
            self._groups(self._running, (end - self._now()) / left, end, "first look")
        return [state.result().gain for state in self._states]

    def _stop(self) -> str:
        self.ended = self.ended or self._asked_to_stop()
        return self.ended

    @property
    def _running(self) -> list[_CandidateState]:
        return [state for state in self._states if not state.error]

    def _choose(self) -> None:
        """Choose the promising changes, discard their groups, and add their combination."""
        chosen = []
        for state in self._running:
            look = state.result()
            if results.promising(look.gain):
                state.is_chosen, state.first_groups, state.groups = True, state.groups, []
                chosen.append(look)
        sums = combine([look.candidate for look in results.ranked(chosen)])
        self._states += [_CandidateState(candidate, is_chosen=True) for candidate in sums]

    def _groups(
        self, states: Sequence[_CandidateState], seconds: float, end: float, title: str
    ) -> int:
        """Measure candidates in about this time; return the number of groups that ran."""
        # Several groups are needed if memory does not hold all processes, or if some candidates
        # are compared with another number of threads, which would disturb the others. A group that
        # would not end in time does not start, except the first, whose duration is unknown.
        batches, max_size = [], self._at_once - 1
        for against in dict.fromkeys(state.candidate.against for state in states):
            rivals = [state for state in states if state.candidate.against == against]
            batches += [rivals[i : i + max_size] for i in range(0, len(rivals), max_size)]
        processes, groups = sum(1 + len(batch) for batch in batches), 0
        for batch in batches:
            min_s = self._min_s.get(batch[0].candidate.against, 0.0)
            if not self._stop() and (not min_s or self._now() + min_s <= end):
                self._say(f"{title}: {', '.join(state.candidate.name for state in batch)}")
                self._run_group(batch, seconds * (1 + len(batch)) / processes)
                groups += 1
        return groups

    def _run_group(self, states: Sequence[_CandidateState], seconds: float) -> None:
        begin, self._workers, self._active = self._now(), {}, states
        try:
            waiting: list[Change] = []
            for state in states:
                for change in (state.candidate.against, state.candidate.change):
                    if change not in self._workers:
                        self._workers[change] = self._start(change)
                        waiting.append(change)
                # Waiting threads occupy the cores, so one process at a time becomes ready.
                while waiting and state.candidate.decides == WALL:
                    self._ask(READY, waiting.pop(0))
            for change in waiting:
                self._ask(READY, change)
            ready = self._now()
            rounds = self._rounds(begin + seconds)
            round_s = (self._now() - ready) / max(1, len(rounds))
            self._min_s[states[0].candidate.against] = ready - begin + MIN_ROUNDS * round_s
            for state in states:
                if not state.error:
                    state.add_group(rounds)
            self._time_layers()
            for state in states:
                change = state.candidate.change
                if not (state.checked or state.error or change == UNCHANGED or self._stop()):
                    wrong = self._ask(CHECK, change)
                    state.checked, state.error = True, state.error or wrong or ""
        finally:
            for worker in self._workers.values():
                worker.close()

    def _rounds(self, end: float) -> list[Round]:
        """Run rounds: in each, every process runs one block, in an order that changes."""
        rounds: list[Round] = []
        while len(rounds) < MAX_ROUNDS and not self._stop():
            if len(rounds) >= MIN_ROUNDS and self._now() >= end:
                break
            order = list(self._workers)
            turn = len(rounds) % len(order)
            order = order[turn:] + order[:turn]
            times: Round = {}
            for change in order if len(rounds) % 2 else order[::-1]:
                if block := self._ask(BLOCK, change):
                    times[change] = block
            if self._stop():
                break
            rounds.append(times)
        return rounds

    def _ask(self, request: str, change: Change) -> Any:
        """Send a request to a process. If the process fails, drop its change and return None."""
        if change not in self._workers:
            return None
        left_s = self._begin + self._seconds - self._now()
        timeout_s = max(_MIN_TIMEOUT_S, _TIMEOUT_PART * left_s)
        try:
            return self._workers[change].ask(request, timeout_s)
        except WorkerError as error:
            self._workers.pop(change).close()
            if request == LAYERS:
                return None
            if change == UNCHANGED:
                self.ended = f"the unchanged network failed: {error}"
                if all(not (state.is_chosen or state.groups) for state in self._states):
                    raise ProfileError(self.ended) from error
                return None
            for state in self._active:
                if change in (state.candidate.change, state.candidate.against):
                    state.error = str(error)
            return None

    def _time_layers(self) -> None:
        """Time the layers of chosen changes that Chainer runs."""
        wanted = [
            state
            for state in self._active
            if state.is_chosen and not (state.error or state.layers)
            if len(state.groups) > _BEFORE_LAYERS and not state.candidate.change.engine
        ]
        layers: dict[Change, Any] = {}
        for state in wanted:
            pair = state.candidate.against, state.candidate.change
            for change in pair:
                if change not in layers and not self._stop():
                    layers[change] = self._ask(LAYERS, change)
            if all(map(layers.get, pair)):
                state.layers.append((layers[pair[0]], layers[pair[1]]))


def _layer_gains(groups: Sequence[tuple[Any, Any]]) -> tuple[results.LayerGain, ...]:
    """Times of the layers with the largest gains, medians over the groups."""
    times: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for before, after in groups:
        changed = {tuple(key): seconds for *key, seconds in after}
        for *key, seconds in before:
            if tuple(key) in changed:
                times.setdefault(tuple(key), []).append((seconds, changed[tuple(key)]))
    medians = ((*key, *np.median(values, axis=0).tolist()) for key, values in times.items())
    gains = [results.LayerGain(*row) for row in medians]
    gained = [gain for gain in gains if gain.before_s > gain.after_s]
    return tuple(sorted(gained, key=lambda gain: gain.after_s - gain.before_s)[:_MAX_LAYERS])
