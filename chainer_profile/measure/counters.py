"""The counters pass: what the calling thread does in every row, beside passing time.

The readings of a counter are folded as if they were times.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from statistics import median

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.passes import Pass, Timed
from chainer_profile.measure.readings import Readings, ReadingSession
from chainer_profile.measure.step import Step
from chainer_profile.record.recording import Counted, Counters

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: Reads several counters at once; none of them ever falls.
Read = Callable[[], Sequence[int]]

#: The pass takes this part of the time of the trials, and this many seconds at most, or all of
#: these where it is asked for. Of a time limit a part is kept for it.
_PART_OF_TRIALS = 0.1
_MOST_SECONDS = 5.0
_PART_OF_LIMIT = 0.05
LEAST_TRIALS = 3
#: Trials beyond this say nothing new.
_MOST_TRIALS = 2000
_EMPTY_WINDOWS = 500
#: The kernel tells the system's part of a thread's CPU time by its ticks, which are 4 ms apart or
#: so: that is right for the trials together, and far too small for most layers.
_BY_TICKS = ("system_ns",)
#: The pages that are touched to learn what a page fault costs, and how often.
_TOUCHED_PAGES = 256
_TIMES_TOUCHED = 7


def thread_usage() -> tuple[tuple[str, ...], Read]:
    """What the system counts for the thread that calls this: names, and what reads them."""
    which = getattr(resource, "RUSAGE_THREAD", None)  # Linux
    cpu_ns = time.thread_time_ns
    if which is None:
        return ("cpu_ns",), lambda: (cpu_ns(),)
    getrusage = resource.getrusage

    def read() -> tuple[int, ...]:
        used = getrusage(which)
        # Beside the system's time: faults with and without reading a disk; switches.
        return cpu_ns(), round(used[1] * 1e9), used[6] + used[7], used[14], used[15]

    return ("cpu_ns", "system_ns", "page_faults", "waits", "preemptions"), read


def _touch(pages: NDArray[np.uint8]) -> None:
    pages[...] = 1


def _fault_ns(names: Sequence[str], read: Read) -> float | None:
    """CPU time that a fault for a small page takes at least; None where that is not known."""
    if "page_faults" not in names:
        return None
    costs_ns: list[float] = []
    for _ in range(_TIMES_TOUCHED):
        try:
            pages = _new_pages()
        except OSError:  # no memory
            return None
        before = read()
        _touch(pages)
        used = dict(zip(names, np.subtract(read(), before).tolist(), strict=True))
        if used["page_faults"] < len(pages):  # one fault may have brought several
            return None
        costs_ns.append(used["cpu_ns"] / used["page_faults"])
    return median(costs_ns)


def _new_pages() -> NDArray[np.uint8]:
    """The first byte of every page of memory that the system has not handed out yet."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, _TOUCHED_PAGES * mmap.PAGESIZE, flags=private)
    with suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.uint8)[:: mmap.PAGESIZE]


def measure_counters(
    step: Step,
    session: ReadingSession,
    *,
    now_ns: NowNs,
    seconds: float,
    stop: Callable[[], object] = lambda: None,
) -> Counters | None:
    """Run a step for so long, and say what the calling thread did in every row."""
    counted, read = thread_usage()
    names = ("wall_ns", *counted)
    size = max(session.max_readings, 2 * _EMPTY_WINDOWS)
    readings = Readings(lambda: (now_ns(), *read()), len(names), size)
    windows = _window(readings)
    by_trial: list[NDArray[np.int64]] = []
    begin_ns = now_ns()
    for trial in count(1):
        readings.clear()
        with session.trial(readings):
            step()
        if readings.failure:
            raise ProfileError(readings.failure)
        # Trials that make other calls, or too many, are left out.
        with suppress(ProfileError):
            result = session.result(readings)
            n_layers, values = len(result.layers), result.values
            of_rows = [result.sums(counter) for counter in values.T]
            by_trial.append(np.column_stack([of_rows, values[-1] - values[0]]))
        long = trial >= _MOST_TRIALS or (now_ns() - begin_ns) * NS >= seconds
        if stop() or (long and trial >= LEAST_TRIALS):
            break
    if not by_trial:
        return None
    # (counters, trials, rows, phases and the trial)
    values = np.array(by_trial).transpose(1, 0, 2)
    counters = []
    for name, by_row, window in zip(names, values, windows.tolist(), strict=True):
        sums = [] if name in _BY_TICKS else by_row[:, :-1].sum(axis=0).tolist()
        layers, framework = tuple(sums[:n_layers]), tuple(sums[n_layers:])
        counters.append(Counted(name, layers, framework, tuple(by_row[:, -1].tolist()), window))
    return Counters(
        trials=len(by_trial),
        counted=tuple(counters),
        fault_ns=_fault_ns(counted, read),
    )


def _window(readings: Readings) -> NDArray[np.float64]:
    """What each counter shows on average for a function that does nothing."""
    readings.clear()
    for _ in range(2 * _EMPTY_WINDOWS):
        readings.read()
    values = readings.values[: 2 * _EMPTY_WINDOWS]
    mean: NDArray[np.float64] = (values[1::2] - values[::2]).mean(axis=0)
    return mean


def _measure(timed: Timed) -> Counters | None:
    seconds = _MOST_SECONDS if timed.asked else min(_MOST_SECONDS, _PART_OF_TRIALS * timed.trials_s)
    seconds = min(seconds, timed.left_s)
    if seconds < 0:
        return None
    now_ns = timed.clock.now_ns
    return measure_counters(
        timed.step,
        ReadingSession(timed.session),
        now_ns=now_ns,
        seconds=seconds,
        stop=timed.stop,
    )


COUNTERS = Pass(
    "counters",
    _measure,
    "the counters pass failed ({}); it is left out",
    seconds=_MOST_SECONDS,
    limit_part=_PART_OF_LIMIT,
    on_device=False,
)
