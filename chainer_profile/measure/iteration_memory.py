"""The memory pass: of a run behind its trials, of a program in iterations that come anyway."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.memory import Reads, counter_for, measure_memory, use_of
from chainer_profile.measure.passes import Pass
from chainer_profile.measure.structure import Structure

if TYPE_CHECKING:
    from chainer_profile.measure.by_link import ByLink
    from chainer_profile.measure.link_recorder import LinkRecorder
    from chainer_profile.measure.memory import Counter
    from chainer_profile.measure.passes import Timed
    from chainer_profile.measure.windows import Step, Trial
    from chainer_profile.record.recording import MemoryUse

#: The pass takes about as long as so many structure passes.
_CALLS = 4
#: Reads that are kept beyond twice those of the iteration before.
_MORE_READS = 20_000


class IterationMemory:
    """Traces one iteration that comes anyway; none is repeated.

    Allocations are counted from the iteration before it on, whose gradients and graph the traced
    one frees. A counter that fails ends the pass and raises nothing.

    Args:
        trial: What an iteration is.

    Attributes:
        is_due: Whether no iteration was traced, and nothing speaks against it so far.
        is_on: Whether allocations are counted, so that the next iteration is to be traced.
        use: What was found; None before that, or without success.
        problem: What went wrong for good, in words; or empty.
    """

    def __init__(self, trial: Trial) -> None:
        self.is_due, self.is_on = True, False
        self.use: MemoryUse | None = None
        self.problem = ""
        self._trial = trial
        self._counter: _Guarded | None = None
        self._counting = ExitStack()

    def begin(self) -> None:
        """Count from now on, until an iteration was traced."""
        self.is_due = False
        try:
            self._counter = _Guarded(counter_for(self._trial))
            self._counting.enter_context(self._counter.counting())
        except Exception as error:
            self.problem = f"memory cannot be counted: {one_line(error)}"
        else:
            self.is_on = True

    @contextmanager
    def tracing(self, recorder: LinkRecorder) -> Iterator[None]:
        """Within this an iteration runs: find what its rows allocate."""
        assert self._counter is not None
        reads = Reads(self._counter, 2 * len(recorder.log) + _MORE_READS)
        gc.collect()
        with ExitStack() as stack:
            stack.callback(self.end)
            if gc.isenabled():
                gc.disable()
                stack.callback(gc.enable)
            with recorder.recording(reads.read):
                reads.read()
                yield
                recorder.close()
                reads.read()
            self._find(reads, recorder)

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

    def _find(self, reads: Reads, recorder: LinkRecorder) -> None:
        assert self._counter is not None
        if self._counter.failure:
            self.problem = f"memory cannot be counted: {self._counter.failure}"
            return
        if reads.count > len(reads.values):
            self.problem = "the iteration of the memory pass made many more calls than others"
            return
        rows = recorder.rows
        owners, enters = rows.owners(recorder.log)
        reads.trim([False, *enters.tolist(), False])
        layers = rows.layers()
        structure = Structure(layers, tuple(rows.phases), (), owners)
        try:
            self.use = use_of(reads, structure, self._trial)
        except Exception as error:
            self.problem = f"the memory pass fails: {one_line(error)}"

    def use_of_rows(self, n_rows: int) -> MemoryUse | None:
        """What was found, for so many rows: those that came later allocated nothing.

        Of a trial that raised there may be rows that no profiled one has.
        """
        use = self.use
        if use is None:
            return None
        more = (0,) * (n_rows - len(use.peak_nbytes))
        highest = use.high_water_layer
        return replace(
            use,
            peak_nbytes=(use.peak_nbytes + more)[:n_rows],
            retained_nbytes=(use.retained_nbytes + more)[:n_rows],
            high_water_layer=None if highest is None or highest >= n_rows else highest,
        )


class _Guarded:
    """A counter that raises nothing into the program: after a failure it reads zeros.

    Attributes:
        failure: Of the first failure, in words; or empty.
    """

    def __init__(self, counter: Counter) -> None:
        self.failure = ""
        self.counting = counter.counting
        self._counter = counter

    def read(self) -> tuple[int, int]:
        """Bytes that are allocated now, and the most since the last reset."""
        if not self.failure:
            try:
                return self._counter.read()
            except Exception as error:
                self.failure = one_line(error)
        return 0, 0

    def reset(self) -> None:
        """Let the peak be what is allocated now."""
        if not self.failure:
            try:
                self._counter.reset()
            except Exception as error:
                self.failure = one_line(error)


def _measure(timed: Timed) -> MemoryUse | None:
    if timed.left_s < _CALLS * timed.pass_s:
        return None
    if timed.structure is not None:
        return measure_memory(timed.step, timed.structure)
    assert timed.by_link is not None
    return _of_two_trials(timed.step, timed.by_link, len(timed.recording.layers))


def _of_two_trials(step: Step, by_link: ByLink, n_rows: int) -> MemoryUse | None:
    """Trace a trial by link, behind one in which allocations are counted."""
    memory = IterationMemory(step)
    with by_link.entries:
        memory.begin()
        try:
            step()
            if memory.is_on:
                with memory.tracing(by_link.recorder):
                    step()
        finally:
            memory.end()
    if memory.problem:
        raise ProfileError(memory.problem)
    return memory.use_of_rows(n_rows)


MEMORY = Pass("memory", _measure, "the memory pass fails ({}): left out", calls=_CALLS)
