"""A race of engines: prepares each one, compares its outputs, and runs interleaved trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import chainer
import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.free_memory import MemoryGrowth
from chainer_profile.engines import equality
from chainer_profile.engines.catalogue import BASELINE, ENGINES, entry_of, find_engine
from chainer_profile.engines.protocol import Engine, EngineError, EngineProfile, Network
from chainer_profile.engines.results import EngineResult, trials_in_a_round
from chainer_profile.measure.clock import HOST_CLOCK, WARMUP_SECONDS, Clock
from chainer_profile.measure.trials import Progress, Stop
from chainer_profile.record.recording import COMPLETE, TIME_LIMIT

#: Longest time in which one engine times its nodes, in seconds.
MAX_LAYERS_S = 10.0


@dataclass(eq=False, kw_only=True)
class Contestant(EngineResult):
    """An engine with its results so far. An engine with an error leaves the race."""

    engine: Any  #: None for an engine that cannot run here.
    #: Makes another engine of this kind, for a copy of the network with other parameters.
    make: Callable[[], Engine] | None = None
    file: Path | None = None  #: The file to load, if the engine does not prepare the network.
    start_ns: list[int] = field(default_factory=list)  #: Start of each trial.
    wall_ns: list[int] = field(default_factory=list)  #: Duration of each trial.
    profile: EngineProfile | None = None


def make_contestants(names: Sequence[str] | None) -> list[Contestant]:
    """Make engines by their names, Chainer first. Default: all engines of the catalogue."""
    contestants: list[Contestant] = []
    for name in dict.fromkeys([BASELINE, *(ENGINES if names is None else names)]):
        entry = entry_of(name)
        if entry is None:
            engine = find_engine(name)
            short_name = str(getattr(engine, "name", "")) or name
            is_used = short_name in {*ENGINES, *(other.name for other in contestants)}
            contestant = Contestant(
                name=name if is_used else short_name, engine=engine, make=type(engine)
            )
        elif reason := entry.why_unavailable():
            contestant = Contestant(name=name, engine=None, error=reason, install=entry.install)
        else:
            contestant = Contestant(name=name, engine=entry.make(), make=entry.make)
        contestants.append(contestant)
    return contestants


def load_from(file: Path, contestants: Sequence[Contestant]) -> None:
    """Let the only engine that can load files load this one; raise UsageError without such one."""
    loading = [contestant for contestant in contestants if hasattr(contestant.engine, "load")]
    if not loading:
        raise UsageError(f"--load-engine {file}: none of the engines of this run has files")
    if len(loading) > 1:
        names = " or ".join(contestant.name for contestant in loading)
        raise UsageError(
            f"--load-engine {file} could be for {names}: name one of them with --engines"
        )
    loading[0].file = file


@dataclass(frozen=True, eq=False)
class _Case:
    """Inputs on which engines are compared with Chainer."""

    inputs: tuple[Any, ...]
    copies: tuple[Any, ...]  #: Copies of the inputs on the host.
    outputs: tuple[Any, ...]  #: Chainer's outputs on the host.


@dataclass(eq=False)
class Race:
    """A race. The first contestant is Chainer, the reference for the outputs of the others."""

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
        for contestant in self.contestants:
            contestant.block = self._block
            contestant.tolerance = equality.TOLERANCE if self.tolerance is None else self.tolerance
        self._now_ns = self.clock.now_ns
        self._n_trials, self._total_ns = 0, 0
        self._cases: list[_Case] = []

    @property
    def running(self) -> list[Contestant]:
        return [contestant for contestant in self.contestants if not contestant.error]

    def run(self) -> None:
        """Prepare the engines, compare their outputs, run the trials, and compare again.

        Raises:
            ProfileError: Chainer itself fails.
        """
        for contestant in self.running:
            if self._stops():
                return
            with _record_error(contestant):
                self._prepare(contestant)
            self._require_chainer()
        if not self._stops():
            try:
                self._run_trials()
            finally:
                for contestant in self.contestants:
                    contestant.clean_ns = np.array(contestant.wall_ns, np.int64)
        for contestant in self.running:
            # Trials may change the outputs of a faulty engine.
            if contestant.wall_ns:
                with _record_error(contestant):
                    self._compare(contestant, self._cases[0])

    def profile_nodes(self, trials: int, *, max_seconds: float = MAX_LAYERS_S) -> None:
        """Time the nodes of every engine; add a note to an engine that cannot do this."""
        for contestant in self.running:
            if not contestant.wall_ns or self._stops():
                continue
            median_s = float(np.median(contestant.clean_ns)) * NS
            count = max(1, min(trials, int(max_seconds / median_s) if median_s else trials))
            try:
                contestant.profile = contestant.engine.layers(self.network.inputs, count)
            except Exception as error:  # from the engine's code; its other times stay valid
                contestant.add_note(f"no node times: {_describe_error(error)}")
            else:
                if contestant.profile is None:
                    contestant.add_note("it does not report the times of its nodes")

    def _require_chainer(self) -> None:
        chainers = self.contestants[0]
        if chainers.error:
            raise ProfileError(f"{chainers.name}: {chainers.error}")

    # -- before the trials

    def _prepare(self, contestant: Contestant) -> None:
        """Prepare an engine, compare its outputs with Chainer's, and warm it up."""
        is_baseline = contestant is self.contestants[0]
        growth = MemoryGrowth()
        engine, begin_ns = contestant.engine, self._now_ns()
        if contestant.file is None:
            engine.prepare(self.network)
        else:
            engine.load(self.network, contestant.file)
        contestant.prepare_s = (self._now_ns() - begin_ns) * NS
        contestant.version = str(getattr(engine, "version", contestant.version) or "")
        contestant.add_note(str(getattr(engine, "note", "")))
        if is_baseline:
            for inputs in (self.network.inputs, equality.other_inputs(self.network.inputs)):
                copies = equality.host_copies(inputs)
                outputs = equality.host_copies(engine.run(inputs))
                self._cases.append(_Case(inputs, copies, outputs))
        for case in self._cases:
            self._compare(contestant, case)
        if contestant.wrong and contestant.file is not None:
            _refuse_other_weights(contestant, contestant.file)
        if is_baseline and contestant.wrong:
            raise EngineError(
                "the network returns different outputs for the same input (for example, it draws "
                "random numbers in test mode), so no engine can be compared with it"
            )
        if contestant.make is not None and contestant.file is None and not is_baseline:
            self._compare_other_parameters(contestant, contestant.make())
        growth.settle()
        begin_ns = self._now_ns()
        for _ in range(self.warmups):
            engine.run(self.network.inputs)
            if (self._now_ns() - begin_ns) * NS >= WARMUP_SECONDS:
                break
        if self.warmups and not self.network.gpu:
            contestant.memory_nbytes = growth.nbytes()

    def _compare(self, contestant: Contestant, case: _Case) -> None:
        """Compare an engine's outputs for one case; if they are wrong, find the first wrong layer.

        Raises EngineError if the engine changes its input.
        """
        outputs = equality.host_copies(contestant.engine.run(case.inputs))
        for array, copy in zip(case.inputs, case.copies, strict=True):
            (now,) = equality.host_copies((array,))
            if not np.array_equal(now, copy, equal_nan=copy.dtype.kind in "fc"):
                array[...] = chainer.backend.get_array_module(array).asarray(copy)
                raise EngineError("changes its input")
        difference = equality.difference(case.outputs, outputs)
        contestant.differences += (difference,)
        is_wrong = not difference.relative <= contestant.tolerance
        if is_wrong and not contestant.worst_layer and hasattr(contestant.engine, "intermediates"):
            try:
                contestant.worst_layer = equality.worst_layer(
                    equality.chainer_intermediates(replace(self.network, inputs=case.inputs)),
                    contestant.engine.intermediates(case.inputs),
                    self.network.layers,
                    contestant.tolerance,
                )
            except Exception as error:  # any kind; the difference itself is known
                reason = f"the first differing layer is unknown ({_describe_error(error)})"
                contestant.worst_layer = reason

    def _compare_other_parameters(self, contestant: Contestant, engine: Engine) -> None:
        """Compare another engine of the same kind on a network with other parameters."""
        model, outputs = self._with_other_parameters
        if model is not None:
            engine.prepare(replace(self.network, model=model))
            got = engine.run(self.network.inputs)
            contestant.differences += (equality.difference(outputs, got),)

    @cached_property
    def _with_other_parameters(self) -> tuple[Any, tuple[Any, ...]]:
        """A copy of the network with other parameters, and its outputs.

        None and () if no parameter is constant.
        """
        model = equality.with_other_parameters(self.network.model)
        if model is None:
            return None, ()
        return model, equality.host_copies(equality.outputs_of(model, self.network.inputs))

    # -- trials

    def _run_trials(self) -> None:
        """Run rounds. In each, every engine has an untimed run and a block of trials."""
        begin_ns = self._now_ns()
        for number, first in enumerate(range(0, self.trials, self._block)):
            count = min(self._block, self.trials - first)
            running = self.running
            turn = number % len(running)
            for contestant in running[turn:] + running[:turn]:
                block = getattr(contestant.engine, "block", nullcontext)
                with _record_error(contestant, in_trials=True), block():
                    self._run_block(contestant, count, begin_ns)
                self._require_chainer()
                if self.ended != COMPLETE:
                    return

    def _run_block(self, contestant: Contestant, count: int, begin_ns: int) -> None:
        """Run an engine's trials of a round; fewer if the race ends."""
        run, inputs, now_ns = contestant.engine.run, self.network.inputs, self._now_ns
        run(inputs)  # untimed, because the caches contain arrays of the previous engine
        for _ in range(count):
            start_ns = now_ns()
            run(inputs)
            wall_ns = now_ns() - start_ns
            contestant.start_ns.append(start_ns)
            contestant.wall_ns.append(wall_ns)
            self._n_trials += 1
            self._total_ns += wall_ns
            is_last = all(len(other.wall_ns) >= self.trials for other in self.running)
            limit_s = math.inf if is_last or self.max_seconds is None else self.max_seconds
            if self._stops((now_ns() - begin_ns) * NS >= limit_s):
                return
        if self.progress is not None:
            total = self.trials * len(self.running)
            mean_s = self._total_ns / self._n_trials * NS
            self.progress(min(self._n_trials, total), total, mean_s)

    def _stops(self, time_is_over: bool = False) -> bool:
        """Check whether the race must end, and store the reason."""
        reason = (self.stop() if self.stop else "") or TIME_LIMIT * time_is_over
        self.ended = reason or self.ended
        return bool(reason)


def _refuse_other_weights(contestant: Contestant, file: Path) -> None:
    """Raise EngineError if an engine's outputs are wrong because the file has other weights."""
    path = getattr(contestant.engine, "other_weights", str)()
    if path:
        contestant.differences = ()
        raise EngineError(
            f"the weights in {file} are not the network's (the first to differ is {path}): give "
            "--weights, or --seed, as for export"
        )


@contextmanager
def _record_error(contestant: Contestant, in_trials: bool = False) -> Iterator[None]:
    """Store any error in the contestant, which then leaves the race."""
    try:
        yield
    except Exception as error:
        after = f"after {len(contestant.wall_ns)} trials: " if in_trials else ""
        contestant.error = after + _describe_error(error)


def _describe_error(error: Exception) -> str:
    """Format an exception in one line, without its type if it is a ProfileError."""
    return " ".join(str(error).split()) if isinstance(error, ProfileError) else one_line(error)
