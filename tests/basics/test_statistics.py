"""Statistics against NumPy, SciPy and exact probabilities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from chainer_profile.basics.describe import (
    MAX_BATCHES,
    describe,
    half_width,
    halves_differ,
    median_interval,
    n_batches,
    standard_error,
)

samples = st.lists(st.integers(0, 10**13), min_size=1, max_size=120).map(
    lambda values: np.array(values, np.int64)
)


def relative(expected):
    return pytest.approx(expected, rel=1e-12, abs=1e-21)


@given(samples)
def test_describe_says_what_numpy_says(times):
    found = describe(times)
    assert found.count == len(times)
    assert found.mean_s == relative(times.mean() * 1e-9)
    assert found.min_s == relative(times.min() * 1e-9)
    assert found.max_s == relative(times.max() * 1e-9)
    for name, q in (("p5_s", 5), ("median_s", 50), ("p95_s", 95), ("p99_s", 99)):
        assert getattr(found, name) == relative(np.percentile(times, q) * 1e-9)
    if len(times) > 1:
        assert found.std_s == relative(times.std(ddof=1) * 1e-9)


@given(samples)
def test_the_numbers_of_one_sample_are_in_order(times):
    found = describe(times)
    ordered = [found.min_s, found.p5_s, found.median_s, found.p95_s, found.p99_s, found.max_s]
    assert ordered == sorted(ordered)
    assert found.min_s <= found.mean_s * (1 + 1e-15)
    assert found.mean_s <= found.max_s * (1 + 1e-15)
    if len(times) > 1:
        assert found.ci_low_s <= found.mean_s <= found.ci_high_s


@given(samples, st.integers(1, 1000))
def test_a_longer_unit_scales_every_number(times, factor):
    found, scaled = describe(times), describe(times * factor)
    for name in ("mean_s", "std_s", "ci_high_s", "min_s", "p5_s", "median_s", "p99_s", "max_s"):
        assert getattr(scaled, name) == pytest.approx(
            getattr(found, name) * factor, rel=1e-9, abs=1e-15, nan_ok=True
        )
    assert scaled.spread == pytest.approx(found.spread, rel=1e-9, nan_ok=True)
    assert scaled.half_width == pytest.approx(found.half_width, rel=1e-6, abs=1e-9, nan_ok=True)


@given(st.lists(st.lists(st.integers(0, 10**12), min_size=5, max_size=5), min_size=1, max_size=30))
def test_means_add_up_as_the_samples_do(rows):
    times = np.array(rows, np.int64)
    means = [describe(column).mean_s for column in times.T]
    assert math.fsum(means) == relative(describe(times.sum(axis=1)).mean_s)


def test_the_samples_are_left_as_they_are():
    times = np.array([3, 1, 2], np.int64)
    times.flags.writeable = False
    describe(times)
    assert times.tolist() == [3, 1, 2]


def test_one_trial_has_no_spread_and_no_interval():
    found = describe(np.array([7_000], np.int64))
    assert (found.count, found.min_s, found.p99_s) == (1, found.mean_s, found.mean_s)
    assert found.mean_s == relative(7e-6)
    for value in (found.std_s, found.ci_low_s, found.ci_high_s, found.half_width, found.spread):
        assert math.isnan(value)


def test_two_trials():
    found = describe(np.array([1_000, 3_000], np.int64))
    assert found.mean_s == relative(2e-6)
    assert found.std_s == relative(math.sqrt(2) * 1e-6)
    # Two batches of one: t with one degree of freedom, 12.706.
    assert found.ci_high_s - found.mean_s == pytest.approx(12.7062047 * 1e-6, rel=1e-8)
    assert found.median_s == relative(2e-6)
    assert found.p95_s == relative(2.9e-6)


def test_three_trials_use_the_last_two_for_the_interval():
    assert standard_error(np.array([10**9, 1, 3], np.int64)) == 1.0


def test_no_trials_is_an_error_of_the_program():
    with pytest.raises(ValueError, match="no samples"):
        describe(np.zeros(0, np.int64))


@pytest.mark.parametrize("value", [0, 1, 333_333_333, 10**15 + 7])
def test_equal_times_have_no_spread(value):
    found = describe(np.full(100, value, np.int64))
    assert found.std_s == pytest.approx(0, abs=1e-15 * value * 1e-9)
    for name in ("mean_s", "ci_low_s", "ci_high_s", "min_s", "p5_s", "median_s", "p99_s", "max_s"):
        assert getattr(found, name) == relative(value * 1e-9)
    assert found.half_width == pytest.approx(0, abs=1e-12)
    assert found.spread == pytest.approx(0, abs=1e-12)


def test_the_mean_is_exact_up_to_the_longest_run_that_64_bits_hold():
    # A sum of floats would lose the ones.
    assert describe(np.array([2**53, 1, 1], np.int64)).mean_s == (2**53 + 2) / 3 * 1e-9
    # 292 years of trials.
    times = np.array([2**62, 2**62 - 1], np.int64)
    assert describe(times).mean_s == (2**63 - 1) / 2 * 1e-9
    assert describe(times).std_s == pytest.approx(math.sqrt(0.5) * 1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("count", "batches"),
    [(2, 2), (3, 2), (8, 2), (9, 3), (99, 9), (100, 10), (899, 29), (900, 30), (10**7, 30)],
)
def test_there_are_about_root_n_batches(count, batches):
    assert n_batches(count) == batches


@given(st.integers(2, 10**8))
def test_batches_are_not_longer_than_the_sample(count):
    assert 2 <= n_batches(count) <= min(count, MAX_BATCHES)


def test_batch_means_by_hand():
    times = np.array([9, 1, 3, 5, 7, 5, 5, 1, 1, 13], np.int64)
    # 10 trials: 3 batches of 3, the first trial left out.
    means = np.array([3.0, 17 / 3, 5.0])
    assert standard_error(times) == pytest.approx(stats.sem(means), rel=1e-12)
    low, high = stats.t.interval(0.95, 2, loc=0, scale=stats.sem(means))
    assert half_width(times) == pytest.approx((high - low) / 2, rel=1e-12)


def test_the_interval_of_independent_times_is_about_students():
    rng = np.random.default_rng(1)
    ratios = []
    for _ in range(300):
        times = rng.gamma(4.0, 250_000, 2_000).astype(np.int64)
        low, high = stats.t.interval(0.95, len(times) - 1, times.mean(), stats.sem(times))
        ratios.append(half_width(times) / ((high - low) / 2))
    # 30 batches instead of 2,000 trials: t is 2.045 and not 1.961.
    assert np.mean(ratios) == pytest.approx(2.045 / 1.961, abs=0.03)


def ar1(rng, count, rho):
    """A series of times around 1 ms, each one correlated with the one before."""
    noise = rng.normal(0, 1, count) * math.sqrt(1 - rho * rho)
    values = np.empty(count)
    values[0] = rng.normal()
    for i in range(1, count):
        values[i] = rho * values[i - 1] + noise[i]
    return (1e6 + 50_000 * values).astype(np.int64)


@pytest.mark.parametrize(("rho", "plain_at_most"), [(0.0, 0.99), (0.8, 0.60)])
def test_the_interval_covers_the_mean_of_a_correlated_series(rho, plain_at_most):
    rng = np.random.default_rng(7)
    covered = plain = 0
    for _ in range(400):
        times = ar1(rng, 1_000, rho)
        found = describe(times)
        covered += found.ci_low_s <= 1e-3 <= found.ci_high_s
        plain += abs(times.mean() - 1e6) <= 1.962 * stats.sem(times)
    # The plain interval takes the trials for independent, and misses the mean most of the time.
    assert plain / 400 <= plain_at_most
    assert 0.90 <= covered / 400 <= 0.985


def test_a_correlated_series_has_a_wider_interval():
    times = ar1(np.random.default_rng(3), 10_000, 0.9)
    # The variance of the mean grows by (1 + rho) / (1 - rho) = 19.
    ratio = standard_error(times) / stats.sem(times)
    assert ratio == pytest.approx(math.sqrt(19), rel=0.3)


def coverage(count):
    """Exact chance that the median lies in the interval, from the binomial distribution."""
    low, high = median_interval(np.arange(count, dtype=float))
    assert low + high == count - 1  # as many values below as above
    return stats.binom.cdf(high, count, 0.5) - stats.binom.cdf(low, count, 0.5)


@pytest.mark.parametrize("count", [*range(6, 60), 100, 101, 625, 2500, 10_000])
def test_the_interval_of_the_median_covers_it(count):
    # The ranks are whole numbers, so the chance is 95 % or somewhat more; one rank less is too few.
    assert coverage(count) >= 0.95
    low, high = median_interval(np.arange(count, dtype=float))
    narrower = stats.binom.cdf(high - 1, count, 0.5) - stats.binom.cdf(low + 1, count, 0.5)
    assert narrower < 0.95


@pytest.mark.parametrize(
    ("count", "interval"), [(6, (0, 5)), (9, (1, 7)), (10, (1, 8)), (50, (17, 32))]
)
def test_the_ranks_of_the_medians_interval(count, interval):
    values = np.random.default_rng(0).permutation(count).astype(float)
    assert median_interval(values) == interval


@pytest.mark.parametrize("count", range(6))
def test_few_values_have_no_interval_of_the_median(count):
    assert all(map(math.isnan, median_interval(np.arange(count, dtype=float))))


@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=80))
def test_the_medians_interval_holds_the_median(values):
    low, high = median_interval(np.array(values))
    assert min(values) <= low <= np.median(values) <= high <= max(values)


def test_halves_that_differ_beyond_chance():
    assert halves_differ(np.repeat([1000, 1200], 100)) == (pytest.approx(0.2), True)
    assert halves_differ(np.repeat([1200, 900], 100)) == (pytest.approx(-0.25), True)
    assert halves_differ(np.full(200, 1000)) == (0.0, False)
    noise = np.random.default_rng(0).integers(500, 1500, 200)
    change, certain = halves_differ(noise)
    assert not certain
    assert halves_differ(7 * noise) == (pytest.approx(change), False)
