"""The memory pass of a training, in iterations that come anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import one_line
from chainer_profile.measure.memory import counter_for, tracing, use_of

if TYPE_CHECKING:
    from chainer_profile.measure.memory import Counter, Trace
    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.windows import Trial
    from chainer_profile.record.recording import MemoryUse

#: Iterations that are traced at most, until one of them is as the first one was.
TRIES = 3


class IterationMemory:
    """The memory pass of a training: an iteration that comes anyway is traced, none is repeated.

    Counting begins with the iteration before it, whose gradients and graph the traced one frees. A
    counter that fails ends the pass and raises nothing.

    Args:
        step: What an iteration runs.

    Attributes:
        is_on: Whether the next iteration is to be traced.
        use: What was found; None before that, or without success.
        problem: What went wrong for good, in words; or empty.
    """

    def __init__(self, step: Trial) -> None:
        self.is_on = False
        self.use: MemoryUse | None = None
        self.problem = ""
        self._step = step
        self._tries = TRIES
        self._counter: _Guarded | None = None
        self._counting = ExitStack()

    def begin(self) -> None:
        """Count from now on, until an iteration was traced."""
        try:
            self._counter = _Guarded(counter_for(self._step))
            self._counting.enter_context(self._counter.counting())
        except Exception as error:
            self.problem = f"memory cannot be counted: {one_line(error)}"
        else:
            self.is_on = True

    @contextmanager
    def tracing(self, structure: Structure, other: Callable[[], str]) -> Iterator[None]:
        """Within this a step runs: find what it allocates; try next time if it was another one.

        Args:
            structure: Its windows.
            other: Says after the step in what else it differed from the first one; or nothing.

        Raises:
            BaseException: Whatever the step raises; counting has then ended.
        """
        assert self._counter is not None
        self._tries -= 1
        try:
            with tracing(self._step, structure, self._counter) as trace:
                yield
        except BaseException:
            self.end()
            raise
        difference = trace.difference(structure) or other()
        if self._counter.failure:
            self.problem = f"memory cannot be counted: {self._counter.failure}"
        elif not difference:
            self._find(trace, structure)
        elif self._tries:
            return
        else:
            self.problem = f"no iteration for the memory pass in {TRIES}: {difference}"
        self.end()

    def end(self) -> None:
        """Count no more."""
        self.is_on = False
        try:
            self._counting.close()
        except Exception as error:
            self.problem = f"the counting of memory does not end: {one_line(error)}"

    def _find(self, trace: Trace, structure: Structure) -> None:
        try:
            self.use = use_of(trace, structure, self._step)
        except Exception as error:
            self.problem = f"the memory pass fails: {one_line(error)}"


class _Guarded:
    """A counter that raises nothing into the training: after a failure it reads zeros.

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
