"""What every layer of one trial allocates, keeps and needs at its peak.

On the CPU tracemalloc counts all that Python allocates, Chainer's own objects too (some kilobytes a
call), and nothing that a BLAS library takes; on a GPU a hook of CuPy's pool counts its blocks. What
the step before left is there when the trial begins: ``cleargrads`` retains a negative number.
"""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import chainer
import numpy as np

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.arguments import arrays_in
from chainer_profile.measure.calls import BACKWARD
from chainer_profile.measure.windows import FORWARD
from chainer_profile.record.recording import MemoryUse, PhaseMemory

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.windows import Trial

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
    """Counts the blocks that CuPy's memory pool hands out and takes back."""

    def __init__(self, cupy: Any) -> None:
        self._now = self._peak = 0  # from the begin of counting: they may become negative
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


class MemoryLog:
    """A recorder's clock and its log: a counter is read at every window that begins or ends."""

    def __init__(self, counter: Counter, most: int) -> None:
        # All is made before: a log that grows would count for a row.
        self.values = array("q", bytes(8 * most))
        self.peaks = array("q", bytes(8 * most))  # since the read before
        self.entered: list[Any] = [None] * most
        self.backward = bytearray(most)
        self.count = self.depth = 0
        self.failure = ""  # of the counter, which is not read again
        self._read, self._reset = counter.read, counter.reset

    def now_ns(self) -> int:
        """Read the counter; gives 0, for a log of times. Raises nothing into the program."""
        if not self.failure:
            try:
                if self.count < len(self.values):
                    self.values[self.count], self.peaks[self.count] = self._read()
                self._reset()
            except Exception as error:
                self.failure = one_line(error)
        self.count += 1
        return 0

    def extend(self, items: tuple[Any, ...]) -> None:
        """Note what was entered at the last read."""
        if self.count <= len(self.values):
            self.entered[self.count - 1] = items[0]
            self.backward[self.count - 1] = items[1] == BACKWARD
        self.depth += 1

    def append(self, now_ns: int) -> None:
        """Note that a window was left."""
        self.depth -= 1

    def items(self) -> Iterator[Any]:
        """The same as a log of times by link; the first and the last read are no window's."""
        for entered in self.entered[1 : self.count - 1]:
            if entered is not None:
                yield entered
            yield 0

    def __len__(self) -> int:
        return self.count

    @property
    def is_full(self) -> bool:
        """Whether reads were not kept."""
        return self.count > len(self.values)

    def trim(self) -> None:
        """Keep no room for more reads."""
        del self.values[self.count :], self.peaks[self.count :], self.entered[self.count :]


def counter_of(arrays: list[Any]) -> Counter:
    """The counter of the device which these arrays are on."""
    xp = chainer.backend.get_array_module(*arrays)
    return PoolCounter(xp) if _is_cupy(xp) else HostCounter()


def counter_for(step: Trial) -> Counter:
    """The counter of the device which a step's arrays are on."""
    return counter_of([*_parameters(step), *_inputs(step)])


def use_of(log: MemoryLog, structure: Structure, step: Trial) -> MemoryUse:
    """What the reads of a step's trial say about its rows; see :func:`memory_use`."""
    parameters, inputs = _parameters(step), _inputs(step)
    use = memory_use(
        log,
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
    log: MemoryLog, structure: Structure, *, parameter_nbytes: int, input_nbytes: int
) -> MemoryUse:
    """What the reads of a trial, which is one of a structure, say about its rows."""
    n_layers = len(structure.layers)
    # Whose is what passes between every two reads.
    owners = np.concatenate([[_OUTSIDE], structure.owners])
    peak_nbytes = [0] * n_layers
    kept: int | None = None
    for window in _windows(log, owners):
        owner = window.owner
        if 0 <= owner < n_layers:
            peak_nbytes[owner] = max(peak_nbytes[owner], window.high - window.begin)
        elif owner >= n_layers and structure.phases[owner - n_layers] == FORWARD.phase:
            # The graph of the iteration before may be freed within it, and is no part of this.
            kept = max(kept or 0, window.end - window.low)
    retained = np.zeros(n_layers, np.int64)
    of_rows = (owners >= 0) & (owners < n_layers)
    np.add.at(retained, owners[of_rows], np.diff(_int64(log.values))[of_rows])
    highest = int(_int64(log.peaks)[1:].argmax())
    return MemoryUse(
        peak_nbytes=tuple(peak_nbytes),
        retained_nbytes=tuple(retained.tolist()),
        parameter_nbytes=parameter_nbytes,
        input_nbytes=input_nbytes,
        high_water_nbytes=log.peaks[highest + 1] - log.values[0],
        high_water_layer=int(owners[highest]) if of_rows[highest] else None,
        kept_for_backward_nbytes=kept,
        phases=tuple(_phases(log, owners, structure)),
    )


def _phases(
    log: MemoryLog, owners: NDArray[np.intp], structure: Structure
) -> Iterator[PhaseMemory]:
    """What every phase allocates, in the order of their first rows."""
    columns = [*(layer.phase for layer in structure.layers), *structure.phases]
    names = list(dict.fromkeys(columns))
    # The last one is of moments outside of all phases, whose owner is -1.
    outside = 0 if len(names) == 1 and not structure.phases else _OUTSIDE
    moments = np.array([*map(names.index, columns), outside])[owners]
    highs = _int64(log.peaks)[1:] - log.values[0]
    grown = np.diff(_int64(log.values))
    for number, name in enumerate(names):
        of_phase = moments == number
        yield PhaseMemory(name, int(highs[of_phase].max()), int(grown[of_phase].sum()))


@dataclass
class _Window:
    """A window, and bytes that are allocated: at its begin and end, the most and the least."""

    owner: int
    begin: int
    high: int
    low: int  # at events, not between them
    end: int = 0


def _windows(log: MemoryLog, owners: NDArray[np.intp]) -> Iterator[_Window]:
    """All windows; one within another of the same owner is a part of that one, and not given."""
    running: list[_Window] = []
    for event in range(1, len(log.values) - 1):
        now = log.values[event]
        if running:
            running[-1].high = max(running[-1].high, log.peaks[event])
            running[-1].low = min(running[-1].low, now)
        if log.entered[event] is not None:
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
