"""The rule that ends the trials when they are enough: honest however often it looks."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal

from chainer_profile.basics.describe import FIRST_LOOK, GROWTH, PreciseEnough, trials_interval


def looks_of(rule, samples):
    """At how many trials a rule looks, asked after every one."""
    seen, counts = [], range(1, len(samples) + 1)
    for count in counts:
        if rule.due(count):
            seen.append(count)
            rule.reached(samples[:count])
    return seen


def test_the_looks_are_few_and_ever_further_apart():
    never = np.tile([1_000, 9_000], 1_000)
    seen = looks_of(PreciseEnough(1e-9), never)
    assert seen[0] == FIRST_LOOK
    assert all(b >= GROWTH * a for a, b in pairwise(seen))
    assert len(seen) == 6


@given(st.lists(st.integers(1, 500), min_size=1, max_size=40))
def test_asked_late_it_looks_once_and_counts_from_there(steps):
    rule, count, last = PreciseEnough(1e-9), 0, 0.0
    samples = np.tile([1_000, 9_000], 10_000)
    for step in steps:
        count += step
        due = count >= max(FIRST_LOOK, GROWTH * last)
        assert rule.due(count) == due
        assert not rule.reached(samples[:count])
        last = count if due else last


@given(st.integers(0, FIRST_LOOK - 1))
def test_few_trials_are_never_enough(count):
    assert not PreciseEnough(1.0).reached(np.full(count, 1_000, np.int64))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(FIRST_LOOK, 5 * FIRST_LOOK),
    st.floats(0.001, 0.05),
)
def test_what_ends_the_trials_is_reported_as_narrow(seed, count, wanted):
    samples = np.random.default_rng(seed).integers(900, 1_100, count)
    if PreciseEnough(wanted).reached(samples):
        low, high = trials_interval(samples)
        assert (high - low) / 2 <= wanted * np.median(samples)


def test_the_chances_of_all_looks_add_up_to_five_per_cent(monkeypatch):
    asked = []

    def interval(samples, confidence):
        asked.append(1 - confidence)
        return math.nan, math.nan

    monkeypatch.setattr("chainer_profile.basics.describe.trials_interval", interval)
    samples = np.ones(10**6, np.int64)
    rule = PreciseEnough(0.01)
    count = 1
    while count <= len(samples):
        assert not rule.reached(samples[:count])
        count += max(1, count // 50)
    assert len(asked) >= 18
    assert 0.045 < sum(asked) < 0.05


def normal(rng, count):
    return 1 + 0.05 * rng.normal(size=count)


def correlated(rng, count):
    steps = rng.normal(size=count)
    steps[1:] *= math.sqrt(1 - 0.9**2)
    return 1 + 0.05 * signal.lfilter([1], [1, -0.9], steps)


def rarely_slow(rng, count):
    return (1 + 0.01 * rng.normal(size=count)) * np.where(rng.random(count) < 0.01, 20, 1)


@pytest.mark.parametrize(
    ("kind", "true", "most"),
    [(normal, 1, 4_000), (correlated, 1, 10_000), (rarely_slow, 1.000127, 400)],
)
def test_the_interval_is_right_when_the_trials_end(kind, true, most):
    """As a run asks it: after every 20 trials."""
    rng = np.random.default_rng(11)
    right = []
    for _ in range(200):
        samples = (1e6 * kind(rng, most)).astype(np.int64)
        rule = PreciseEnough(0.02)
        ends = (count for count in range(20, most + 1, 20) if rule.reached(samples[:count]))
        count = next(ends, None)
        if count is not None:
            low, high = trials_interval(samples[:count])
            right.append(low <= 1e6 * true <= high)
    assert len(right) >= 190
    assert np.mean(right) >= 0.90
