"""The memory pass: of a run behind its trials, of a program in iterations that come anyway."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chainer import FunctionHook

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.calls import BACKWARD
from chainer_profile.measure.hooks import kind_of, unique_name, watching
from chainer_profile.measure.memory import MemoryLog, counter_for, use_of
from chainer_profile.measure.passes import Pass

if TYPE_CHECKING:
    from chainer_profile.measure.calls import Entry
    from chainer_profile.measure.link_recorder import LinkRecorder
    from chainer_profile.measure.memory import Counter
    from chainer_profile.measure.passes import Timed
    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.windows import Step, Trial
    from chainer_profile.record.recording import MemoryUse

#: The pass takes about as long as so many structure passes.
_CALLS = 4
#: Reads that are kept beyond twice those of the iteration before.
_MORE_READS = 20_000


class ByCall:
    """Trials that make the calls of a structure."""

    def __init__(self, step: Trial, structure: Structure) -> None:
        self.most_reads = len(structure.owners) + 2
        self._step, self._structure = step, structure

    @contextmanager
    def recording(self, log: MemoryLog) -> Iterator[None]:
        """Within this a trial runs, whose windows the log is told of."""
        with watching(self._step, _Watch(log), self._structure.raising):
            log.now_ns()
            yield
            log.now_ns()

    def structure(self, log: MemoryLog) -> Structure:
        """The structure, where the trial's windows are its windows."""
        pairs = zip(log.entered, map(bool, log.backward), strict=False)
        seen = [(what, backward) for what, backward in pairs if what is not None]
        known = [(what, nbytes == BACKWARD) for what, nbytes in self._structure.windows]
        if log.count != self.most_reads or seen != known:
            raise ProfileError("its trial made other calls than those before")
        return self._structure


class _Watch(FunctionHook):
    """Tells a log of every window of a trial, where nothing that a clock's log notes is alive."""

    def __init__(self, log: MemoryLog) -> None:
        self.name = unique_name("Memory")
        self._log = log

    @property
    def hook(self) -> FunctionHook:
        """What is told of functions."""
        return self

    def enter(self, what: Entry, size: int | str = 0) -> None:
        """A window begins."""
        self._log.now_ns()
        self._log.extend((what, size))

    def leave(self) -> None:
        """It ends."""
        self._log.append(self._log.now_ns())

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        """A function begins."""
        self.enter(kind_of(function))

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        """It ends."""
        self.leave()

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """Its backward begins."""
        self.enter(kind_of(function), BACKWARD)

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """It ends."""
        self.leave()

    def position(self) -> int:
        """Number of the windows that are running."""
        return self._log.depth

    def running(self, position: int) -> int:
        """Of how many more windows it is within than it was."""
        return self._log.depth - position


class ByLinks:
    """Trials by link, whatever they call."""

    def __init__(self, recorder: LinkRecorder) -> None:
        self.most_reads = 2 * len(recorder.log) + _MORE_READS
        self._recorder = recorder

    @contextmanager
    def recording(self, log: MemoryLog) -> Iterator[None]:
        """Within this a trial runs, whose windows the log is told of."""
        with self._recorder.recording(log.now_ns, log):
            log.now_ns()
            yield
            self._recorder.close()
            log.now_ns()

    def structure(self, log: MemoryLog) -> Structure:
        """The rows that are known."""
        if log.is_full:
            raise ProfileError("its trial made many more calls than others")
        return self._recorder.rows.structure(log.items())


class IterationMemory:
    """Traces one iteration that comes anyway; none is repeated."""

    def __init__(self, trial: Trial) -> None:
        self.is_due, self.is_on = True, False
        self.use: MemoryUse | None = None
        self.problem = ""
        self._trial = trial
        self._counter: Counter | None = None
        self._counting = ExitStack()

    def begin(self, counter: Counter | None = None) -> None:
        """Count from now on, until an iteration was traced."""
        self.is_due = False
        try:
            self._counter = counter or counter_for(self._trial)
            self._counting.enter_context(self._counter.counting())
        except Exception as error:
            self.problem = f"memory cannot be counted: {one_line(error)}"
        else:
            self.is_on = True

    @contextmanager
    def tracing(self, traced: ByCall | ByLinks) -> Iterator[None]:
        """Within this an iteration runs: find what its rows allocate."""
        assert self._counter is not None
        log = MemoryLog(self._counter, traced.most_reads)
        # Cyclic garbage goes before, and not within: what only the collector frees counts as kept.
        gc.collect()
        with ExitStack() as stack:
            stack.callback(self.end)
            if gc.isenabled():
                gc.disable()
                stack.callback(gc.enable)
            with traced.recording(log):
                yield
            self._find(log, traced)

    def end(self) -> None:
        """Count no more."""
        self.is_on = False
        try:
            self._counting.close()
        except Exception as error:
            self.problem = f"the counting of memory does not end: {one_line(error)}"

    def pause(self) -> None:
        """Count no more; where no iteration was traced, another one begins anew."""
        self.is_due = self.is_due or self.is_on
        self.end()

    def _find(self, log: MemoryLog, traced: ByCall | ByLinks) -> None:
        if log.failure:
            self.problem = f"memory cannot be counted: {log.failure}"
            return
        try:
            structure = traced.structure(log)
            log.trim()
            self.use = use_of(log, structure, self._trial)
        except ProfileError as error:
            self.problem = str(error)
        except Exception as error:
            self.problem = f"the memory pass fails: {one_line(error)}"

    def use_of_rows(self, n_rows: int) -> MemoryUse | None:
        """What was found, for so many rows: those that came later allocated nothing."""
        use = self.use
        if use is None:
            return None
        # Of a trial that raised there may be rows that no profiled one has.
        more = (0,) * (n_rows - len(use.peak_nbytes))
        highest = use.high_water_layer
        return replace(
            use,
            peak_nbytes=(use.peak_nbytes + more)[:n_rows],
            retained_nbytes=(use.retained_nbytes + more)[:n_rows],
            high_water_layer=None if highest is None or highest >= n_rows else highest,
        )


def measure_memory(
    step: Step, traced: ByCall | ByLinks, n_rows: int, counter: Counter | None = None
) -> MemoryUse | None:
    """Run a step twice, and say what the second trial allocates, for so many rows."""
    memory = IterationMemory(step)
    memory.begin(counter)
    try:
        if memory.is_on:
            step()  # makes the gradients and so on that the next one frees
            with memory.tracing(traced):
                step()
    finally:
        memory.end()
    if memory.problem:
        raise ProfileError(memory.problem)
    return memory.use_of_rows(n_rows)


def _measure(timed: Timed) -> MemoryUse | None:
    if timed.left_s < _CALLS * timed.pass_s:
        return None
    n_rows = len(timed.recording.layers)
    if timed.structure is not None:
        return measure_memory(timed.step, ByCall(timed.step, timed.structure), n_rows)
    assert timed.by_link is not None
    with timed.by_link.entries:
        return measure_memory(timed.step, ByLinks(timed.by_link.recorder), n_rows)


MEMORY = Pass("memory", _measure, "the memory pass fails ({}): left out", calls=_CALLS)
