"""Engines take turns: each is made ready, its outputs are compared with Chainer's, and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import chainer
import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.free_memory import Growth
from chainer_profile.engines import equality
from chainer_profile.engines.catalogue import BASELINE, ENGINES, entry_of, find_engine
from chainer_profile.engines.protocol import Engine, EngineError, EngineProfile, Network
from chainer_profile.engines.results import EngineResult, trials_in_a_round
from chainer_profile.measure.clock import HOST_CLOCK, WARMUP_SECONDS, Clock
from chainer_profile.measure.trials import Progress, Stop
from chainer_profile.record.recording import COMPLETE, TIME_LIMIT

#: Seconds that the timing of one engine's nodes may take.
LAYERS_S = 10.0


@dataclass(eq=False, kw_only=True)
class Contestant(EngineResult):
    """An engine in the race, and what came out so far; one with an error is out of it."""

    #: Not yet prepared; None for one that cannot be tried.
    engine: Any
    #: Makes another such engine, for a copy of the network with other parameters.
    make: Callable[[], Engine] | None = None
    #: The file that it is loaded from, in place of being prepared, and the one it is to be kept in.
    saved: Path | None = None
    to_save: Path | None = None
    #: Of each trial, on the clock in nanoseconds.
    starts: list[int] = field(default_factory=list)
    walls: list[int] = field(default_factory=list)
    profile: EngineProfile | None = None

    @property
    def start_ns(self) -> NDArray[np.int64]:
        return np.array(self.starts, np.int64)

    @property
    def median_s(self) -> float:
        return float(np.median(self.clean_ns)) * NS

    @property
    def result(self) -> EngineResult:
        """What came out, without the engine."""
        return EngineResult(**{one.name: getattr(self, one.name) for one in fields(EngineResult)})


# -- which engines a run has, and which of them a file is for


def choose(names: Sequence[str] | None) -> list[Contestant]:
    """The engines that were named, Chainer first; without names all of the catalogue."""
    found: list[Contestant] = []
    for name in dict.fromkeys([BASELINE, *(ENGINES if names is None else names)]):
        entry = entry_of(name)
        if entry is None:
            engine = find_engine(name)
            own = str(getattr(engine, "name", "")) or name
            taken = own in ENGINES or any(own == one.name for one in found)
            found.append(Contestant(name=name if taken else own, engine=engine, make=type(engine)))
        elif lacks := entry.lacks():
            found.append(Contestant(name=name, engine=None, error=lacks, install=entry.install))
        else:
            found.append(Contestant(name=name, engine=entry.make(), make=entry.make))
    return found


def place(contestants: Sequence[Contestant], *, save: Path | None, load: Path | None) -> None:
    """Note which engine is of a file."""
    if save is not None:
        _of_file(contestants, "save", f"--save-engine {save}").to_save = save
    if load is not None:
        _of_file(contestants, "load", f"--load-engine {load}").saved = load


def _of_file(contestants: Sequence[Contestant], method: str, option: str) -> Contestant:
    """The one engine that has files."""
    able = [one for one in contestants if hasattr(one.engine, method)]
    if not able:
        raise UsageError(f"{option}: none of the engines of this run has files")
    if len(able) > 1:
        names = " or ".join(one.name for one in able)
        raise UsageError(f"{option} could be for {names}: name one of them with --engines")
    return able[0]


@dataclass(eq=False)
class Race:
    """One race; the first contestant is Chainer, whose outputs are the right ones."""

    contestants: Sequence[Contestant]
    network: Network
    trials: int
    warmups: int = 10
    tolerance: float | None = None
    clock: Clock = HOST_CLOCK
    max_seconds: float | None = None
    stop: Stop | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        self.ended = COMPLETE
        self._block = trials_in_a_round(self.trials)
        for one in self.contestants:
            one.block = self._block
            one.tolerance = equality.TOLERANCE if self.tolerance is None else self.tolerance
        self._now_ns = self.clock.now_ns
        self._done, self._total_ns = 0, 0
        # Inputs, their copies on the host, and Chainer's outputs for them.
        self._known: list[tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]] = []
        self._intermediates: dict[int, dict[int, NDArray[Any]]] = {}

    @property
    def running(self) -> list[Contestant]:
        return [one for one in self.contestants if not one.error]

    def run(self) -> None:
        """Make the engines ready, compare their outputs, make the trials, and compare again."""
        for contestant in self.running:
            if self._stops():
                return
            self._prepare(contestant)
        if not self._stops():
            try:
                self._make_trials()
            finally:
                for contestant in self.contestants:
                    contestant.clean_ns = np.array(contestant.walls, np.int64)
        for contestant in self.running:
            # What breaks in the trials shows in the outputs behind them.
            if contestant.walls:
                self._guarded(contestant, partial(self._compare, contestant, 0))

    def profile_nodes(self, trials: int, *, most_seconds: float = LAYERS_S) -> None:
        """Have every engine time its nodes; one that cannot gets a note."""
        for contestant in self.running:
            if not contestant.walls or self._stops():
                continue
            median_s = contestant.median_s
            count = max(1, min(trials, int(most_seconds / median_s) if median_s else trials))
            try:
                contestant.profile = contestant.engine.layers(self.network.inputs, count)
            except Exception as error:  # an engine's own code; its clean times are good
                contestant.add_note(f"no node times: {_said(error)}")
            else:
                if contestant.profile is None:
                    contestant.add_note("it does not report the times of its nodes")

    # -- one engine

    def _prepare(self, contestant: Contestant) -> None:
        """Make an engine ready, and compare its outputs with Chainer's."""
        baseline = contestant is self.contestants[0]
        network = self.network

        def prepare() -> None:
            growth = Growth()
            engine, begin_ns = contestant.engine, self._now_ns()
            if contestant.saved is None:
                engine.prepare(network)
            else:
                engine.load(network, contestant.saved)
            contestant.prepare_s = (self._now_ns() - begin_ns) * NS
            contestant.version = str(getattr(engine, "version", contestant.version))
            contestant.add_note(str(getattr(engine, "note", "")))
            if baseline:
                inputs = self.network.inputs
                for given in (inputs, equality.other_inputs(inputs)):
                    kept = equality.host_copies(given)
                    self._known.append((given, kept, equality.host_copies(engine.run(given))))
            for number in range(len(self._known)):
                self._compare(contestant, number)
            if baseline and contestant.wrong:
                raise EngineError(
                    "the network returns different outputs for the same input (for example, "
                    "it draws random numbers in test mode), so no engine can be compared with "
                    "it"
                )
            if contestant.make is not None and contestant.saved is None and not baseline:
                self._compare_with_others(contestant, contestant.make())
            growth.settle()
            begin_ns = self._now_ns()
            for _ in range(self.warmups):
                engine.run(self.network.inputs)
                if (self._now_ns() - begin_ns) * NS >= WARMUP_SECONDS:
                    break
            if self.warmups and not network.gpu:
                contestant.memory_nbytes = growth.nbytes()

        self._guarded(contestant, prepare)
        if baseline and contestant.error:
            raise ProfileError(f"{contestant.name}: {contestant.error}")

    def _compare(self, contestant: Contestant, number: int) -> None:
        """Compare its outputs for one of the known inputs; where they differ, see from where on."""
        inputs, kept, expected = self._known[number]
        got = equality.host_copies(contestant.engine.run(inputs))
        for given, was in zip(inputs, kept, strict=True):
            (now,) = equality.host_copies((given,))
            if not np.array_equal(now, was, equal_nan=was.dtype.kind in "fc"):
                given[...] = chainer.backend.get_array_module(given).asarray(was)
                raise EngineError("changes its input")
        found = equality.difference(expected, got)
        contestant.differences += (found,)
        wrong = not found.relative <= contestant.tolerance
        if wrong and not contestant.worst_layer and hasattr(contestant.engine, "intermediates"):
            contestant.worst_layer = self._worst_layer(contestant, number)

    def _compare_with_others(self, contestant: Contestant, engine: Engine) -> None:
        model, expected = self._others
        if model is None:
            return
        inputs = self.network.inputs
        engine.prepare(replace(self.network, model=model))
        contestant.differences += (equality.difference(expected, engine.run(inputs)),)

    @cached_property
    def _others(self) -> tuple[Any, tuple[Any, ...]]:
        """A copy of the network with other parameters, and what it gives."""
        model = equality.with_other_parameters(self.network.model)
        if model is None:
            return None, ()
        return model, equality.host_copies(equality.outputs_of(model, self.network.inputs))

    def _worst_layer(self, contestant: Contestant, number: int) -> str:
        inputs = self._known[number][0]
        try:
            if number not in self._intermediates:
                network = replace(self.network, inputs=inputs)
                self._intermediates[number] = equality.chainer_intermediates(network)
            return equality.worst_layer(
                self._intermediates[number],
                contestant.engine.intermediates(inputs),
                self.network.layers,
                contestant.tolerance,
            )
        except Exception as error:  # the outputs differ, whether this can be told or not
            return f"the first differing layer is unknown ({_said(error)})"

    @staticmethod
    def _guarded(contestant: Contestant, work: Callable[[], None]) -> None:
        """Do something with an engine; where it fails, the engine is out."""
        try:
            work()
        except Exception as error:  # any engine may fail in any way: the others go on
            contestant.error = _said(error)

    # -- all engines in turn

    def _make_trials(self) -> None:
        """Rounds, in each of which every engine makes an untimed run and a block of timed ones."""
        begin_ns = self._now_ns()
        for number, first in enumerate(range(0, self.trials, self._block)):
            count = min(self._block, self.trials - first)
            running = self.running
            turn = number % len(running)
            for contestant in running[turn:] + running[:turn]:
                engine = contestant.engine
                block_of = getattr(engine, "block", nullcontext)
                try:
                    with block_of():
                        self._make_block(contestant, count, begin_ns)
                except Exception as error:  # as in _guarded
                    contestant.error = f"after {len(contestant.walls)} trials: {_said(error)}"
                    if contestant is self.contestants[0]:
                        raise ProfileError(f"{contestant.name}: {contestant.error}") from error
                if self.ended != COMPLETE:
                    return

    def _make_block(self, contestant: Contestant, count: int, begin_ns: int) -> None:
        """Trials of one engine in a round; fewer where the race is to end."""
        run, inputs, now_ns = contestant.engine.run, self.network.inputs, self._now_ns
        # The engine before has left the caches to its own arrays.
        run(inputs)
        for _ in range(count):
            start_ns = now_ns()
            run(inputs)
            wall_ns = now_ns() - start_ns
            contestant.starts.append(start_ns)
            contestant.walls.append(wall_ns)
            self._done += 1
            self._total_ns += wall_ns
            left = any(len(one.walls) < self.trials for one in self.running)
            if self._stops() or (left and self._time_is_over(begin_ns)):
                return
        if self.progress is not None:
            total = self.trials * len(self.running)
            self.progress(min(self._done, total), total, self._total_ns / self._done * NS)

    def _stops(self) -> bool:
        reason = self.stop() if self.stop else ""
        if reason:
            self.ended = reason
        return bool(reason)

    def _time_is_over(self, begin_ns: int) -> bool:
        over = self.max_seconds is not None and (self._now_ns() - begin_ns) * NS >= self.max_seconds
        if over:
            self.ended = TIME_LIMIT
        return over


def _said(error: Exception) -> str:
    """An exception in one line: an engine's own words, or what kind of error it is."""
    return " ".join(str(error).split()) if isinstance(error, ProfileError) else one_line(error)
