import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.report.page.distributions import (
    LEVELS,
    MAX_BINS,
    MAX_BLOCKS,
    blocks_of,
    distribution,
)

TIMES = st.lists(st.integers(0, 10**10), min_size=1, max_size=400)


@given(TIMES)
def test_every_trial_is_counted_once(times):
    samples = np.array(times, np.int64)
    found = distribution(samples)
    assert int(found.counts.sum()) + found.beyond == len(samples)
    assert 1 <= len(found.counts) <= MAX_BINS
    scale = {"s": 1e-9, "ms": 1e-6, "us": 1e-3, "ns": 1.0}[found.unit]
    assert found.low < samples.min() * scale + 1e-12
    assert found.beyond == int((samples * scale > found.high).sum())


@given(TIMES, st.integers(2, MAX_BLOCKS))
def test_blocks_hold_all_trials_and_lie_within_them(times, most):
    samples = np.array(times, np.int64)
    found = distribution(samples, most)
    blocks = found.levels.shape[1]
    assert blocks <= most
    assert (blocks - 1) * found.block < len(samples) <= blocks * found.block
    low, median, high = found.levels.astype(int)
    assert (low <= median).all()
    assert (median <= high).all()
    if found.floor < found.ceiling:
        assert found.levels.min() == 0
        assert found.levels.max() == LEVELS


def test_histogram_is_that_of_numpy():
    samples = np.random.default_rng(0).normal(2e6, 1e4, 5000).astype(np.int64)
    found = distribution(samples)
    edges = np.linspace(found.low, found.high, len(found.counts) + 1)
    expected, _ = np.histogram(samples[samples * 1e-6 <= found.high] * 1e-6, edges)
    # At an edge rounding may decide.
    assert np.abs(expected - found.counts.astype(int)).max() <= 1
    assert (found.unit, len(found.counts), found.block) == ("ms", MAX_BINS, 50)


def test_a_few_long_trials_do_not_press_the_others_together():
    samples = np.full(1000, 1_000_000, np.int64) + np.arange(1000)
    samples[[3, 500]] = 90_000_000
    found = distribution(samples)
    assert found.high < 2
    assert found.beyond == 2
    assert found.text[3] == "2 trials took longer than the histogram shows, up to 90.00 ms."


def test_blocks_are_percentiles():
    samples = np.repeat(np.array([100, 200], np.int64), 50)
    found = distribution(samples, 2)
    np.testing.assert_array_equal(found.levels, [[0, LEVELS]] * 3)
    assert (found.floor, found.ceiling, found.block) == (100, 200, 50)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.full(200, 1000), ("Steady: the standard deviation is 0.0 % of the mean.", "No drift")),
        (np.tile([1000, 3000], 100), ("Noisy: the standard deviation is 50.1 %", "No drift")),
        (
            np.repeat([1000, 1200], 100),
            ("Steady: ", "It drifts: the second half of the run was 20.0 % slower than the first."),
        ),
        (np.repeat([1200, 900], 100), ("Noisy: ", "was 25.0 % faster than the first.")),
        (
            np.append(np.full(100, 1000), np.tile([1000] * 9 + [3000], 10)),
            ("A few slow trials make the second half of the run 20.0 % slower", "less than 5 %"),
        ),
        (np.arange(1000, 1010), ("Steady: ", "These are too few trials to tell whether")),
        (np.zeros(100), ("Steady: ", "These are too few")),
    ],
)
def test_words(samples, words):
    text = " ".join(distribution(samples.astype(np.int64)).text)
    for part in words:
        assert part in text


def test_one_trial():
    found = distribution(np.array([1500], np.int64))
    assert found.text == ("One trial: 1.500 us.", "", "", "")
    assert found.counts.tolist() == [1]
    assert found.levels.shape == (3, 1)


def test_many_rows_have_fewer_blocks():
    assert [blocks_of(n) for n in (0, 1, 600, 5000, 10**6)] == [100, 100, 100, 12, 2]
