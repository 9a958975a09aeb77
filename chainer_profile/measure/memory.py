"""The memory pass: bytes that each layer of a trial allocates, retains and needs at its peak.

On the CPU tracemalloc counts every allocation of Python, including Chainer's own objects (some
kilobytes a call), but none of a BLAS library. On a GPU a hook of CuPy's memory pool counts its
blocks. The memory of the previous trial, such as its gradients, is still allocated when a trial
begins. So ``cleargrads`` retains a negative number of bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import chainer
import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.arguments import arrays_in
from chainer_profile.measure.host_memory import HostCounter, no_collection
from chainer_profile.measure.passes import Pass, PassInput
from chainer_profile.measure.readings import Readings, ReadingSession, ReadTrial
from chainer_profile.measure.step import Step, TrialInfo
from chainer_profile.record.recording import MemoryUse, PhaseMemory

_OUTSIDE = -1
#: The pass takes about as long as this number of structure passes.
_STRUCTURE_PASSES = 4


class Counter(Protocol):
    """A counter of allocated bytes."""

    def counting(self) -> AbstractContextManager[None]:
        """Count allocations within the context."""

    def read(self) -> tuple[int, int]:
        """Allocated bytes at present, and at their peak since the previous read."""


class PoolCounter:
    """Counts the blocks that CuPy's memory pool allocates and frees."""

    def __init__(self, cupy: Any) -> None:
        self._now = self._peak = 0  # since the start: negative if older blocks are freed
        counter = self

        class PoolHook(cupy.cuda.MemoryHook):
            name = "chainer_profile.Memory"

            def malloc_postprocess(self, **kwargs: Any) -> None:
                if not kwargs["mem_ptr"]:
                    return  # a failed allocation
                counter._now += int(kwargs["mem_size"])
                counter._peak = max(counter._peak, counter._now)

            def free_postprocess(self, **kwargs: Any) -> None:
                counter._now -= int(kwargs["mem_size"])

        self._hook = PoolHook()

    @contextmanager
    def counting(self) -> Iterator[None]:
        with self._hook:
            yield

    def read(self) -> tuple[int, int]:
        peak, self._peak = self._peak, self._now
        return self._now, peak


def _is_cupy(module: Any) -> bool:
    return str(module.__name__).startswith("cupy")


def counter_of(arrays: list[Any]) -> Counter:
    """Make a counter for the device of these arrays."""
    xp = chainer.backend.get_array_module(*arrays)
    return PoolCounter(xp) if _is_cupy(xp) else HostCounter()


class IterationMemory:
    """Traces the memory of one iteration that the program makes anyway.

    Attributes:
        is_due: Whether an iteration should be traced, but counting has not begun.
        is_on: Whether allocations are counted.
        use: The use of memory in the traced iteration; None before, and after a failure.
        problem: Why memory was not counted; empty without a failure.
    """

    def __init__(self, trial: TrialInfo, is_due: bool = True) -> None:
        self.is_due, self.is_on = is_due, False
        self.use: MemoryUse | None = None
        self.problem = ""
        self._trial = trial
        self._counter: Counter | None = None
        self._counting = ExitStack()

    def begin(self, counter: Counter | None = None) -> None:
        """Count from now on until an iteration has been traced. A failure sets ``problem``."""
        self.is_due = False
        try:
            self._counter = counter or counter_of(
                [*_parameters(self._trial), *arrays_in(tuple(self._trial.inputs))]
            )
            self._counting.enter_context(self._counter.counting())
        except Exception as error:
            self.problem = f"memory cannot be counted: {one_line(error)}"
        else:
            self.is_on = True

    @contextmanager
    def tracing(self, session: ReadingSession) -> Iterator[None]:
        """Trace the iteration that runs within the context, and set ``use`` or ``problem``."""
        assert self._counter is not None
        readings = Readings(self._counter.read, 2, session.max_readings)
        # Cyclic garbage is collected before, but not during the iteration: objects that only the
        # collector frees count as retained.
        gc.collect()
        with ExitStack() as stack:
            stack.callback(self.end)
            with no_collection(), session.trial(readings):
                yield
            self._evaluate(readings, session)

    def end(self) -> None:
        """Stop counting."""
        self.is_on = False
        try:
            self._counting.close()
        except Exception as error:
            self.problem = f"counting memory could not be ended: {one_line(error)}"

    def pause(self) -> None:
        """Stop counting; if no iteration has been traced yet, a later one is due."""
        self.is_due = self.is_due or self.is_on
        self.end()

    def _evaluate(self, readings: Readings, session: ReadingSession) -> None:
        """Set ``use`` or ``problem`` from the readings of an iteration."""
        if readings.failure:
            self.problem = f"memory cannot be counted: {readings.failure}"
            return
        try:
            self.use = memory_use(session.result(readings), self._trial)
        except ProfileError as error:
            self.problem = str(error)
        except Exception as error:
            self.problem = f"the memory pass failed: {one_line(error)}"

    def use_of_rows(self, n_rows: int) -> MemoryUse | None:
        """Use of memory in the traced iteration, cut or extended by zeros to ``n_rows``."""
        use = self.use
        if use is None:
            return None
        # A trial that raised an exception may have rows that no profiled trial has.
        zeros = (0,) * (n_rows - len(use.peak_nbytes))
        layer = use.high_water_layer
        return replace(
            use,
            peak_nbytes=(use.peak_nbytes + zeros)[:n_rows],
            retained_nbytes=(use.retained_nbytes + zeros)[:n_rows],
            high_water_layer=None if layer is None or layer >= n_rows else layer,
        )


def measure_memory(
    step: Step, session: ReadingSession, n_rows: int, counter: Counter | None = None
) -> MemoryUse | None:
    """Run a step twice, and return what the ``n_rows`` rows of the second trial allocate.

    Raises:
        ProfileError: Memory cannot be counted.
    """
    memory = IterationMemory(step)
    memory.begin(counter)
    try:
        if memory.is_on:
            step()  # allocates the gradients and graph that the second trial frees
            with memory.tracing(session):
                step()
    finally:
        memory.end()
    if memory.problem:
        raise ProfileError(memory.problem)
    return memory.use_of_rows(n_rows)


def _measure(timed: PassInput) -> MemoryUse | None:
    if timed.left_s < _STRUCTURE_PASSES * timed.pass_s:
        return None
    session = ReadingSession(timed.session)
    return measure_memory(timed.step, session, len(timed.recording().layers))


MEMORY = Pass(
    "memory", _measure, "the memory pass failed ({}); it is left out", calls=_STRUCTURE_PASSES
)


def memory_use(trial: ReadTrial, info: TrialInfo) -> MemoryUse:
    """Evaluate the readings of a trial: memory of its rows and phases, and memory before it."""
    n_layers = len(trial.layers)
    # Bytes at each event, and at the peak since the event before, each (events,).
    now, peaks = trial.values.T
    peak_nbytes = [0] * n_layers
    for_backward: int | None = None
    for span in _outermost_spans(trial, now, peaks):
        if 0 <= span.owner < n_layers:
            peak_nbytes[span.owner] = max(peak_nbytes[span.owner], span.high - span.begin)
        elif span.owner >= n_layers and trial.phases[span.owner - n_layers] == "forward":
            # Count from the lowest point: a forward may free the graph of the iteration before.
            for_backward = max(for_backward or 0, span.end - span.low)
    highest = int(peaks[1:].argmax())
    highest_owner = int(trial.owners[highest])
    return MemoryUse(
        peak_nbytes=tuple(peak_nbytes),
        retained_nbytes=tuple(trial.sums(now)[:n_layers].tolist()),
        high_water_nbytes=int(peaks[highest + 1] - now[0]),
        high_water_layer=highest_owner if 0 <= highest_owner < n_layers else None,
        kept_for_backward_nbytes=for_backward,
        phases=tuple(_phases(trial, peaks[1:] - now[0], np.diff(now))),
        **_allocated_before(info),
    )


def _allocated_before(info: TrialInfo) -> dict[str, int]:
    """Bytes that are allocated before a trial, as fields of :class:`.MemoryUse`."""
    parameters, inputs = _parameters(info), _distinct(arrays_in(tuple(info.inputs)))
    params = [param for _, root in info.roots for param in root.params(include_uninit=False)]
    nbytes = {
        "parameter_nbytes": _nbytes(parameters),
        "input_nbytes": _nbytes(inputs),
        "gradient_nbytes": _nbytes(_distinct(param.grad for param in params)),
        "state_nbytes": _nbytes(_distinct(_state(params))),
    }
    xp = chainer.backend.get_array_module(*parameters, *inputs)
    if _is_cupy(xp):
        pool = xp.get_default_memory_pool()
        nbytes["pool_used_nbytes"] = int(pool.used_bytes())
        nbytes["pool_total_nbytes"] = int(pool.total_bytes())
    return nbytes


def _phases(
    trial: ReadTrial, highs: NDArray[np.int64], growth: NDArray[np.int64]
) -> Iterator[PhaseMemory]:
    """Yield the peak and the growth of every phase, in the order of their first rows.

    ``highs`` has the peak of each interval between two events, in bytes above the trial's begin.
    ``growth`` has the growth in each interval, in bytes.
    """
    columns = [*(layer.phase for layer in trial.layers), *trial.phases]
    names = list(dict.fromkeys(columns))
    # The last element is for intervals outside all phases, whose owner is -1.
    outside = 0 if len(names) == 1 and not trial.phases else _OUTSIDE
    phases = np.array([*map(names.index, columns), outside])[trial.owners[:-1]]
    for number, name in enumerate(names):
        in_phase = phases == number
        yield PhaseMemory(name, int(highs[in_phase].max()), int(growth[in_phase].sum()))


class _SpanMemory(NamedTuple):
    """The owner of a span, and the allocated bytes at its begin and end, at most and at least."""

    owner: int  # index of a row, then of a phase
    begin: int
    end: int
    high: int
    low: int  # at events, not between them


def _outermost_spans(
    trial: ReadTrial, now: NDArray[np.int64], peaks: NDArray[np.int64]
) -> Iterator[_SpanMemory]:
    """Yield the memory of each span that is not within another span of the same owner."""
    spans = trial.layout.spans
    owners = [context.owner for context in trial.layout.contexts]
    enclosing_owners: list[frozenset[int]] = []
    for span, parent in enumerate(spans.parents):
        outer = enclosing_owners[parent] if parent >= 0 else frozenset()
        enclosing_owners.append(outer | {owners[span]})
        if span == 0 or owners[span] in outer:
            continue
        begin, end = spans.begins[span], spans.ends[span]
        yield _SpanMemory(
            trial.column(owners[span]),
            int(now[begin]),
            int(now[end]),
            max(int(now[begin]), int(peaks[begin + 1 : end + 1].max(initial=0))),
            int(now[begin:end].min()),
        )


def _parameters(info: TrialInfo) -> list[Any]:
    """Arrays of the parameters and persistent values of a trial's networks, without gradients."""
    arrays: list[Any] = []
    for _, root in info.roots:
        for link in root.links():
            arrays += [param.array for param in link.params(include_uninit=False)]
            arrays += [getattr(link, name) for name in sorted(link._persistent)]
    return _distinct(arrays)


def _state(parameters: Iterable[Any]) -> Iterator[Any]:
    """Yield the optimizer's state of parameters, and their float32 copies in ``mixed16``."""
    for parameter in parameters:
        rule = parameter.update_rule
        if rule is not None:
            yield from (rule.state or {}).values()
            yield getattr(getattr(rule, "_fp32_param", None), "array", None)


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Arrays among values, each once."""
    return list({id(value): value for value in values if hasattr(value, "nbytes")}.values())


def _nbytes(arrays: list[Any]) -> int:
    return sum(int(value.nbytes) for value in arrays)
