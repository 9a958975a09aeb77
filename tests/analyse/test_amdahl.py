"""Amdahl's law: what a faster layer would bring to a trial."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.amdahl import if_twice, trial_s, ways
from chainer_profile.record.recording import Recording, Settings
from tests.recordings import make_recording


def recording(trial_us: float = 1000.0) -> Recording:
    trials = np.full(10, round(trial_us * 1000), np.int64)
    return replace(make_recording(), clean_ns=trials, clean_start_ns=trials.cumsum())


def test_a_layer_of_half_the_trial() -> None:
    factors = if_twice(recording(), np.array([500e-6, 100e-6, 0.0]))
    np.testing.assert_allclose(factors, [4 / 3, 1 / 0.95, 1.0])


def test_without_clean_trials_it_is_of_the_profiled_ones() -> None:
    found = replace(recording(), clean_ns=np.zeros(0, np.int64), clean_start_ns=np.zeros(0, int))
    assert found.trial_ns is not None
    assert trial_s(found) == pytest.approx(float(np.median(found.trial_ns)) * 1e-9)


def test_it_is_not_known_where_layers_add_up_to_no_trial() -> None:
    inclusive = replace(recording(), settings=Settings(inclusive=True))
    assert trial_s(inclusive) is None
    assert np.isnan(if_twice(inclusive, np.ones(3))).all()
    assert ways(inclusive, np.ones(3), 2.0) is None


def test_the_fewest_of_the_slowest_layers() -> None:
    # Of 1,000 us 500 are to go: 4 times as fast, 700 leave 175; 10 times, 600 leave 60.
    found = ways(recording(), np.array([100, 600, 100, 50]) * 1e-6, 2.0)
    assert found is not None
    assert [(way.count, way.times, round(way.share, 9)) for way in found] == [
        (2, 4.0, 0.7),
        (1, 10.0, 0.6),
    ]
    assert ways(recording(), np.array([100, 200]) * 1e-6, 2.0) == ()


@given(
    layers=st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=40),
    framework=st.floats(0, 1e-3),
    factor=st.floats(1.01, 5),
)
def test_a_way_reaches_its_target_and_a_layer_less_does_not(
    layers: list[float], framework: float, factor: float
) -> None:
    times = np.array(layers)
    whole = recording((times.sum() + framework) * 1e6)
    trial = trial_s(whole)
    found = ways(whole, times, factor)
    assert trial is not None
    assert found is not None
    slowest = np.sort(times)[::-1]
    for way in found:
        kept = [slowest[:n].sum() * (1 - 1 / way.times) for n in (way.count, way.count - 1)]
        assert trial / (trial - kept[0]) >= factor * (1 - 1e-6)
        assert trial / (trial - kept[1]) <= factor * (1 + 1e-6)
    assert [way.times for way in found] == sorted({way.times for way in found})
    assert (if_twice(whole, times) <= 2).all()
