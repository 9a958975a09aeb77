"""Statistics agree with NumPy, SciPy and exact probabilities; the rule that ends the trials."""

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import signal, stats

from benchmarks import coverage
from chainer_profile.basics.describe import (
    BATCHES,
    FIRST_LOOK,
    LIMITING_BATCHES,
    MIN_TRIALS,
    PreciseEnough,
    batches,
    describe,
    describe_columns,
    halves_differ,
    median_interval,
    standard_errors,
    student_quantile,
    trials_interval,
)

samples = st.lists(st.integers(0, 10**13), min_size=1, max_size=120).map(
    lambda values: np.array(values, np.int64)
)
IN_ORDER = ("min_s", "p5_s", "median_s", "p95_s", "p99_s", "max_s")
ALL = (*IN_ORDER, "mean_s", "std_s", "ci_low_s", "ci_high_s")


def relative(expected):
    return pytest.approx(expected, rel=1e-12, abs=1e-21)


@example(np.array([10**13, 10**13 - 1]), 999)
@example(np.array([10**13, 10**13, 10**13 - 1]), 7)
@given(samples, st.integers(1, 1000))
def test_describe_agrees_with_numpy_in_any_unit(times, factor):
    times.flags.writeable = False
    statistics, count = describe(times), len(times)
    assert statistics.count == count
    assert statistics.mean_s == relative(times.mean() * 1e-9)
    for name, q in zip(IN_ORDER, (0, 5, 50, 95, 99, 100), strict=True):
        assert getattr(statistics, name) == relative(np.percentile(times, q) * 1e-9)
    ordered = [getattr(statistics, name) for name in IN_ORDER]
    assert ordered == sorted(ordered)
    assert statistics.min_s <= statistics.mean_s * (1 + 1e-15)
    assert statistics.mean_s <= statistics.max_s * (1 + 1e-15)
    if count > 1:
        assert statistics.std_s == relative(times.std(ddof=1) * 1e-9)
    assert math.isnan(statistics.std_s) is (count == 1)
    interval = (statistics.ci_low_s, statistics.ci_high_s)
    if count < MIN_TRIALS:
        assert all(map(math.isnan, interval))
    else:  # the interval lies within the sample
        ends = [statistics.min_s, interval[0], statistics.median_s, interval[1], statistics.max_s]
        assert ends == sorted(ends)
    scaled = describe(times * factor)
    # The deviations of long times that are nearly equal have few digits.
    rounding_s = 1e-15 * max(1.0, scaled.max_s)
    for name in ALL:
        assert getattr(scaled, name) == pytest.approx(
            getattr(statistics, name) * factor, rel=1e-9, abs=rounding_s, nan_ok=True
        )
    assert scaled.spread == pytest.approx(statistics.spread, rel=1e-9, abs=1e-15, nan_ok=True)


def test_describe_of_constant_and_extreme_samples():
    with pytest.raises(ValueError, match="at least one sample"):
        describe(np.zeros(0, np.int64))
    for value in (0, 1, 333_333_333, 10**15 + 7):
        statistics = describe(np.full(100, value, np.int64))
        assert statistics.std_s == pytest.approx(0, abs=1e-15 * value * 1e-9)
        for name in set(ALL) - {"std_s"}:
            assert getattr(statistics, name) == relative(value * 1e-9)
    halves = describe(np.repeat([1000, 3000], 50))
    assert halves.half_width == relative(0.5)  # from 1,000 to 3,000
    assert describe(np.array([1000, 1000, 4000], np.int64)).spread == relative(math.sqrt(3) / 2)
    # A sum of floats would round the ones off.
    assert describe(np.array([2**53, 1, 1], np.int64)).mean_s == (2**53 + 2) / 3 * 1e-9


@given(st.integers(1, 70), st.integers(0, 9), st.integers(0, 2**32 - 1), st.integers(1, 400))
def test_describe_columns_equals_describe_of_each_column(count, width, seed, chunk):
    times = np.random.default_rng(seed).integers(0, 10**10, (count, width))
    with mock.patch("chainer_profile.basics.describe._CHUNK", chunk):
        table = describe_columns(times)
    for index in range(width):
        alone = describe(times[:, index])
        for name, values in table.items():
            np.testing.assert_array_equal(values[index], getattr(alone, name))
    assert all(values.shape == (width,) for values in table.values())


# -- batches, and the interval of correlated trials


def test_trials_interval_of_independent_and_disturbed_trials():
    # Independent trials: the ranks are quantiles of the binomial distribution.
    times = np.random.default_rng(0).permutation(100)
    assert trials_interval(times) == median_interval(times.astype(float)) == (39, 60)
    # Trials with two levels: the interval has both, because either may last.
    assert trials_interval(np.repeat([1_000, 1_010], 500)) == (1_000, 1_010)
    # The second half was disturbed by another program: the interval ends at medians of batches.
    rng = np.random.default_rng(3)
    first, second = rng.integers(5_900, 6_300, 500), rng.integers(9_000, 18_000, 500)
    low, high = trials_interval(np.concatenate([first, second]))
    assert first.min() < low < np.percentile(first, 50)
    assert np.percentile(second, 50) < high < second.max()


def test_slow_drift_widens_the_interval_by_at_most_the_drift():
    # The machine becomes 10 % faster, and every 50th trial is slow.
    rng = np.random.default_rng(0)
    times = np.linspace(6.4e6, 5.8e6, 1_000) * (1 + 0.01 * rng.standard_normal(1_000))
    times[::50] *= rng.uniform(1.5, 4, 20)
    low, high = trials_interval(times.astype(np.int64))
    assert low == pytest.approx(5.8e6, rel=0.01)
    assert high == pytest.approx(6.4e6, rel=0.01)
    assert high < np.percentile(times, 95)


@st.composite
def series(draw):
    """Strategy of times in ns: independent, correlated, quantized or bimodal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, rho = draw(st.integers(MIN_TRIALS, 700)), draw(st.sampled_from([0, 0.5, 0.9, 0.999]))
    varied = ar1(rng, count, rho)[0]
    slow = ar1(rng, count, rho)[0] > draw(st.sampled_from([950_000, 1_010_000, 1_300_000]))
    step = draw(st.sampled_from([1, 1_000, 100_000]))
    return varied // step * step + slow * draw(st.sampled_from([0, 300_000, 10**8]))


@given(series())
def test_interval_lies_within_order_statistics_and_contains_the_median(times):
    low, high = trials_interval(times)
    median = np.median(times)
    inner_low, inner_high = median_interval(times.astype(float))
    assert times.min() <= low <= inner_low <= median <= inner_high <= high <= times.max()
    # The interval is at most as wide as by order statistics alone, or by medians of batches.
    with mock.patch("chainer_profile.basics.describe._extreme_medians", return_value=(0, math.inf)):
        by_ranks = trials_interval(times)
    assert by_ranks[0] <= low <= high <= by_ranks[1]
    half_batch = len(times) // LIMITING_BATCHES // 2
    parts = (times, times[: len(times) - half_batch])
    medians = [np.median(batches(part[None], LIMITING_BATCHES, 1)[0], axis=1) for part in parts]
    assert min(inner_low, *map(min, medians)) <= low
    assert high <= max(inner_high, *map(max, medians))


@given(series(), st.integers(1, 1_000), st.integers(-(10**9), 10**9))
def test_interval_scales_shifts_and_mirrors_with_the_trials(times, factor, shift):
    low, high = trials_interval(times)
    changed = trials_interval(times * factor + shift)
    assert changed == (low * factor + shift, high * factor + shift)
    assert trials_interval(-times) == (-high, -low)


def ar1(rng, count, rho, rows=1):
    """Make first-order autoregressive series of times around 1 ms, (rows, count)."""
    steps = rng.normal(0, 1, (rows, count))
    steps[:, 1:] *= math.sqrt(1 - rho * rho)
    return (1e6 + 50_000 * signal.lfilter([1], [1, -rho], steps)).astype(np.int64)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_intervals_cover_the_median_and_the_mean_of_a_correlated_series(rho):
    for count in (100, 1_000):
        times = ar1(np.random.default_rng(7), count, rho, rows=1_000)
        columns = describe_columns(times.T)
        low, high = columns["ci_low_s"], columns["ci_high_s"]
        known = ~np.isnan(low)
        # Some series of few, strongly correlated trials have no interval.
        assert known.mean() >= (0.6 if rho > 0.5 else 0.99)
        covered = ((low <= 1e-3) & (high >= 1e-3))[known].mean()
        assert 0.90 <= covered <= 0.99
    rows = ar1(np.random.default_rng(5), 1_000, rho, rows=500)
    reach = stats.t.ppf(0.975, BATCHES - 1) * standard_errors(batches(rows).mean(axis=2))
    assert 0.93 <= (abs(rows.mean(axis=1) - 1e6) <= reach).mean() <= 0.99


@pytest.mark.parametrize("name", coverage.KINDS)
def test_interval_contains_the_median_in_93_to_98_percent_of_runs(name):
    for count in (100, 1_000):
        width, right = coverage.simulate_length(name, count, runs=1_000)
        assert coverage.within(right, 1_000, 0.93, 0.98), count
        assert (width, right) == coverage.simulate_length(name, count, runs=1_000)


@pytest.mark.parametrize("name", coverage.SLOW_DRIFTS)
def test_interval_contains_the_median_of_slow_drifts(name):
    width, right = coverage.simulate_length(name, 10_000, runs=200)
    assert coverage.within(right, 200, 0.93, 0.98)
    assert width < 0.065  # the drifts are 3 and 5 %


@given(st.integers(1, 300), st.floats(0.5, 0.9999))
def test_student_quantile_agrees_with_scipy(degrees, confidence):
    expected = stats.t.ppf((1 + confidence) / 2, degrees)
    assert student_quantile(degrees, confidence) == pytest.approx(expected, rel=1e-9)


# -- the median of independent samples


def test_median_interval_has_the_narrowest_ranks_for_95_percent():
    # The ranks are integers, so the probability is 95 % or more, and less than 95 % for one less.
    for count in (*range(6, 60), 100, 101, 625, 2500, 10_000, 999_999):
        low, high = median_interval(np.arange(count, dtype=float))
        assert low + high == count - 1  # as many values below as above
        chances = (
            stats.binom.cdf(high - less, count, 0.5) - stats.binom.cdf(low + less, count, 0.5)
            for less in (0, 1)
        )
        assert [chance >= 0.95 for chance in chances] == [True, False], count
    intervals = {6: (0, 5), 9: (1, 7), 10: (1, 8), 50: (17, 32)}
    rng = np.random.default_rng(0)
    assert {n: median_interval(rng.permutation(n).astype(float)) for n in intervals} == intervals
    for count in range(6):
        assert all(map(math.isnan, median_interval(np.arange(count, dtype=float))))


def test_halves_differ_only_beyond_chance():
    assert halves_differ(np.repeat([1000, 1200], 100)) == (pytest.approx(0.2), True)
    assert halves_differ(np.repeat([1200, 900], 100)) == (pytest.approx(-0.25), True)
    assert halves_differ(np.full(200, 1000)) == (0.0, False)
    noise = np.random.default_rng(0).integers(500, 1500, 200)
    change, certain = halves_differ(noise)
    assert not certain
    assert halves_differ(7 * noise) == (pytest.approx(change), False)


# -- the rule that ends the trials: its error probability does not depend on the number of tests


@given(st.integers(0, 2**32 - 1), st.integers(0, 5 * FIRST_LOOK), st.floats(0.001, 0.05))
@example(seed=2449, count=541, target=0.015625)
def test_trials_end_only_if_the_reported_interval_is_narrow(seed, count, target):
    samples = np.random.default_rng(seed).integers(900, 1_100, count)
    if PreciseEnough(target).reached(samples):
        low, high = trials_interval(samples)
        assert (high - low) / 2 <= target * np.median(samples)
    assert not PreciseEnough(1.0).reached(np.full(count % FIRST_LOOK, 1_000, np.int64))


def test_error_probabilities_of_all_interim_tests_add_up_to_five_percent(monkeypatch):
    error_probabilities = []

    def interval(samples, confidence):
        error_probabilities.append(1 - confidence)
        return math.nan, math.nan

    monkeypatch.setattr("chainer_profile.basics.describe.trials_interval", interval)
    rule, samples, count = PreciseEnough(0.01), np.ones(10**6, np.int64), 1
    while count <= len(samples):
        assert not rule.reached(samples[:count])
        count += max(1, count // 50)
    assert len(error_probabilities) >= 18
    assert 0.045 < sum(error_probabilities) < 0.05


@pytest.mark.parametrize("name", coverage.KINDS)
def test_interval_contains_the_median_when_trials_stop_early(name):
    kind, typical = coverage.KINDS[name]
    rng = np.random.default_rng(11)
    target = 0.1 if "50 %" in name else 0.02
    ends = [coverage.stopped(kind, target, rng) for _ in range(200)]
    true_ns = coverage.TYPICAL_NS * typical
    right = [low <= true_ns <= high for low, high in map(trials_interval, ends)]
    assert np.mean(right) >= 0.90
