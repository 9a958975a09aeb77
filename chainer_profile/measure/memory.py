"""The memory pass: bytes that each layer of a trial allocates, retains and needs at its peak.

On the CPU tracemalloc counts every allocation of Python, including Chainer's own objects (some
kilobytes a call), but none of a BLAS library. On a GPU a hook of CuPy's memory pool counts its
blocks. Memory that the trial before left is allocated at the start, so ``cleargrads`` retains a
negative number of bytes.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import chainer
import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.arguments import arrays_in
from chainer_profile.measure.owned import Owned
from chainer_profile.measure.passes import Pass, Timed
from chainer_profile.measure.readings import Readings, ReadTrials
from chainer_profile.measure.windows import FORWARD, Step, Trial
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


class HostCounter:
    """Counts with tracemalloc. If the user traces already, only the peak is reset."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Trace within the context, and then stop unless tracing was on before."""
        was_on = tracemalloc.is_tracing()
        if not was_on:
            tracemalloc.start()
        try:
            yield
        finally:
            if not was_on:
                tracemalloc.stop()

    def read(self) -> tuple[int, int]:
        if not tracemalloc.is_tracing():
            raise ProfileError("the program stopped tracemalloc")
        now_and_peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        return now_and_peak


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
    """Traces the memory of one iteration that the program makes anyway."""

    def __init__(self, trial: Trial, is_due: bool = True) -> None:
        self.is_due, self.is_on = is_due, False
        self.use: MemoryUse | None = None
        self.problem = ""
        self._trial = trial
        self._counter: Counter | None = None
        self._counting = ExitStack()

    def begin(self, counter: Counter | None = None) -> None:
        """Count from now on until an iteration has been traced."""
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
    def tracing(self, traced: ReadTrials) -> Iterator[None]:
        """Find what the rows of an iteration allocate that runs within the context."""
        assert self._counter is not None
        log = Readings(self._counter.read, 2, traced.most_reads)
        # Cyclic garbage is collected before, but not during the iteration: objects that only the
        # collector frees count as retained.
        gc.collect()
        with ExitStack() as stack:
            stack.callback(self.end)
            if gc.isenabled():
                gc.disable()
                stack.callback(gc.enable)
            with traced.recording(log):
                yield
            self._evaluate(log, traced)

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

    def _evaluate(self, log: Readings, traced: ReadTrials) -> None:
        """Set the use of memory, or the problem that prevents it."""
        if log.failure:
            self.problem = f"memory cannot be counted: {log.failure}"
            return
        try:
            self.use = use_of(log, traced.owned(log), self._trial)
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
    step: Step, traced: ReadTrials, n_rows: int, counter: Counter | None = None
) -> MemoryUse | None:
    """Run a step twice, and return what the ``n_rows`` rows of the second trial allocate."""
    memory = IterationMemory(step)
    memory.begin(counter)
    try:
        if memory.is_on:
            step()  # allocates the gradients and graph that the second trial frees
            with memory.tracing(traced):
                step()
    finally:
        memory.end()
    if memory.problem:
        raise ProfileError(memory.problem)
    return memory.use_of_rows(n_rows)


def _measure(timed: Timed) -> MemoryUse | None:
    if timed.left_s < _STRUCTURE_PASSES * timed.pass_s:
        return None
    traced = ReadTrials(timed.tape, timed.entries)
    with traced.entries:
        return measure_memory(timed.step, traced, len(timed.recording.layers))


MEMORY = Pass(
    "memory", _measure, "the memory pass failed ({}); it is left out", calls=_STRUCTURE_PASSES
)


def use_of(log: Readings, owned: Owned, step: Trial) -> MemoryUse:
    """Evaluate the reads of a trial: memory of its rows and phases, and memory before the trial."""
    n_layers = len(owned.layers)
    # Bytes at each read, and at the peak since the read before, each (reads,).
    now, peaks = log.values[: log.count].T
    # The row between every two reads.
    owners = owned.owners[:-1]
    peak_nbytes = [0] * n_layers
    kept: int | None = None
    for window in _windows(log, owners):
        owner = window.owner
        if 0 <= owner < n_layers:
            peak_nbytes[owner] = max(peak_nbytes[owner], window.high - window.begin)
        elif owner >= n_layers and owned.phases[owner - n_layers] == FORWARD.phase:
            # Count from the lowest point: a forward may free the graph of the iteration before.
            kept = max(kept or 0, window.end - window.low)
    highest = int(peaks[1:].argmax())
    highest_owner = int(owners[highest])
    return MemoryUse(
        peak_nbytes=tuple(peak_nbytes),
        retained_nbytes=tuple(owned.sums(now)[:n_layers].tolist()),
        high_water_nbytes=int(peaks[highest + 1] - now[0]),
        high_water_layer=highest_owner if 0 <= highest_owner < n_layers else None,
        kept_for_backward_nbytes=kept,
        phases=tuple(_phases(peaks[1:] - now[0], np.diff(now), owners, owned)),
        **_allocated_before(step),
    )


def _allocated_before(step: Trial) -> dict[str, int]:
    """Bytes that are allocated before a trial, as fields of :class:`.MemoryUse`."""
    parameters, inputs = _parameters(step), _distinct(arrays_in(tuple(step.inputs)))
    params = [param for _, root in step.roots for param in root.params(include_uninit=False)]
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
    highs: NDArray[np.int64],
    growth: NDArray[np.int64],
    owners: NDArray[np.intp],
    owned: Owned,
) -> Iterator[PhaseMemory]:
    """Peak and growth of every phase, in the order of their first rows.

    ``highs``, ``growth`` and ``owners`` have a value for every interval between two reads.
    """
    columns = [*(layer.phase for layer in owned.layers), *owned.phases]
    names = list(dict.fromkeys(columns))
    # The last element is for intervals outside all phases, whose owner is -1.
    outside = 0 if len(names) == 1 and not owned.phases else _OUTSIDE
    phases = np.array([*map(names.index, columns), outside])[owners]
    for number, name in enumerate(names):
        in_phase = phases == number
        yield PhaseMemory(name, int(highs[in_phase].max()), int(growth[in_phase].sum()))


@dataclass
class _Window:
    """A call, and the bytes that are allocated during it."""

    owner: int  # its row
    begin: int
    high: int
    low: int  # at reads only, not between them
    end: int = 0


def _windows(log: Readings, owners: NDArray[np.intp]) -> Iterator[_Window]:
    """All calls except calls that are nested in another one of the same row."""
    running: list[_Window] = []
    codes = log.codes.tolist()
    for event, (now, peak) in enumerate(log.values[1 : log.count - 1].tolist(), 1):
        if running:
            running[-1].high = max(running[-1].high, peak)
            running[-1].low = min(running[-1].low, now)
        if codes[event] >= 0:
            running.append(_Window(int(owners[event]), now, now, now))
            continue
        window = running.pop()
        window.end = now
        if running:
            running[-1].high = max(running[-1].high, window.high)
            running[-1].low = min(running[-1].low, window.low)
        if all(window.owner != outer.owner for outer in running):
            yield window


def _parameters(step: Trial) -> list[Any]:
    """Arrays of the parameters and persistent values of a step's networks, without gradients."""
    arrays: list[Any] = []
    for _, root in step.roots:
        for link in root.links():
            arrays += [param.array for param in link.params(include_uninit=False)]
            arrays += [getattr(link, name) for name in sorted(link._persistent)]
    return _distinct(arrays)


def _state(parameters: Iterable[Any]) -> Iterator[Any]:
    """An optimizer's state of parameters, and their float32 copies in ``mixed16``."""
    for parameter in parameters:
        rule = parameter.update_rule
        if rule is not None:
            yield from (rule.state or {}).values()
            yield getattr(getattr(rule, "_fp32_param", None), "array", None)


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({id(value): value for value in values if hasattr(value, "nbytes")}.values())


def _nbytes(arrays: list[Any]) -> int:
    return sum(int(value.nbytes) for value in arrays)
