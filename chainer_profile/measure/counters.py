"""The counters pass: CPU time, page faults and context switches of every row.

The code that aggregates times also aggregates the readings of a counter.
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
from chainer_profile.measure.passes import Pass, PassInput
from chainer_profile.measure.readings import Readings, ReadingSession
from chainer_profile.measure.step import Step
from chainer_profile.record.recording import Counted, Counters

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: Reads several counters at once. They never decrease.
Read = Callable[[], Sequence[int]]

#: The pass takes this fraction of the trials' time, but at most this many seconds. It takes all of
#: these seconds if the user asks for the pass. This fraction of a time limit is reserved for it.
_PART_OF_TRIALS = 0.1
_MAX_SECONDS = 5.0
_PART_OF_LIMIT = 0.05
MIN_TRIALS = 3
#: More trials than this would not make the result more precise.
_MAX_TRIALS = 2000
_EMPTY_WINDOWS = 500
#: Linux counts system time in ticks of about 4 ms. The sum over all trials is precise enough for a
#: whole trial, but not for a layer.
_BY_TICKS = ("system_ns",)
#: Number of pages to touch for the cost of a page fault, and number of repetitions.
_TOUCHED_PAGES = 256
_TOUCH_ROUNDS = 7


def thread_usage() -> tuple[tuple[str, ...], Read]:
    """Names of the system's counters for the calling thread, and a function that reads them."""
    who = getattr(resource, "RUSAGE_THREAD", None)  # Linux
    cpu_ns = time.thread_time_ns
    if who is None:
        return ("cpu_ns",), lambda: (cpu_ns(),)
    getrusage = resource.getrusage

    def read() -> tuple[int, ...]:
        # An index is faster than a name. The fields are: ru_stime, ru_minflt
        # plus ru_majflt, ru_nvcsw, ru_nivcsw.
        usage = getrusage(who)
        return cpu_ns(), round(usage[1] * 1e9), usage[6] + usage[7], usage[14], usage[15]

    return ("cpu_ns", "system_ns", "page_faults", "waits", "preemptions"), read


def _touch(pages: NDArray[np.uint8]) -> None:
    pages[...] = 1


def _fault_ns(names: Sequence[str], read: Read) -> float | None:
    """Measure the CPU time of a page fault; None if that is not possible.

    The result is the median of several measurements that touch new pages.
    """
    if "page_faults" not in names:
        return None
    costs_ns: list[float] = []
    for _ in range(_TOUCH_ROUNDS):
        try:
            pages = _new_pages()
        except OSError:  # no memory
            return None
        before = read()
        _touch(pages)
        used = dict(zip(names, np.subtract(read(), before).tolist(), strict=True))
        if used["page_faults"] < len(pages):  # a fault may have mapped several pages
            return None
        costs_ns.append(used["cpu_ns"] / used["page_faults"])
    return median(costs_ns)


def _new_pages() -> NDArray[np.uint8]:
    """Map new pages and return their first bytes: writing to each causes a page fault."""
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
    """Run a step for a number of seconds, and add up the counters of every row.

    At least :data:`MIN_TRIALS` trials are made unless ``stop()`` is true. Trials that make other
    calls are skipped. Returns None if all are skipped.

    Raises:
        ProfileError: The counters cannot be read.
    """
    counted, read = thread_usage()
    names = ("wall_ns", *counted)
    size = max(session.max_readings, 2 * _EMPTY_WINDOWS)
    readings = Readings(lambda: (now_ns(), *read()), len(names), size)
    windows = _empty_window(readings)
    by_trial: list[NDArray[np.int64]] = []
    begin_ns = now_ns()
    for trial in count(1):
        readings.clear()
        with session.trial(readings):
            step()
        if readings.failure:
            raise ProfileError(readings.failure)
        # Skip a trial with other calls than the first one, or with too many.
        with suppress(ProfileError):
            result = session.result(readings)
            n_layers, values = len(result.layers), result.values
            by_row = [result.sums(counter) for counter in values.T]
            by_trial.append(np.column_stack([by_row, values[-1] - values[0]]))
        long = trial >= _MAX_TRIALS or (now_ns() - begin_ns) * NS >= seconds
        if stop() or (long and trial >= MIN_TRIALS):
            break
    if not by_trial:
        return None
    # Shape (counters, trials, columns): a column for each layer and phase, then the whole trial.
    values = np.array(by_trial).transpose(1, 0, 2)
    counters = []
    for name, counted_trials, window in zip(names, values, windows.tolist(), strict=True):
        sums = [] if name in _BY_TICKS else counted_trials[:, :-1].sum(axis=0).tolist()
        layers, framework = tuple(sums[:n_layers]), tuple(sums[n_layers:])
        whole = tuple(counted_trials[:, -1].tolist())
        counters.append(Counted(name, layers, framework, whole, window))
    return Counters(
        trials=len(by_trial),
        counted=tuple(counters),
        fault_ns=_fault_ns(counted, read),
    )


def _empty_window(readings: Readings) -> NDArray[np.float64]:
    """Mean difference of each counter between two successive readings."""
    readings.clear()
    for _ in range(2 * _EMPTY_WINDOWS):
        readings.read()
    values = readings.values[: 2 * _EMPTY_WINDOWS]
    mean: NDArray[np.float64] = (values[1::2] - values[::2]).mean(axis=0)
    return mean


def _measure(timed: PassInput) -> Counters | None:
    seconds = (
        _MAX_SECONDS if timed.requested else min(_MAX_SECONDS, _PART_OF_TRIALS * timed.trials_s)
    )
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
    seconds=_MAX_SECONDS,
    limit_part=_PART_OF_LIMIT,
    on_device=False,
)
