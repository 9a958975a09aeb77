"""How many threads BLAS is to have in a run: one, or as many as it takes by itself.

Threads of BLAS wait for one another by spinning. Where other programs keep the cores busy, one of
them is often not running, and the others spin until it is: trials take many times as long, and the
layers' times are noise. Small matrices are faster with one thread on a quiet machine, too.
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

#: Seconds that the probe takes; and the part that it takes at most of a run whose trials are long,
#: and of ``--max-seconds``.
PROBE_SECONDS = 2.0
PROBE_PART = 0.1
_MOST_ROUNDS = 10
_TRIALS_A_TURN = 3
#: More threads stay only where they are so much faster: one is steadier.
_LEAST_GAIN = 0.03
#: The libraries obey these.
_VARIABLES = (
    *("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS"),
)
#: NumPy's OpenBLAS takes no more, however many cores there are.
_MOST_THREADS = 64


@dataclass(frozen=True)
class Probe:
    """The trials of the probe, and which number of threads they choose."""

    trials: tuple[tuple[int, int, int], ...] = ()  # start and wall time in ns, and threads of each
    threads: int | None = None  # None: the library keeps its own number


def limit_blas_threads(threads: int | None) -> AbstractContextManager[Any]:
    """Within this BLAS has so many threads; None changes nothing."""
    return nullcontext() if threads is None else threadpool_limits(threads, user_api="blas")


def default_blas_threads(where: Environment) -> int:
    """The number of threads that BLAS took by itself; 1 where somebody chose, or it has one."""
    # A variable of the environment is a choice, and so is a number below that of the cores: the
    # program itself has limited it, with threadpoolctl.
    threads = max((library.threads for library in where.blas), default=1)
    cores = [cores for cores in (where.physical_cores, where.usable_cores) if cores]
    chosen = any(os.environ.get(name) for name in _VARIABLES)
    least = min(*cores, _MOST_THREADS) if cores else threads
    return 1 if chosen or threads < least else threads


def probe_threads(
    step: Callable[[], object],
    now_ns: NowNs,
    threads: int,
    *,
    trial_s: float,
    most_s: float,
    stop: Callable[[], str],
) -> Probe:
    """Time a few trials with all threads and with one, in turn, and choose the faster."""
    if threads < 2 or (threads + 1) * trial_s > most_s:
        return Probe()
    most_s = min(most_s, PROBE_SECONDS)
    # The first trial after a change is slower: the other threads spin for a while.
    few = 2 * (_TRIALS_A_TURN + 1) * trial_s > most_s
    begin_ns = now_ns()
    timed: list[tuple[int, int, int]] = []
    for turn in range(2 * _MOST_ROUNDS):
        if turn >= 2 and (now_ns() - begin_ns) * NS >= most_s:
            break
        count = 1 if turn % 2 else threads
        with limit_blas_threads(count):
            if not few:
                step()
            for _ in range(1 if few else _TRIALS_A_TURN):
                start_ns = now_ns()
                step()
                timed.append((start_ns, now_ns() - start_ns, count))
                if stop():
                    return Probe(tuple(timed))
    one_ns, many_ns = (
        float(np.median([wall_ns for _, wall_ns, tried in timed if tried == count]))
        for count in (1, threads)
    )
    return Probe(tuple(timed), 1 if one_ns * (1 - _LEAST_GAIN) <= many_ns else None)
