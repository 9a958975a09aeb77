"""Gains of changes: their intervals, when a change helps, and the file of advice."""

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


def test_gain_has_a_95_percent_interval():
    # Base-2 logarithms 1 and 3: mean 2, error 1. Student's t with one degree of freedom is 12.706.
    pair = gain([2.0, 8.0])
    expected = [4.0, 2 ** (2 - 12.7062), 2 ** (2 + 12.7062)]
    assert [pair.factor, pair.low, pair.high] == pytest.approx(expected, rel=1e-4)
    assert gain([1.5]).factor == pytest.approx(1.5)
    assert math.isnan(gain([1.5]).low)
    # The interval contains the true gain in 95 % of cases.
    draws = np.exp(np.random.default_rng(0).normal(0.05, 0.03, (2000, 6)))
    covered = np.mean([g.low < math.exp(0.05) < g.high for g in map(gain, draws)])
    assert 0.94 < covered < 0.96


@given(ratios=st.lists(st.floats(0.5, 2), min_size=3, max_size=12), scale=st.floats(0.5, 2))
def test_gain_scales_inverts_and_lies_within_its_interval(ratios, scale):
    plain, scaled = gain(ratios), gain([scale * ratio for ratio in ratios])
    inverse = gain([1 / ratio for ratio in ratios])
    assert plain.low <= plain.factor * (1 + 1e-12)
    assert plain.factor <= plain.high * (1 + 1e-12)
    assert [scaled.factor, scaled.low] == pytest.approx([scale * plain.factor, scale * plain.low])
    assert inverse.low == pytest.approx(1 / plain.high)


def measured_change(change, factor, against=UNCHANGED, low=1.05):
    """A measured change. Its gain is certain if the interval begins above 1."""
    candidate = candidate_for_program(change, against)
    return ChangeResult(
        candidate, Speedup(factor, low, 3.0), pairs=9, confirmed=True, before_s=factor
    )


ONE, FAST, CHECKS = Change(threads=1), Change(kernels="numpy"), Change(config=("type_check",))


def test_combination_of_helpful_changes_is_reported_as_measured():
    both = ONE.with_(FAST)
    changes = [measured_change(ONE, 2.0), measured_change(both, 1.2, ONE)]
    measured = [measured_change(both, 2.2), measured_change(both, 1.1, low=0.9)]
    for combined in measured:
        assert together([*changes, combined]) is combined
    assert together([*changes, replace(measured[0], error="failed")]).pairs == 0
    # One change does not make a combination.
    assert together(changes[:1]) is together([]) is together([measured[1]]) is None


def test_unmeasured_combination_has_the_product_of_gains_and_no_interval():
    changes = [
        measured_change(ONE, 2.0),
        measured_change(ONE.with_(FAST), 1.5, ONE),
        measured_change(ONE.with_(CHECKS), 1.25, ONE),
        measured_change(ONE.with_(Change(kernels="torch")), 1.1, ONE),  # excludes the other kernels
    ]
    combined = together(changes)
    assert combined.wall.factor == pytest.approx(2.0 * 1.5 * 1.25)
    assert math.isnan(combined.wall.low)
    assert (combined.pairs, combined.helps) == (0, False)
    assert combined.candidate.change == ONE.with_(FAST).with_(CHECKS)
    assert combined.before_s / combined.after_s == pytest.approx(combined.wall.factor)


def test_when_a_change_helps_is_open_or_settled():
    good = tried(1.2, 1.1, 1.3)
    # Wall time decides if threads are added.
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
        (Speedup(1.3, 1.28, 1.32), 5, False),  # too few pairs
        (Speedup(1.3, 1.2, 1.4), 6, False),  # interval too wide
        (Speedup(0.9, 0.8, 1.01), 3, True),  # no gain is possible any more
        (Speedup(1.0, 0.9, 1.02), 3, False),
    ):
        assert settled(speedup, pairs) == is_settled, speedup


def test_ranking_puts_helpful_changes_first_and_failures_last():
    good, better = tried(1.2, 1.1, 1.3), tried(1.4, 1.3, 1.5)
    harmful, doubtful = tried(0.9, 0.8, 0.99), tried(1.5, 0.9, 2.0)
    failed = replace(better, error="crashed")
    assert ranked([failed, harmful, good, doubtful, better]) == (
        better,
        good,
        doubtful,
        harmful,
        failed,
    )


def test_advice_survives_a_round_trip_through_its_file(tmp_path):
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
