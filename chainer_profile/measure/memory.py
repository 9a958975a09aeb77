"""The memory pass: what every layer of one trial allocates, keeps and needs at its peak.

The pass is one trial under a counter of allocated bytes, made after the timed trials, since
counting makes every allocation slower. On the CPU the counter is tracemalloc, which NumPy reports
its arrays to; on a GPU it is a hook of CuPy's memory pool. At each event the counter's value and
its peak since the event before are read, so every moment belongs to one row, as it does for time.

On the CPU all that Python allocates is counted: beside arrays also Chainer's own objects, variables
and nodes of the graph, up to a few kilobytes a call. What a BLAS library allocates for itself is
not seen. On a GPU only the pool's blocks are counted, which are multiples of 512 bytes. Reads go
into arrays made before: a function that does nothing shows some 300 bytes, those of its objects.

What the step before left, gradients and an optimizer's state, is there when the trial begins. So
``cleargrads`` retains a negative number, and the high water is beyond parameters, gradients and
state.

A training repeats no iteration for this: see :mod:`.iteration_memory`. What other
threads allocate, such as those of an iterator that loads ahead, counts for the row that runs
meanwhile.
"""

from __future__ import annotations

import gc
import tracemalloc
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import chainer
import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.arguments import arrays_in
from chainer_profile.measure.calls import BACKWARD
from chainer_profile.measure.hooks import EntryHook, watching
from chainer_profile.measure.windows import FORWARD
from chainer_profile.record.recording import MemoryUse, PhaseMemory

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from chainer_profile.measure.calls import Entry
    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.windows import Step, Trial

_OUTSIDE = -1


class Counter(Protocol):
    """Counts allocated bytes within ``counting()``."""

    def counting(self) -> AbstractContextManager[None]:
        """Within this, allocations are counted."""

    def read(self) -> tuple[int, int]:
        """Bytes that are allocated now, and the most since the last reset."""

    def reset(self) -> None:
        """Let the peak be what is allocated now."""


class HostCounter:
    """Counts by tracemalloc; what the user has traced before stays, but for its peak."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Trace, and stop it at the end unless it was on before."""
        was_on = tracemalloc.is_tracing()
        if not was_on:
            tracemalloc.start()
        try:
            yield
        finally:
            if not was_on:
                tracemalloc.stop()

    def read(self) -> tuple[int, int]:
        """Bytes that are allocated now, and the most since the last reset."""
        if not tracemalloc.is_tracing():
            raise ProfileError("tracemalloc was stopped meanwhile")
        return tracemalloc.get_traced_memory()

    def reset(self) -> None:
        """Let the peak be what is allocated now."""
        tracemalloc.reset_peak()


class PoolCounter:
    """Counts the blocks that CuPy's memory pool hands out and takes back.

    Bytes are counted from the begin of counting, so they may become negative.

    Args:
        cupy: The module.
    """

    def __init__(self, cupy: Any) -> None:
        self._now = 0
        self._peak = 0
        counter = self

        class PoolHook(cupy.cuda.MemoryHook):
            name = "chainer_profile.Memory"

            def malloc_postprocess(self, **kwargs: Any) -> None:
                if not kwargs["mem_ptr"]:
                    return  # it failed: nobody will free it
                counter._now += int(kwargs["mem_size"])
                counter._peak = max(counter._peak, counter._now)

            def free_postprocess(self, **kwargs: Any) -> None:
                counter._now -= int(kwargs["mem_size"])

        self._hook = PoolHook()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Within this, the hook is on."""
        with self._hook:
            yield

    def read(self) -> tuple[int, int]:
        """Bytes that are allocated now, and the most since the last reset."""
        return self._now, self._peak

    def reset(self) -> None:
        """Let the peak be what is allocated now."""
        self._peak = self._now


class Reads:
    """Reads of a counter, in arrays that are made before: one that grows would count for a row.

    Args:
        counter: What is read.
        most: Number of reads that are kept; those beyond are counted alone.

    Attributes:
        values: Bytes allocated at every read.
        peaks: The most since the read before.
        enters: Whether the read is at the begin of a window.
        count: Reads so far.
    """

    def __init__(self, counter: Counter, most: int) -> None:
        self.values = array("q", bytes(8 * most))
        self.peaks = array("q", bytes(8 * most))
        self.enters = bytearray(most)
        self.count = 0
        self._read, self._reset = counter.read, counter.reset

    def read(self, enters: bool = False) -> int:
        """Note an event; gives 0, for a log of times.

        What is alive while the peak is reset would count for the next one.
        """
        if self.count < len(self.values):
            self.values[self.count], self.peaks[self.count] = self._read()
            self.enters[self.count] = enters
        self.count += 1
        self._reset()
        return 0

    def trim(self, enters: list[bool]) -> None:
        """Keep the reads that were made, and know which of them begin windows."""
        del self.values[self.count :], self.peaks[self.count :]
        self.enters = bytearray(enters)


class Trace(Reads):
    """Reads of a counter at the begin of a trial, at each of its events, and at its end.

    Args:
        counter: What is read.
        n_events: Number of events of a trial.
    """

    def __init__(self, counter: Counter, n_events: int) -> None:
        super().__init__(counter, n_events + 2)
        # What each event entered. A list does not grow: that would count as a row's memory.
        self._entered: list[Entry | None] = [None] * (n_events + 2)
        self._is_backward = bytearray(n_events + 2)
        self._depth = 0
        self.hook = EntryHook(self.enter, self.leave)

    def enter(self, entry: Entry, backward: bool = False) -> None:
        """Note that a window begins: of a function, or another one."""
        if self.count < len(self.values):
            self._entered[self.count] = entry
            self._is_backward[self.count] = backward
        self._depth += 1
        self.read(True)

    def leave(self) -> None:
        """Note that one ends."""
        self._depth -= 1
        self.read()

    def position(self) -> int:
        """Number of the windows that are running."""
        return self._depth

    def running(self, position: int) -> int:
        """Of how many more windows it is within than it was."""
        return self._depth - position

    def is_of(self, structure: Structure) -> bool:
        """Whether the trial's windows are those of a structure."""
        if self.count != len(structure.owners) + 2:
            return False
        pairs = zip(self._entered, map(bool, self._is_backward), strict=True)
        seen = [(what, backward) for what, backward in pairs if what is not None]
        return seen == [(what, nbytes == BACKWARD) for what, nbytes in structure.windows]


def measure_memory(step: Step, structure: Structure, counter: Counter | None = None) -> MemoryUse:
    """Run a step twice, and say what the second one allocates.

    The first makes the gradients and so on that the second one frees. Cyclic garbage is collected
    between them, and not within the second: memory that only the collector frees counts as kept.
    """
    counter = counter or counter_for(step)
    trace = trace_memory(step, structure, counter)
    if not trace.is_of(structure):
        raise ProfileError("its trial made other calls than those before")
    return use_of(trace, structure, step)


def counter_for(step: Trial) -> Counter:
    """The counter of the device which a step's arrays are on."""
    return counter_of([*_parameters(step), *_inputs(step)])


def counter_of(arrays: list[Any]) -> Counter:
    """The counter of the device which these arrays are on."""
    xp = chainer.backend.get_array_module(*arrays)
    return PoolCounter(xp) if _is_cupy(xp) else HostCounter()


def trace_memory(step: Step, structure: Structure, counter: Counter) -> Trace:
    """Run a step twice, and read the counter at every event of the second."""
    with counter.counting():
        step()
        return trace_call(step, structure, counter)


def trace_call(step: Step, structure: Structure, counter: Counter) -> Trace:
    """Run a step once, and read the counter at every event; see :func:`tracing`."""
    with tracing(step, structure, counter) as trace:
        step()
    return trace


@contextmanager
def tracing(step: Trial, structure: Structure, counter: Counter) -> Iterator[Trace]:
    """Within this a step runs once, and the counter is read at every event.

    What the step frees is only known if it was counted when it was allocated: counting has to
    begin before the step that comes before this one.
    """
    trace = Trace(counter, len(structure.owners))
    gc.collect()
    with ExitStack() as stack:
        if gc.isenabled():
            gc.disable()
            stack.callback(gc.enable)
        stack.enter_context(watching(step, trace, structure.raising))
        trace.read()
        yield trace
        trace.read()


def use_of(trace: Reads, structure: Structure, step: Trial) -> MemoryUse:
    """What the reads of a step's trial say about its rows; see :func:`memory_use`."""
    parameters, inputs = _parameters(step), _inputs(step)
    use = memory_use(
        trace,
        structure,
        parameter_nbytes=_nbytes(parameters),
        input_nbytes=_nbytes(inputs),
    )
    found = [param for _, root in step.roots for param in root.params(include_uninit=False)]
    use = replace(
        use,
        gradient_nbytes=_nbytes(_distinct(param.grad for param in found)),
        state_nbytes=_nbytes(_distinct(_state(found))),
    )
    xp = chainer.backend.get_array_module(*parameters, *inputs)
    if not _is_cupy(xp):
        return use
    pool = xp.get_default_memory_pool()
    return replace(
        use, pool_used_nbytes=int(pool.used_bytes()), pool_total_nbytes=int(pool.total_bytes())
    )


def _is_cupy(module: Any) -> bool:
    return str(module.__name__).startswith("cupy")


def memory_use(
    trace: Reads, structure: Structure, *, parameter_nbytes: int, input_nbytes: int
) -> MemoryUse:
    """What the reads of a trial, which is one of a structure, say about its rows."""
    n_layers = len(structure.layers)
    # Whose is what passes between every two reads.
    owners = np.concatenate([[_OUTSIDE], structure.owners])
    peak_nbytes = [0] * n_layers
    kept: int | None = None
    for window in _windows(trace, owners):
        owner = window.owner
        if 0 <= owner < n_layers:
            peak_nbytes[owner] = max(peak_nbytes[owner], window.high - window.begin)
        elif owner >= n_layers and structure.phases[owner - n_layers] == FORWARD.phase:
            # The graph of the iteration before may be freed within it, and is no part of this.
            kept = max(kept or 0, window.end - window.low)
    retained = np.zeros(n_layers, np.int64)
    of_rows = (owners >= 0) & (owners < n_layers)
    np.add.at(retained, owners[of_rows], np.diff(_int64(trace.values))[of_rows])
    highest = int(_int64(trace.peaks)[1:].argmax())
    return MemoryUse(
        peak_nbytes=tuple(peak_nbytes),
        retained_nbytes=tuple(retained.tolist()),
        parameter_nbytes=parameter_nbytes,
        input_nbytes=input_nbytes,
        high_water_nbytes=trace.peaks[highest + 1] - trace.values[0],
        high_water_layer=int(owners[highest]) if of_rows[highest] else None,
        kept_for_backward_nbytes=kept,
        phases=tuple(_phases(trace, owners, structure)),
    )


def _phases(trace: Reads, owners: NDArray[np.intp], structure: Structure) -> Iterator[PhaseMemory]:
    """What every phase allocates, in the order of their first rows."""
    columns = [*(layer.phase for layer in structure.layers), *structure.phases]
    names = list(dict.fromkeys(columns))
    # The last one is of moments outside of all phases, whose owner is -1.
    outside = 0 if len(names) == 1 and not structure.phases else _OUTSIDE
    moments = np.array([*map(names.index, columns), outside])[owners]
    highs = _int64(trace.peaks)[1:] - trace.values[0]
    grown = np.diff(_int64(trace.values))
    for number, name in enumerate(names):
        of_phase = moments == number
        yield PhaseMemory(name, int(highs[of_phase].max()), int(grown[of_phase].sum()))


@dataclass
class _Window:
    """A window, and bytes that are allocated: at its begin and end, the most and the least.

    The least is that of the events, not of what is between them.
    """

    owner: int
    begin: int
    high: int
    low: int
    end: int = 0


def _windows(trace: Reads, owners: NDArray[np.intp]) -> Iterator[_Window]:
    """All windows; one within another of the same owner is a part of that one, and not given."""
    running: list[_Window] = []
    for event in range(1, len(trace.values) - 1):
        now = trace.values[event]
        if running:
            running[-1].high = max(running[-1].high, trace.peaks[event])
            running[-1].low = min(running[-1].low, now)
        if trace.enters[event]:
            running.append(_Window(int(owners[event]), now, now, now))
            continue
        window = running.pop()
        window.end = now
        if running:
            running[-1].high = max(running[-1].high, window.high)
            running[-1].low = min(running[-1].low, window.low)
        if all(window.owner != outer.owner for outer in running):
            yield window


def _int64(values: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(values, np.int64)


def _parameters(step: Trial) -> list[Any]:
    """Arrays of the parameters and the persistent values of a step's networks; no gradients."""
    arrays: list[Any] = []
    for _, root in step.roots:
        for link in root.links():
            arrays += [param.array for param in link.params(include_uninit=False)]
            arrays += [getattr(link, name) for name in sorted(link._persistent)]
    return _distinct(arrays)


def _state(parameters: Iterable[Any]) -> Iterator[Any]:
    """What an optimizer keeps for parameters; in mixed16 their float32 copies too."""
    for parameter in parameters:
        rule = parameter.update_rule
        if rule is not None:
            yield from (rule.state or {}).values()
            yield getattr(getattr(rule, "_fp32_param", None), "array", None)


def _inputs(step: Trial) -> list[Any]:
    """Arrays of a step's inputs."""
    return _distinct(arrays_in(tuple(step.inputs)))


def _distinct(values: Iterable[Any]) -> list[Any]:
    """The arrays among these, each once."""
    return list({id(value): value for value in values if hasattr(value, "nbytes")}.values())


def _nbytes(arrays: list[Any]) -> int:
    return sum(int(value.nbytes) for value in arrays)
