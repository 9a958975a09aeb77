"""Measures how long Chainer's MultiprocessIterator takes to move examples between processes."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import psutil

from chainer_profile.basics.parsing import usable_cores
from chainer_profile.basics.words import SERIAL_ITERATOR
from chainer_profile.compat import install_in_children
from chainer_profile.record.budget import ITERATIONS, Budget, Trials
from chainer_profile.record.recording import Recording

#: Warm-up batches, largest number of timed batches, and the time after which the timing ends.
_WARMUPS, _BATCHES, _LONG_NS = 3, 20, 1_000_000_000
#: Smallest loading time of a batch that is worth this measurement. To move a batch takes about this
#: time at least, so batches that load faster gain nothing.
_MIN_LOADING_NS = 1_000_000
#: Longest time of a batch; a slower one counts as a failure.
_MAX_SECONDS = 10.0
#: Duration of the measurement of the processor's load.
_LOAD_SECONDS = 0.5


class Examples:
    """A data set of examples that take no time to load, for other processes."""

    def __init__(self, nbytes: int) -> None:
        self._example = np.zeros(nbytes, np.uint8), np.int32(0)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return self._example


def moving_ns(examples: int, nbytes: int) -> int:
    """Time in which a MultiprocessIterator gives a batch that takes no time to load.

    Args:
        examples: Number of examples in the batch.
        nbytes: Bytes of the batch.

    Returns:
        The mean time of a batch in nanoseconds; 0 if it fails.
    """
    from chainer.iterators import MultiprocessIterator

    install_in_children()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", MultiprocessIterator.TimeoutWarning)
        batches = MultiprocessIterator(
            Examples(nbytes // examples), examples, shuffle=False, dataset_timeout=_MAX_SECONDS
        )
        try:
            for _ in range(_WARMUPS):
                batches.next()
            began_ns = time.perf_counter_ns()
            count = ns = 0
            while count < _BATCHES and ns < _LONG_NS:
                batches.next()
                count += 1
                ns = time.perf_counter_ns() - began_ns
            return ns // count
        except Exception:
            return 0
        finally:
            batches.finalize()


def with_moving(budget: Budget, recording: Recording, min_share: float) -> Budget:
    """Measure the time to move an iteration's examples, and add it to a copy of the budget.

    Return the budget itself if no SerialIterator loads, or if loading takes little time.

    Args:
        budget: The time of the program.
        recording: The iterations, in the budget's folder.
        min_share: Fraction of an iteration's time from which loading matters.
    """
    serial = [layer.index for layer in recording.layers if layer.function == SERIAL_ITERATOR]
    if not serial or recording.trial_ns is None:
        return budget
    loading_ns = recording.self_ns[:, serial].sum()
    is_short = loading_ns < _MIN_LOADING_NS * recording.n_trials
    if is_short or loading_ns < min_share * recording.trial_ns.sum():
        return budget
    return replace(
        budget,
        trials=tuple(
            _measured(trials)
            if trials.part == ITERATIONS and trials.folder == "." and trials.loaded_nbytes
            else trials
            for trials in budget.trials
        ),
    )


def _measured(trials: Trials) -> Trials:
    free_cores = (usable_cores() or 1) * (1 - psutil.cpu_percent(_LOAD_SECONDS) / 100)
    moved_ns = moving_ns(trials.loaded, trials.loaded_nbytes)
    return replace(trials, moved_ns=moved_ns, free_cores=free_cores)
