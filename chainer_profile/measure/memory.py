"""The memory pass: what every layer of one trial allocates, keeps and needs at its peak.

On the CPU tracemalloc counts all that Python allocates, Chainer's own objects too (some kilobytes a
call), and nothing that a BLAS library takes; on a GPU a hook of CuPy's pool counts its blocks. What
the step before left is there when the trial begins: ``cleargrads`` retains a negative number.
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
from chainer_profile.measure.passes import Pass, Timed
from chainer_profile.measure.readings import Readings, ReadingSession, ReadTrial
from chainer_profile.measure.step import Step, TrialInfo
from chainer_profile.record.recording import MemoryUse, PhaseMemory

_OUTSIDE = -1
#: The pass takes about as long as so many structure passes.
_STRUCTURE_PASSES = 4


class Counter(Protocol):
    """Counts allocated bytes within ``counting()``."""

    def counting(self) -> AbstractContextManager[None]:
        """Within this, allocations are counted."""

    def read(self) -> tuple[int, int]:
        """Bytes that are allocated now, and the most since the read before."""


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
        with self._hook:
            yield

    def read(self) -> tuple[int, int]:
        peak, self._peak = self._peak, self._now
        return self._now, peak


def _is_cupy(module: Any) -> bool:
    return str(module.__name__).startswith("cupy")


def counter_of(arrays: list[Any]) -> Counter:
    xp = chainer.backend.get_array_module(*arrays)
    return PoolCounter(xp) if _is_cupy(xp) else HostCounter()


class IterationMemory:
    """Traces one iteration that comes anyway; none is repeated."""

    def __init__(self, trial: TrialInfo, is_due: bool = True) -> None:
        self.is_due, self.is_on = is_due, False
        self.use: MemoryUse | None = None
        self.problem = ""
        self._trial = trial
        self._counter: Counter | None = None
        self._counting = ExitStack()

    def begin(self, counter: Counter | None = None) -> None:
        """Count from now on, until an iteration was traced."""
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
        """Within this an iteration runs: find what its rows allocate."""
        assert self._counter is not None
        readings = Readings(self._counter.read, 2, session.max_readings)
        # Cyclic garbage goes before, and not within: what only the collector frees counts as kept.
        gc.collect()
        with ExitStack() as stack:
            stack.callback(self.end)
            with no_collection(), session.trial(readings):
                yield
            self._find(readings, session)

    def end(self) -> None:
        self.is_on = False
        try:
            self._counting.close()
        except Exception as error:
            self.problem = f"counting memory could not be ended: {one_line(error)}"

    def pause(self) -> None:
        """Count no more; where no iteration was traced, another one begins anew."""
        self.is_due = self.is_due or self.is_on
        self.end()

    def _find(self, readings: Readings, session: ReadingSession) -> None:
        if readings.failure:
            self.problem = f"memory cannot be counted: {readings.failure}"
            return
        try:
            self.use = use_of(session.result(readings), self._trial)
        except ProfileError as error:
            self.problem = str(error)
        except Exception as error:
            self.problem = f"the memory pass failed: {one_line(error)}"

    def use_of_rows(self, n_rows: int) -> MemoryUse | None:
        """The traced iteration's use, for so many rows: later ones allocated nothing."""
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
    step: Step, session: ReadingSession, n_rows: int, counter: Counter | None = None
) -> MemoryUse | None:
    """Run a step twice, and say what the second trial allocates, for so many rows."""
    memory = IterationMemory(step)
    memory.begin(counter)
    try:
        if memory.is_on:
            step()  # makes the gradients and so on that the next one frees
            with memory.tracing(session):
                step()
    finally:
        memory.end()
    if memory.problem:
        raise ProfileError(memory.problem)
    return memory.use_of_rows(n_rows)


def _measure(timed: Timed) -> MemoryUse | None:
    if timed.left_s < _STRUCTURE_PASSES * timed.pass_s:
        return None
    session = ReadingSession(timed.session)
    return measure_memory(timed.step, session, len(timed.recording.layers))


MEMORY = Pass(
    "memory", _measure, "the memory pass failed ({}); it is left out", calls=_STRUCTURE_PASSES
)


def use_of(trial: ReadTrial, info: TrialInfo) -> MemoryUse:
    """The memory that the rows of a trial use, and what exists besides them."""
    n_layers = len(trial.layers)
    # Bytes at each event, and the most since the event before.
    now, peaks = trial.values.T
    peak_nbytes = [0] * n_layers
    kept: int | None = None
    for window in _windows(trial, now, peaks):
        if 0 <= window.owner < n_layers:
            peak_nbytes[window.owner] = max(peak_nbytes[window.owner], window.high - window.begin)
        elif window.owner >= n_layers and trial.phases[window.owner - n_layers] == "forward":
            # The graph of the iteration before may be freed within it, and is no part of this.
            kept = max(kept or 0, window.end - window.low)
    highest = int(peaks[1:].argmax())
    highest_owner = int(trial.owners[highest])
    return MemoryUse(
        peak_nbytes=tuple(peak_nbytes),
        retained_nbytes=tuple(trial.sums(now)[:n_layers].tolist()),
        high_water_nbytes=int(peaks[highest + 1] - now[0]),
        high_water_layer=highest_owner if 0 <= highest_owner < n_layers else None,
        kept_for_backward_nbytes=kept,
        phases=tuple(_phases(trial, peaks[1:] - now[0], np.diff(now))),
        **_there(info),
    )


def _there(step: TrialInfo) -> dict[str, int]:
    """Bytes that are there before a trial, by fields of :class:`.MemoryUse`."""
    parameters, inputs = _parameters(step), _distinct(arrays_in(tuple(step.inputs)))
    params = [param for _, root in step.roots for param in root.params(include_uninit=False)]
    there = {
        "parameter_nbytes": _nbytes(parameters),
        "input_nbytes": _nbytes(inputs),
        "gradient_nbytes": _nbytes(_distinct(param.grad for param in params)),
        "state_nbytes": _nbytes(_distinct(_state(params))),
    }
    xp = chainer.backend.get_array_module(*parameters, *inputs)
    if _is_cupy(xp):
        pool = xp.get_default_memory_pool()
        there["pool_used_nbytes"] = int(pool.used_bytes())
        there["pool_total_nbytes"] = int(pool.total_bytes())
    return there


def _phases(
    trial: ReadTrial, highs: NDArray[np.int64], grown: NDArray[np.int64]
) -> Iterator[PhaseMemory]:
    """What every phase allocates, in the order of their first rows."""
    columns = [*(layer.phase for layer in trial.layers), *trial.phases]
    names = list(dict.fromkeys(columns))
    # The last one is of moments outside of all phases, whose owner is -1.
    outside = 0 if len(names) == 1 and not trial.phases else _OUTSIDE
    moments = np.array([*map(names.index, columns), outside])[trial.owners[:-1]]
    for number, name in enumerate(names):
        in_phase = moments == number
        yield PhaseMemory(name, int(highs[in_phase].max()), int(grown[in_phase].sum()))


class _Window(NamedTuple):
    """Bytes that are allocated at the begin and the end of a span, the most and the least."""

    owner: int
    begin: int
    end: int
    high: int
    low: int  # at events, not between them


def _windows(
    trial: ReadTrial, now: NDArray[np.int64], peaks: NDArray[np.int64]
) -> Iterator[_Window]:
    """The outermost spans of each owner."""
    spans, owners = trial.layout.spans, trial.layout.attribution.owners
    around: list[frozenset[int]] = []
    for span, parent in enumerate(spans.parents):
        outer = around[parent] if parent >= 0 else frozenset()
        around.append(outer | {owners[span]})
        if span == 0 or owners[span] in outer:
            continue
        begin, end = spans.begins[span], spans.ends[span]
        yield _Window(
            trial.column(owners[span]),
            int(now[begin]),
            int(now[end]),
            max(int(now[begin]), int(peaks[begin + 1 : end + 1].max(initial=0))),
            int(now[begin:end].min()),
        )


def _parameters(step: TrialInfo) -> list[Any]:
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


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({id(value): value for value in values if hasattr(value, "nbytes")}.values())


def _nbytes(arrays: list[Any]) -> int:
    return sum(int(value.nbytes) for value in arrays)
