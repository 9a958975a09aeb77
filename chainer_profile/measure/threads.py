"""The choice of BLAS threads for a run: one, or the library's own number.

Threads of BLAS wait for one another by spinning. If other programs keep the cores busy, some of the
threads are often not running, and the others spin until they are. Trials then take many times as
long, and the layers' times are noise. Small matrices are faster with one thread even on a quiet
machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from chainer_profile.basics.describe import NS
from chainer_profile.measure.clock import NowNs
from chainer_profile.record.recording import Environment

#: Longest duration of the probe in seconds. With long trials it may take longer, up to a fraction
#: of the run and of ``--max-seconds``.
PROBE_SECONDS = 2.0
PROBE_PART = 0.1
_MAX_ROUNDS = 10
_TRIALS_PER_TURN = 3
#: All threads are chosen if they are faster by this fraction. Otherwise one is, which is steadier.
_MIN_GAIN = 0.03
#: Environment variables that set the number of threads.
_VARIABLES = (
    *("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS"),
)
#: NumPy's OpenBLAS is built for at most this number of threads.
_MAX_THREADS = 64


@dataclass(frozen=True)
class Probe:
    """Trials of the probe, and the number of threads that it chose."""

    trials: tuple[tuple[int, int, int], ...] = ()  # start in ns, wall time in ns, and threads
    threads: int | None = None  # None keeps the library's own number


def limit_blas_threads(threads: int | None) -> AbstractContextManager[Any]:
    """Set the number of BLAS threads within the context; None changes nothing."""
    return nullcontext() if threads is None else threadpool_limits(threads, user_api="blas")


def default_blas_threads(environment: Environment) -> int:
    """Number of threads that BLAS chose by itself; 1 if the user or the program chose it.

    Fewer threads than cores show that the program has limited them, for example by threadpoolctl.
    """
    threads = max((library.threads for library in environment.blas), default=1)
    cores = [n for n in (environment.physical_cores, environment.usable_cores) if n]
    by_user = any(os.environ.get(name) for name in _VARIABLES)
    by_default = min(*cores, _MAX_THREADS) if cores else threads
    return 1 if by_user or threads < by_default else threads


def probe_threads(
    step: Callable[[], object],
    now_ns: NowNs,
    threads: int,
    *,
    trial_s: float,
    max_s: float,
    stop: Callable[[], str],
) -> Probe:
    """Time a few trials with ``threads`` and with one alternately, and choose the faster.

    ``trial_s`` is the expected time of a trial, and ``max_s`` the time for all. ``stop`` returns a
    reason to stop, or nothing.
    """
    if threads < 2 or (threads + 1) * trial_s > max_s:
        return Probe()
    max_s = min(max_s, PROBE_SECONDS)
    # The first trial after a change is slower, because the other threads still spin. It is left out
    # if there is time.
    few = 2 * (_TRIALS_PER_TURN + 1) * trial_s > max_s
    begin_ns = now_ns()
    timed: list[tuple[int, int, int]] = []
    for turn in range(2 * _MAX_ROUNDS):
        if turn >= 2 and (now_ns() - begin_ns) * NS >= max_s:
            break
        count = 1 if turn % 2 else threads
        with limit_blas_threads(count):
            if not few:
                step()
            for _ in range(1 if few else _TRIALS_PER_TURN):
                start_ns = now_ns()
                step()
                timed.append((start_ns, now_ns() - start_ns, count))
                if stop():
                    return Probe(tuple(timed))
    one_ns, all_ns = (
        float(np.median([wall_ns for _, wall_ns, used in timed if used == count]))
        for count in (1, threads)
    )
    return Probe(tuple(timed), 1 if one_ns * (1 - _MIN_GAIN) <= all_ns else None)
