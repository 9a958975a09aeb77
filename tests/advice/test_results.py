"""How much a change brings, whether it helps, and the file of it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.advice.changes import UNCHANGED, WALL, Candidate, candidate_for_program
from chainer_profile.advice.results import (
    Advice,
    ChangeResult,
    LayerGain,
    gain,
    ranked,
    read_advice,
    settled,
    together,
    write_json,
)
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.engines.results import Speedup
from chainer_profile.record.budget import ADVICE
from chainer_profile.record.recording import Settings

CANDIDATE = Candidate("accelerate()", "why", "how", Change(kernels="numpy"))


def tried(factor, low, high, pairs=8, confirmed=True):
    speedup = Speedup(factor, low, high)
    return ChangeResult(CANDIDATE, wall=speedup, cpu=speedup, pairs=pairs, confirmed=confirmed)


def test_the_interval_of_a_gain():
    # Logarithms 1 and 3 of base 2: mean 2, error 1; Student's t of one degree is 12.706.
    of_two = gain([2.0, 8.0])
    expected = [4.0, 2 ** (2 - 12.7062), 2 ** (2 + 12.7062)]
    assert [of_two.factor, of_two.low, of_two.high] == pytest.approx(expected, rel=1e-4)
    assert gain([1.5]).factor == pytest.approx(1.5)
    assert math.isnan(gain([1.5]).low)
    # It holds the truth in 95 of 100 cases.
    draws = np.exp(np.random.default_rng(0).normal(0.05, 0.03, (2000, 6)))
    held = np.mean([own.low < math.exp(0.05) < own.high for own in map(gain, draws)])
    assert 0.94 < held < 0.96


@given(ratios=st.lists(st.floats(0.5, 2), min_size=3, max_size=12), scale=st.floats(0.5, 2))
def test_a_gain_scales_turns_round_and_lies_in_its_interval(ratios, scale):
    own, scaled = gain(ratios), gain([scale * ratio for ratio in ratios])
    turned = gain([1 / ratio for ratio in ratios])
    assert own.low <= own.factor * (1 + 1e-12)
    assert own.factor <= own.high * (1 + 1e-12)
    assert [scaled.factor, scaled.low] == pytest.approx([scale * own.factor, scale * own.low])
    assert turned.low == pytest.approx(1 / own.high)


def alone(change, factor, against=UNCHANGED, low=1.05):
    """A change that was measured: its factor is certain where the interval begins above 1."""
    candidate = candidate_for_program(change, against)
    return ChangeResult(
        candidate, Speedup(factor, low, 3.0), pairs=9, confirmed=True, before_s=factor
    )


ONE, FAST, CHECKS = Change(threads=1), Change(kernels="numpy"), Change(config=("type_check",))


def test_all_changes_that_help_are_shown_together_as_they_were_measured():
    both = ONE.with_(FAST)
    changes = [alone(ONE, 2.0), alone(both, 1.2, ONE)]
    measured = [alone(both, 2.2), alone(both, 1.1, low=0.9)]
    for whole in measured:
        assert together([*changes, whole]) is whole
    assert together([*changes, replace(measured[0], error="failed")]).pairs == 0
    # One change is no sum of several.
    assert together(changes[:1]) is together([]) is together([measured[1]]) is None


def test_changes_that_were_not_measured_together_have_their_product_and_no_interval():
    changes = [
        alone(ONE, 2.0),
        alone(ONE.with_(FAST), 1.5, ONE),
        alone(ONE.with_(CHECKS), 1.25, ONE),
        alone(ONE.with_(Change(kernels="torch")), 1.1, ONE),  # excludes the other kernels
    ]
    whole = together(changes)
    assert whole.wall.factor == pytest.approx(2.0 * 1.5 * 1.25)
    assert math.isnan(whole.wall.low)
    assert (whole.pairs, whole.helps) == (0, False)
    assert whole.candidate.change == ONE.with_(FAST).with_(CHECKS)
    assert whole.before_s / whole.after_s == pytest.approx(whole.wall.factor)


def test_what_helps_what_is_not_known_and_when_no_more_is_measured():
    good = tried(1.2, 1.1, 1.3)
    # Wall time decides where threads are more.
    threads = replace(good, candidate=replace(CANDIDATE, decides=WALL), cpu=Speedup(0.9, 0.8, 0.95))
    for change, helps, is_open in (
        (good, True, False),
        (tried(1.01, 1.005, 1.02), False, False),
        (tried(1.2, 0.99, 1.4), False, True),
        (replace(good, confirmed=False), False, True),
        (replace(good, pairs=1), False, True),
        (tried(0.8, math.nan, math.nan, pairs=1), False, True),
        (tried(0.8, 0.7, 0.9), False, False),
        (replace(good, error="crashed"), False, False),
        (ChangeResult(CANDIDATE), False, False),
        (threads, True, False),
        (replace(threads, candidate=CANDIDATE), False, False),
    ):
        assert (change.helps, change.open) == (helps, is_open), change
    for speedup, pairs, is_settled in (
        (Speedup(1.3, 1.28, 1.32), 6, True),
        (Speedup(1.3, 1.28, 1.32), 5, False),  # few pairs
        (Speedup(1.3, 1.2, 1.4), 6, False),  # wide
        (Speedup(0.9, 0.8, 1.01), 3, True),  # no gain is left
        (Speedup(1.0, 0.9, 1.02), 3, False),
    ):
        assert settled(speedup, pairs) == is_settled, speedup


def test_those_that_help_come_first_and_those_that_failed_last():
    good, better = tried(1.2, 1.1, 1.3), tried(1.4, 1.3, 1.5)
    vain, doubtful = tried(0.9, 0.8, 0.99), tried(1.5, 0.9, 2.0)
    failed = replace(better, error="crashed")
    assert ranked([failed, vain, good, doubtful, better]) == (better, good, doubtful, vain, failed)


def test_it_can_be_read_again(tmp_path):
    layers = (LayerGain("forward", "0_F", "/a", 2e-3, 1e-3),)
    helps = replace(tried(1.2, 1.1, 1.3), before_s=2e-3, after_s=1e-3, layers=layers)
    single = tried(1.2, math.nan, math.nan, pairs=1, confirmed=False)
    settings = Settings(model="net", threads=1)
    advice = Advice((helps, single), (Untried("float16", "slow"),), settings=settings)
    assert read_advice(tmp_path) is None
    (tmp_path / ADVICE).write_text(write_json(advice))
    read = read_advice(tmp_path)
    assert write_json(read) == write_json(advice)
    assert (read.helping, read.settings) == ((helps,), settings)
