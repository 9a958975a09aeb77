"""The counters pass: what the calling thread does in every row, beside passing time.

A clock that reads several counters gives the number of each reading as the time; the readings of a
counter are then folded as if they were times.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from functools import partial
from statistics import median
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.measure.by_link import ByLink
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.passes import Pass, Timed
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.structure import Structure
from chainer_profile.measure.windows import Step
from chainer_profile.record.recording import Counted, Counters

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: Reads several counters at once; none of them ever falls.
Read = Callable[[], Sequence[int]]

#: The pass takes this part of the time of the trials, and this many seconds at most; where it is
#: asked for, so many. Of a time limit this part is kept for it.
_PART = 0.1
_SECONDS = 5.0
_LIMIT_PART = 0.05
LEAST_TRIALS = 3
#: Trials beyond this say nothing new.
_MOST_TRIALS = 2000
_WINDOWS = 500
#: The kernel tells the system's part of a thread's CPU time by its ticks, which are 4 ms apart or
#: so: that is right for the trials together, and far too small for most layers.
_BY_TICKS = ("system_ns",)
#: The pages that are touched to learn what a page fault costs, and how often.
_PAGES = 256
_TOUCHES = 7


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


def _fault_ns(
    names: Sequence[str], read: Read, touch: Callable[[NDArray[np.uint8]], None]
) -> float | None:
    """CPU time that a fault for a small page takes at least; None where that is not known."""
    if "page_faults" not in names:
        return None
    found: list[float] = []
    for _ in range(_TOUCHES):
        try:
            pages = _new_pages()
        except OSError:  # no memory
            return None
        before = read()
        touch(pages)
        used = dict(zip(names, np.subtract(read(), before).tolist(), strict=True))
        if used["page_faults"] < len(pages):  # one fault may have brought several
            return None
        found.append(used["cpu_ns"] / used["page_faults"])
    return median(found)


def _new_pages() -> NDArray[np.uint8]:
    """The first byte of every page of memory that the system has not handed out yet."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, _PAGES * mmap.PAGESIZE, flags=private)
    with suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.uint8)[:: mmap.PAGESIZE]


class _Readings:
    """A clock whose times are numbers of readings, which lie in an array made before."""

    def __init__(self, now_ns: NowNs, counters: Read, width: int, most: int) -> None:
        row = Struct(f"{width}q")
        self._buffer = bytearray(row.size * most)
        # Written once: a page that is touched for the first time would count for a row.
        self._buffer[:] = b"\1" * len(self._buffer)
        self.values = np.frombuffer(self._buffer, np.int64).reshape(most, width)
        self._at = 0
        pack, buffer, size, end = row.pack_into, self._buffer, row.size, row.size * most

        def read() -> int:
            at = self._at
            if at < end:  # another trial may make more calls
                pack(buffer, at, now_ns(), *counters())
            self._at = at + size
            return at // size

        self.read = read

    def clear(self) -> None:
        self._at = 0

    @property
    def count(self) -> int:
        return self._at // self.values.itemsize // self.values.shape[1]


def measure_counters(
    step: Step,
    rows: Structure | ByLink,
    *,
    now_ns: NowNs,
    seconds: float,
    stop: Callable[[], object] = lambda: None,
    usage: tuple[tuple[str, ...], Read] | None = None,
    touch: Callable[[NDArray[np.uint8]], None] = _touch,
) -> Counters | None:
    """Run a step for so long, and say what the calling thread did in every row."""
    counted, read = usage or thread_usage()
    names = ("wall_ns", *counted)
    trials: Callable[[_Readings], Generator[_Seen, None, None]]
    if isinstance(rows, Structure):
        reads, n_layers = len(rows.owners) + 2, len(rows.layers)
        trials = partial(_by_call, step, rows)
    else:
        reads, n_layers = 2 * len(rows.recorder.log), len(rows.recorder.rows)
        trials = partial(_by_link, step, rows)
    readings = _Readings(now_ns, read, len(names), max(reads, 2 * _WINDOWS))
    windows = _window(Recorder(readings.read, step), readings)
    found: list[NDArray[np.int64]] = []
    begin_ns = now_ns()
    with closing(trials(readings)) as seen_trials:
        for made, seen in enumerate(seen_trials, 1):
            if seen is not None:
                structure, stamps = seen
                of_rows = structure.times_ns(readings.values[list(stamps)].T)
                trial = readings.values[readings.count - 1] - readings.values[0]
                found.append(np.column_stack([of_rows, trial]))
            long = made >= _MOST_TRIALS or (now_ns() - begin_ns) * NS >= seconds
            if stop() or (long and made >= LEAST_TRIALS):
                break
    if not found:
        return None
    # (counters, trials, rows, phases and the trial)
    values = np.array(found).transpose(1, 0, 2)
    return Counters(
        trials=len(found),
        counted=tuple(
            Counted(
                name=name,
                layers=() if name in _BY_TICKS else tuple(of.sum(axis=0)[:n_layers].tolist()),
                framework=() if name in _BY_TICKS else tuple(of.sum(axis=0)[n_layers:-1].tolist()),
                trial=tuple(of[:, -1].tolist()),
                window=float(window),
            )
            for name, of, window in zip(names, values, windows, strict=True)
        ),
        fault_ns=_fault_ns(counted, read, touch),
    )


#: A trial's windows, and which readings are theirs; None where it is of no use.
_Seen = tuple[Structure, Sequence[int]] | None


def _by_call(step: Step, structure: Structure, readings: _Readings) -> Generator[_Seen, None, None]:
    """Trials that make the calls of a structure."""
    recorder = Recorder(readings.read, step, raising=structure.raising)
    with recorder:
        while True:
            recorder.clear()
            readings.clear()
            readings.read()
            step()
            readings.read()
            stamps = structure.stamps(recorder.log)
            yield None if stamps is None else (structure, stamps)


def _by_link(step: Step, by_link: ByLink, readings: _Readings) -> Generator[_Seen, None, None]:
    """Trials by link, which may be too long for the readings."""
    recorder, rows = by_link.recorder, by_link.recorder.rows
    with by_link.entries:
        while True:
            readings.clear()
            with recorder.recording(readings.read):
                readings.read()
                step()
                recorder.close()
                readings.read()
            log = recorder.log
            fits = readings.count <= len(readings.values)
            yield (rows.structure(log), rows.fold(log).stamps.tolist()) if fits else None


def _window(recorder: Recorder, readings: _Readings) -> NDArray[np.float64]:
    """What each counter shows on average for a function that does nothing."""
    hook = recorder.hook
    for _ in range(_WINDOWS):
        hook.forward_preprocess(recorder, ())
        hook.forward_postprocess(recorder, ())
    values = readings.values[: 2 * _WINDOWS]
    mean: NDArray[np.float64] = (values[1::2] - values[::2]).mean(axis=0)
    recorder.clear()
    readings.clear()
    return mean


def _measure(timed: Timed) -> Counters | None:
    seconds = _SECONDS if timed.asked else min(_SECONDS, _PART * timed.trials_s)
    seconds = min(seconds, timed.left_s)
    if seconds < 0:
        return None
    return measure_counters(
        timed.step,
        timed.rows,
        now_ns=timed.clock.now_ns,
        seconds=seconds,
        stop=timed.stop,
    )


COUNTERS = Pass(
    "counters",
    _measure,
    "the counters pass fails ({}): left out",
    seconds=_SECONDS,
    limit_part=_LIMIT_PART,
    on_device=False,
)
