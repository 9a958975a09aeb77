"""A network that a program calls, its trials by call or by link, and the history of all calls."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import environment
from chainer_profile.measure.calls import Log
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.rows import Iteration
from chainer_profile.measure.structure import Structure
from chainer_profile.measure.tape import Tape
from chainer_profile.record.journal import padded
from chainer_profile.record.recording import Recording, Settings


class CallHistory:
    """All calls of functions in the order in which they ended, with their times."""

    def __init__(self) -> None:
        self.total_ns = 0
        self._names: list[str] = []
        self._elapsed_ns, self._self_ns = array("q"), array("q")
        # What runs: its name, its begin, and the time of the calls in it that have ended.
        self._running: list[list[Any]] = []

    def pairs(self, own: bool = False) -> list[tuple[str, float]]:
        """Names and times in seconds; on request without the time of nested calls."""
        times = self._self_ns if own else self._elapsed_ns
        return [(name, time_ns / 1e9) for name, time_ns in zip(self._names, times, strict=True)]

    def add(self, log: Log) -> None:
        """Add a stretch of a log, which may end within windows."""
        at = 0
        while at < len(log):
            if type(log[at]) is not int:
                self._running.append([getattr(log[at], "__name__", ""), log[at + 3], 0])
                at += 4
                continue
            if self._running:
                name, begin_ns, nested_ns = self._running.pop()
                if name:  # else it is of a link
                    elapsed_ns = log[at] - begin_ns
                    self._names.append(name)
                    self._elapsed_ns.append(elapsed_ns)
                    self._self_ns.append(elapsed_ns - nested_ns)
                    self._add_time(elapsed_ns, elapsed_ns - nested_ns)
            at += 1

    def add_whole(self, log: Log) -> None:
        """Add a stretch whose windows have ended: an exception left those that run at its end."""
        depth = len(self._running)
        self.add(log)
        del self._running[depth:]

    def add_trials(self, structure: Structure, stamps: NDArray[np.int64]) -> None:
        """Add trials that make the same calls: their clock reads, (trials, reads)."""
        names, begins, ends, within = structure.history
        elapsed = stamps[:, ends] - stamps[:, begins]
        own = elapsed.copy()
        for inner, outer in within:
            own[:, outer] -= elapsed[:, inner]
        self._names += names * len(stamps)
        self._elapsed_ns.frombytes(elapsed.tobytes())
        self._self_ns.frombytes(own.tobytes())
        self._add_time(int(own.sum()), int(own.sum()))

    def clear(self) -> None:
        self._running.clear()

    def _add_time(self, elapsed_ns: int, own_ns: int) -> None:
        self.total_ns += own_ns
        if self._running:
            self._running[-1][2] += elapsed_ns


class CalledNetwork:
    """An outermost link that was called, and its trials."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.trial = LoopTrial([("", root)], title=type(root).__name__)
        self.structure: Structure | None = None
        self.tape: Tape | None = None
        self._settings = Settings()
        # Of trials that are alike starts and wall times, and times of those that are folded.
        self._starts, self._walls, self._times = array("q"), array("q"), array("q")
        # Trials by link, and wall times of those whose calls are no row's.
        self._by_link: list[Iteration] = []
        self._lost_ns: list[int] = []

    @property
    def n_trials(self) -> int:
        """Number of trials, the first one included."""
        return len(self._walls) if self.tape is None else len(self._by_link)

    @property
    def is_alike(self) -> bool:
        """Whether its calls are known, and no trial has differed."""
        return self.structure is not None and self.tape is None

    # -- trials that are alike

    def learn(self, structure: Structure) -> None:
        """Know what the first trial taught, which is still to be added."""
        self.structure = structure
        self.trial.note(True)
        settings = self.trial.settings(structure.layers)
        self._settings = replace(settings, input="the caller's", phase="forward")

    def add(self, log: Log, begin: int, start_ns: int, wall_ns: int) -> bool:
        """Add a trial, whose log begins there; False where its calls are others."""
        assert self.structure is not None
        if not self.structure.fits(log, begin):
            return False
        self._starts.append(start_ns)
        self._walls.append(wall_ns)
        return True

    def add_of_other_shapes(self, log: Log, begin: int, start_ns: int, wall_ns: int) -> bool:
        """Add one that differs by its shapes alone: the functions of its links are the others'."""
        assert self.structure is not None
        other = self.structure.with_known_sizes(log[begin:])
        if not self.add(other, 0, start_ns, wall_ns):
            return False
        log[begin:] = other
        return True

    def fold(self, log: Log, history: CallHistory) -> None:
        """Keep the times of trials that were added, by their log, and put them into the history."""
        assert self.structure is not None
        stamps = self.structure.all_stamps(log)
        history.add_trials(self.structure, stamps)
        self._times.frombytes(self.structure.times_ns(stamps).tobytes())

    def _alike(self, begin: int) -> Recording:
        assert self.structure is not None
        layers = self.structure.layers
        times = np.array(self._times, np.int64).reshape(len(self._walls), len(layers))
        return Recording(
            layers=layers,
            links=self.structure.links,
            self_ns=times[begin:],
            trial_ns=np.array(self._walls[begin:], np.int64),
            start_ns=np.array(self._starts[begin:], np.int64),
        )

    # -- trials that differ

    def differs(self, tape: Tape, wall_ns: int = 0) -> None:
        """Have a tape time all trials from now on; the others are folded."""
        assert self.structure is not None
        self.tape = tape
        self._lost_ns += [wall_ns] if wall_ns else []
        self._by_link = tape.know(self._alike(1))

    def add_by_link(self, trial: Iteration) -> None:
        """Add a trial that the tape has timed; one without a call has no time of a row's."""
        if trial.calls.any():
            self._by_link.append(trial)

    # -- what came out

    def recording(self) -> Recording:
        """Its trials, which are folded."""
        if not self._walls:
            raise ProfileError("no call of the network completed under this hook")
        warmups = [self._walls[0], *self._lost_ns]
        if self.tape is not None and self._by_link:
            found = self._folded_by_link(self.tape)
        elif len(self._walls) > 1:
            found = self._alike(1)
        else:
            found, warmups = self._alike(0), self._lost_ns
        return replace(
            found,
            warmup_ns=np.array(warmups, np.int64),
            environment=environment.collect(self._settings.device),
            settings=replace(self._settings, trials=found.n_trials),
        )

    def _folded_by_link(self, tape: Tape) -> Recording:
        layers, trials = tape.rows.layers(), self._by_link
        return Recording(
            layers=layers,
            links=tape.links(),
            self_ns=padded([one.rows_ns for one in trials], len(layers)),
            calls=padded([one.calls for one in trials], len(layers)),
            trial_ns=np.array([one.wall_ns for one in trials], np.int64),
            start_ns=np.array([one.start_ns for one in trials], np.int64),
        )
