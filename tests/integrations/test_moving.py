"""The time to move a batch between processes is measured if a SerialIterator is slow."""

from dataclasses import replace

import chainer
import numpy as np
import pytest

from chainer_profile.integrations import moving
from chainer_profile.record.budget import Budget, Trials
from chainer_profile.record.recording import COMPLETE, Layer, Recording

BUDGET = Budget(
    *("a.py", "", "", COMPLETE, 0, ()),
    trials=(
        Trials("iterations", "", ".", loaded=32, loaded_nbytes=3200),
        Trials("iterations", "", "train-2", loaded=64, loaded_nbytes=6400),
        Trials("test-mode calls", "", ".", loaded=1, loaded_nbytes=1),
    ),
)


def recording(function, loading_us, iteration_us):
    """Recording of iterations that load data."""
    layers = Layer(0, "data", function, "data"), Layer(1, "/a", "F")
    self_ns = 1000 * np.array([[loading_us, iteration_us - loading_us]] * 2)
    return Recording(layers, self_ns, trial_ns=self_ns.sum(axis=1))


@pytest.mark.parametrize(
    ("function", "loading_us", "iteration_us", "is_measured"),
    [
        ("SerialIterator", 1000, 20_000, True),
        ("SerialIterator", 1000, 20_001, False),
        ("SerialIterator", 999, 1000, False),
        ("Own", 5000, 20_000, False),
    ],
)
def test_moving_is_measured_only_for_long_serial_loading(
    monkeypatch, function, loading_us, iteration_us, is_measured
):
    monkeypatch.setattr(moving, "moving_ns", lambda examples, nbytes: 7 if examples else 0)
    monkeypatch.setattr(moving, "usable_cores", lambda: 4)
    monkeypatch.setattr(moving.psutil, "cpu_percent", lambda interval: 25.0)
    iterations = recording(function, loading_us, iteration_us)
    budget = moving.with_moving(BUDGET, iterations, 0.05)
    first, *others = budget.trials
    assert first == replace(BUDGET.trials[0], moved_ns=7 * is_measured, free_cores=3 * is_measured)
    assert tuple(others) == BUDGET.trials[1:]
    unknown = replace(BUDGET, trials=(replace(BUDGET.trials[0], loaded_nbytes=0),))
    assert moving.with_moving(unknown, iterations, 0.05) == unknown


def test_moving_is_timed_with_chainers_iterator(monkeypatch):
    assert moving.moving_ns(4, 4000) > 0
    monkeypatch.setattr(chainer.iterators.MultiprocessIterator, "next", lambda self: 1 / 0)
    assert moving.moving_ns(4, 4000) == 0
