"""Statistics of two samples of timings, checked against SciPy and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, mannwhitneyu, ttest_ind

from benchmarks.comparison_simulated import same_code, slower_code
from chainer_profile.comparison import judge as judging
from chainer_profile.comparison.judge import Judge
from chainer_profile.comparison.significance import (
    Groups,
    block_times,
    common_part,
    discovery_corrected,
    judge_repeated,
    log_intervals,
    n_blocks,
    rank_test,
    variance_prior,
)


def test_blocks_are_the_last_trials():
    for count, blocks in ((0, 0), (1, 1), (30, 30), (31, 30), (800, 40), (10_000, 50)):
        assert n_blocks(count) == blocks, count
    samples = np.arange(62)[:, None] * 10
    samples[:2] = 10**9
    medians = block_times(samples)
    assert medians.shape == (30, 1)
    assert medians[0, 0] == 25
    assert block_times(np.zeros((0, 3), np.int64)).shape == (0, 3)


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(2, 40), st.booleans())
def test_rank_test_and_correction_equal_scipy(seed, n, m, tied):
    rng = np.random.default_rng(seed)
    before, after = rng.random((n, 3)), rng.random((m, 3)) + 0.1
    if tied:
        before, after = np.round(before, 1), np.round(after, 1)
    expected = mannwhitneyu(before, after, axis=0, method="asymptotic").pvalue
    np.testing.assert_allclose(rank_test(before, after), expected, rtol=1e-9)
    np.testing.assert_array_equal(rank_test(before, after), rank_test(after, before))
    p_values = rng.random(n).round(1 if tied else 9)
    np.testing.assert_allclose(discovery_corrected(p_values), false_discovery_control(p_values))
    assert discovery_corrected(p_values[:0]).size == 0


def test_intervals_cover_the_true_ratio():
    rng = np.random.default_rng(3)
    before, after = (rng.gamma(400, scale, (50, 400)) for scale in (1.0, 1.1))
    low, high = log_intervals(before, after)
    covered = (low <= np.log(1.1)) & (np.log(1.1) <= high)
    assert 0.90 <= covered.mean() <= 0.99


def groups(function, shape=None):
    numbers = np.array(function)
    return Groups(shape=numbers if shape is None else np.array(shape), function=numbers)


def test_common_change_is_by_shape_then_by_function_then_by_network():
    function = groups([0] * 12 + [1] * 9 + [2] * 2, [0] * 5 + [1] * 5 + [2] * 2 + [3] * 9 + [4] * 2)
    logs = np.array([0.1] * 4 + [5.0] + [0.2] * 5 + [7.0, 0.0] + [0.3] * 9 + [9.0, np.nan])
    common = common_part(logs, function)[0]
    assert common[:5].tolist() == [0.1] * 5
    assert common[5:10].tolist() == [0.2] * 5
    assert set(common[10:12]) == {0.2}
    assert common[12:21].tolist() == [0.3] * 9
    assert set(common[21:]) == {np.median(logs[:22])}
    few = np.array([0.5, np.nan, 0.2])
    assert common_part(few, groups([0, 0, 0]))[0].tolist() == [0.5, 0, 0.2]


@pytest.mark.parametrize("runs", [3, 5])
def test_p_values_are_uniform_although_the_median_is_subtracted(runs, monkeypatch):
    rng = np.random.default_rng(11)
    judge = Judge(0.0, (1.0, 1.0), several=True, window_s=0.0)
    own = np.repeat([0.01, 0.10], 14)
    sevens = groups(np.repeat([0, 1], 14), np.repeat(range(4), 7))
    monkeypatch.setattr(judging, "discovery_corrected", lambda p_values: p_values)
    p_values = []
    for _ in range(300):
        level, layer = rng.normal(0, 0.03, (2 * runs, 1)), rng.normal(0, own, (2 * runs, 28))
        samples = [row[None] for row in np.rint(1e9 * np.exp(level + layer)).astype(np.int64)]
        p_values.append(judge.layers(samples[:runs], samples[runs:], sevens)[0]["p_value"])
    assert (np.array(p_values) < 0.05).mean() <= 0.07
    assert (np.array(p_values) < 0.2).mean() >= 0.12


def test_common_variance_is_estimated():
    """Variances follow the model: chi-squared around scaled inverse chi-squared ones."""
    rng = np.random.default_rng(6)
    true = 0.02**2 * 10 / rng.chisquare(10, 20_000)
    variance, degrees = variance_prior(true * rng.chisquare(4, 20_000) / 4, 4)
    assert (variance, degrees) == (pytest.approx(0.02**2, rel=0.05), pytest.approx(10, rel=0.1))
    # Equal variances have infinite degrees of freedom. Two variances are too few for an estimate.
    assert variance_prior(np.full(100, 3.0), 4)[1] == float("inf")
    assert variance_prior(np.array([1.0, 2.0]), 4) == (0.0, 0.0)


def test_repeated_runs_are_judged_by_moderated_t_tests():
    rng = np.random.default_rng(8)
    before, after = rng.normal(0, 1, (4, 1)), rng.normal(0.5, 1, (3, 1))
    judged = judge_repeated(before, after, np.zeros(1))
    expected = ttest_ind(after, before, axis=0)
    np.testing.assert_allclose(judged.p_value, expected.pvalue)
    interval = expected.confidence_interval()
    np.testing.assert_allclose([judged.low, judged.high], [interval.low, interval.high])
    # The variances of many layers are moderated. Without a difference, p-values are uniform.
    rng = np.random.default_rng(9)
    sigma = 0.01 * np.sqrt(8 / rng.chisquare(8, 4000))
    before, after = rng.normal(0, sigma, (2, 4000)), rng.normal(0, sigma, (2, 4000))
    p_values = judge_repeated(before, after, np.zeros(4000)).p_value
    for level in (0.01, 0.05, 0.5):
        assert (p_values < level).mean() == pytest.approx(level, rel=0.35)


def test_simulations_keep_the_promises_of_docs_compare_md():
    """Run a few of the simulated comparisons of benchmarks/."""
    single, five = same_code(1, 40), same_code(5, 30)
    assert max(single.layers, five.layers) <= 0.01
    assert single.gate <= 0.03
    assert five.any_layer <= 0.15
    assert slower_code("Convolution2DFunction", 5, 12) >= 0.8
