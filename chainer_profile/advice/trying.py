"""Tries changes: the network with and without each takes turns, in fresh processes every time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainer_profile.advice import results
from chainer_profile.advice.changes import AS_IT_IS, WALL, Candidate, summed
from chainer_profile.advice.worker import BLOCK, CHECK, LAYERS, READY, WorkerError
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.errors import ProfileError
from chainer_profile.engines.results import Speedup

#: Part of the time that the first look may take, and its groups.
LOOK_PART, LOOK_GROUPS = 0.3, 2
#: Rounds of a group: as many as there is time for, within these.
LEAST_ROUNDS, MOST_ROUNDS = 4, 200
#: Part of what is left that one process may keep all waiting.
_PATIENCE_PART, _LEAST_PATIENCE_S = 0.25, 30.0
#: Layers that are named; they are timed in a group behind so many others.
_MOST_LAYERS, _BEFORE_LAYERS = 5, 2


#: Gives a :class:`.worker.Worker`, or what does as one.
Start = Callable[[Change], Any]
#: The CPU and wall time of an input in a block of each change.
Round = dict[Change, dict[str, float]]


@dataclass
class _Course:
    """One change, and what there is of it so far."""

    candidate: Candidate
    #: Of each group the ratios of CPU and of wall time, and the median wall time without it.
    groups: list[tuple[float, ...]] = field(default_factory=list)
    #: Of each group the layers without and with it.
    layers: list[tuple[Any, Any]] = field(default_factory=list)
    is_chosen: bool = False  #: Whether the first look was promising, of which these are the groups.
    looked: Sequence[tuple[float, ...]] = ()
    checked: bool = False  #: Whether its outputs were compared.
    error: str = ""  #: Why it is out.

    def result(self) -> results.Tried:
        """What came of it: of the groups after the first look, where there are any."""
        groups = self.groups
        if len(groups) < results.LEAST_PAIRS:  # the time sufficed for no more
            groups = [*self.looked, *groups]
        if not groups:
            return results.Tried(self.candidate, error=self.error)
        cpu, wall, before_s = zip(*groups, strict=True)
        in_wall_time, median_s = results.gain(wall), float(np.median(before_s))
        return results.Tried(
            self.candidate,
            wall=in_wall_time,
            cpu=results.gain(cpu),
            pairs=len(groups),
            confirmed=self.is_chosen and bool(self.groups),
            before_s=median_s,
            # Ratios are taken within rounds, which medians of all rounds do not give back.
            after_s=median_s / in_wall_time.factor,
            layers=_layer_gains(self.layers),
            error=self.error,
        )

    def fold(self, rounds: Sequence[Round]) -> None:
        """Note what a group gives: the medians of its rounds."""
        pair = self.candidate.against, self.candidate.change
        blocks = [(made[pair[0]], made[pair[1]]) for made in rounds if made.keys() >= {*pair}]
        if len(blocks) < LEAST_ROUNDS:  # stopped
            return
        cpus = [(before["cpu_s"], after["cpu_s"]) for before, after in blocks]
        walls = [(before["wall_s"], after["wall_s"]) for before, after in blocks]
        cpu = np.median([before / after if after > 0 else 1.0 for before, after in cpus])
        wall = np.median([before / after for before, after in walls])
        before_s = np.median([before for before, _ in walls])
        self.groups.append((float(cpu), float(wall), float(before_s)))

    @property
    def settled(self) -> bool:
        """Whether it need not be measured any further."""
        return bool(self.groups) and results.settled(self.result().gain, len(self.groups))


class Trial:
    """All changes of one network.

    What processes measure differs by more than what happens within one: memory lies elsewhere. So a
    group of processes, one for each change and one without, makes rounds of short blocks, and gives
    one ratio for each change; then new processes begin. A first look with few groups chooses the
    promising changes; the gains that are told come from the groups after it.
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
        """The best candidates come first; ``at_once`` processes fit into memory.

        ``stop`` is asked now and then whether to stop: why, or an empty text. So is ``ended``.
        """
        self._courses = list(map(_Course, candidates))
        self._start, self._now, self._asked_to_stop, self._say = start, now, stop, say
        self.ended = ""
        self._at_once = max(2, at_once)
        self._begin, self._seconds = now(), seconds
        # Seconds that the shortest group takes, by what the changes are held against.
        self._least_s: dict[Change, float] = {}
        # Of the group that runs: its processes and its changes.
        self._workers: dict[Change, Any] = {}
        self._here: Sequence[_Course] = ()

    def run(self) -> tuple[tuple[results.Tried, ...], tuple[Untried, ...]]:
        """What came of each, and those that there was no time for; also where it was stopped."""
        self.look(LOOK_PART)
        self._choose()
        end = self._begin + self._seconds
        while wanted := [
            course for course in self._running if course.is_chosen and not course.settled
        ]:
            done = min(len(course.groups) for course in wanted)
            seconds = (end - self._now()) / max(1, results.PAIRS - done)
            if self._stop() or not self._groups(wanted, seconds, end, "again"):
                break
        tried = [course.result() for course in self._courses]
        undone = [change for change in tried if change.gain is None and not change.error]
        return (
            results.ranked([change for change in tried if change not in undone]),
            tuple(Untried(change.candidate.name, "no time was left") for change in undone),
        )

    def look(self, part: float = 1.0) -> list[Speedup | None]:
        """A first look, in a part of the time; gives the gains."""
        end = self._begin + part * self._seconds
        for left in range(LOOK_GROUPS, 0, -1):
            self._groups(self._running, (end - self._now()) / left, end, "first look")
        return [course.result().gain for course in self._courses]

    def _stop(self) -> str:
        self.ended = self.ended or self._asked_to_stop()
        return self.ended

    @property
    def _running(self) -> list[_Course]:
        return [course for course in self._courses if not course.error]

    def _choose(self) -> None:
        """Begin anew with those that are promising, and with their sums."""
        chosen = []
        for course in self._running:
            look = course.result()
            if results.promising(look.gain):
                course.is_chosen, course.looked, course.groups = True, course.groups, []
                chosen.append(look)
        sums = summed([look.candidate for look in results.ranked(chosen)])
        self._courses += [_Course(candidate, is_chosen=True) for candidate in sums]

    def _groups(self, courses: Sequence[_Course], seconds: float, end: float, title: str) -> int:
        """A group of processes for these changes, in about so many seconds; gives their number."""
        # There are several where memory does not hold all, or where some are held against another
        # number of threads, which would disturb the rest. None is begun that would not end in time,
        # but for the first: without it nothing can be said.
        parts, most = [], self._at_once - 1
        for against in dict.fromkeys(course.candidate.against for course in courses):
            own = [course for course in courses if course.candidate.against == against]
            parts += [own[at : at + most] for at in range(0, len(own), most)]
        whole, made = sum(1 + len(part) for part in parts), 0
        for part in parts:
            least_s = self._least_s.get(part[0].candidate.against, 0.0)
            if not self._stop() and (not least_s or self._now() + least_s <= end):
                self._say(f"{title}: {', '.join(course.candidate.name for course in part)}")
                self._group(part, seconds * (1 + len(part)) / whole)
                made += 1
        return made

    def _group(self, courses: Sequence[_Course], seconds: float) -> None:
        begin, self._workers, self._here = self._now(), {}, courses
        try:
            waiting: list[Change] = []
            for course in courses:
                for change in (course.candidate.against, course.candidate.change):
                    if change not in self._workers:
                        self._workers[change] = self._start(change)
                        waiting.append(change)
                # Threads that wait for one another keep the cores: one process at a time.
                while waiting and course.candidate.decides == WALL:
                    self._ask(READY, waiting.pop(0))
            for change in waiting:
                self._ask(READY, change)
            ready = self._now()
            rounds = self._rounds(begin + seconds)
            round_s = (self._now() - ready) / max(1, len(rounds))
            self._least_s[courses[0].candidate.against] = ready - begin + LEAST_ROUNDS * round_s
            for course in courses:
                if not course.error:
                    course.fold(rounds)
            self._time_layers()
            for course in courses:
                change = course.candidate.change
                if not (course.checked or course.error or change == AS_IT_IS or self._stop()):
                    wrong = self._ask(CHECK, change)
                    course.checked, course.error = True, course.error or wrong or ""
        finally:
            for worker in self._workers.values():
                worker.close()

    def _rounds(self, end: float) -> list[Round]:
        """Rounds, in each of which every process makes a block; the order changes."""
        rounds: list[Round] = []
        while len(rounds) < MOST_ROUNDS and not self._stop():
            if len(rounds) >= LEAST_ROUNDS and self._now() >= end:
                break
            order = list(self._workers)
            turn = len(rounds) % len(order)
            order = order[turn:] + order[:turn]
            made: Round = {}
            for change in order if len(rounds) % 2 else order[::-1]:
                if block := self._ask(BLOCK, change):
                    made[change] = block
            if self._stop():
                break
            rounds.append(made)
        return rounds

    def _ask(self, question: str, change: Change) -> Any:
        """What a process answers; where it fails its change is out, and the others go on."""
        if change not in self._workers:
            return None
        left_s = self._begin + self._seconds - self._now()
        patience_s = max(_LEAST_PATIENCE_S, _PATIENCE_PART * left_s)
        try:
            return self._workers[change].ask(question, patience_s)
        except WorkerError as error:
            self._workers.pop(change).close()
            if question == LAYERS:
                return None
            if change == AS_IT_IS:
                self.ended = f"the network as it is: {error}"
                if all(not (course.is_chosen or course.groups) for course in self._courses):
                    raise ProfileError(self.ended) from error
                return None
            for course in self._here:
                if change in (course.candidate.change, course.candidate.against):
                    course.error = str(error)
            return None

    def _time_layers(self) -> None:
        """The layers' times of changes of Chainer's own."""
        wanted = [
            course
            for course in self._here
            if course.is_chosen and not (course.error or course.layers)
            if len(course.groups) > _BEFORE_LAYERS and not course.candidate.change.engine
        ]
        layers: dict[Change, Any] = {}
        for course in wanted:
            pair = course.candidate.against, course.candidate.change
            for change in pair:
                if change not in layers and not self._stop():
                    layers[change] = self._ask(LAYERS, change)
            if all(map(layers.get, pair)):
                course.layers.append((layers[pair[0]], layers[pair[1]]))


def _layer_gains(groups: Sequence[tuple[Any, Any]]) -> tuple[results.LayerGain, ...]:
    """The layers that gained the most: medians over the groups."""
    times: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for before, after in groups:
        changed = {tuple(key): seconds for *key, seconds in after}
        for *key, seconds in before:
            if tuple(key) in changed:
                times.setdefault(tuple(key), []).append((seconds, changed[tuple(key)]))
    medians = ((*key, *np.median(values, axis=0).tolist()) for key, values in times.items())
    gains = [results.LayerGain(*row) for row in medians]
    gained = [gain for gain in gains if gain.before_s > gain.after_s]
    return tuple(sorted(gained, key=lambda gain: gain.after_s - gain.before_s)[:_MOST_LAYERS])
