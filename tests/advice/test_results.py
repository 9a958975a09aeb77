"""How much a change brings, whether it helps, and the file of it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.advice.changes import WALL, Candidate
from chainer_profile.advice.results import (
    ADVICE,
    Advice,
    LayerGain,
    Tried,
    gain,
    ranked,
    read_advice,
    settled,
    write_json,
)
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.engines.results import Speedup
from chainer_profile.record.recording import Settings

CANDIDATE = Candidate("accelerate()", "why", "how", Change(kernels="numpy"))


def tried(factor, low, high, pairs=8, confirmed=True):
    found = Speedup(factor, low, high)
    return Tried(CANDIDATE, wall=found, cpu=found, pairs=pairs, confirmed=confirmed)


def test_the_interval_of_a_gain():
    found = gain([2.0, 8.0])
    # Logarithms 1 and 3 of base 2: mean 2, error 1; Student's t of one degree is 12.706.
    assert found.factor == pytest.approx(4.0)
    ends = [2 ** (2 - 12.7062), 2 ** (2 + 12.7062)]
    assert [found.low, found.high] == pytest.approx(ends, rel=1e-4)
    alone = gain([1.5])
    assert alone.factor == pytest.approx(1.5)
    assert math.isnan(alone.low)
    # It holds the truth in 95 of 100 cases.
    rng = np.random.default_rng(0)
    drawn = [gain(np.exp(rng.normal(0.05, 0.03, 6)).tolist()) for _ in range(2000)]
    held = np.mean([one.low < math.exp(0.05) < one.high for one in drawn])
    assert 0.94 < held < 0.96


@given(ratios=st.lists(st.floats(0.5, 2), min_size=3, max_size=12), scale=st.floats(0.5, 2))
def test_a_gain_scales_turns_round_and_lies_in_its_interval(ratios, scale):
    found, scaled = gain(ratios), gain([scale * one for one in ratios])
    turned = gain([1 / one for one in ratios])
    assert found.low <= found.factor * (1 + 1e-12)
    assert found.factor <= found.high * (1 + 1e-12)
    assert min(ratios) <= found.factor * (1 + 1e-9)
    assert scaled.factor == pytest.approx(scale * found.factor)
    assert scaled.low == pytest.approx(scale * found.low)
    assert turned.low == pytest.approx(1 / found.high)


def test_what_helps_what_is_not_known_and_when_no_more_is_measured():
    # Wall time decides where threads are more.
    by_wall = replace(CANDIDATE, decides=WALL)
    threads = replace(tried(1.2, 1.1, 1.3), candidate=by_wall, cpu=Speedup(0.9, 0.8, 0.95))
    for one, helps, is_open in (
        (tried(1.2, 1.1, 1.3), True, False),
        (tried(1.01, 1.005, 1.02), False, False),
        (tried(1.2, 0.99, 1.4), False, True),
        (tried(1.2, 1.1, 1.3, confirmed=False), False, True),
        (tried(1.2, 1.1, 1.3, pairs=1), False, True),
        (tried(0.8, math.nan, math.nan, pairs=1), False, True),
        (tried(0.8, 0.7, 0.9), False, False),
        (replace(tried(1.2, 1.1, 1.3), error="crashed"), False, False),
        (Tried(CANDIDATE), False, False),
        (threads, True, False),
        (replace(threads, candidate=CANDIDATE), False, False),
    ):
        assert (one.helps, one.open) == (helps, is_open), one
    for found, pairs, is_settled in (
        (Speedup(1.3, 1.28, 1.32), 6, True),
        (Speedup(1.3, 1.28, 1.32), 5, False),  # few pairs
        (Speedup(1.3, 1.2, 1.4), 6, False),  # wide
        (Speedup(0.9, 0.8, 1.01), 3, True),  # no gain is left
        (Speedup(1.0, 0.9, 1.02), 3, False),
    ):
        assert settled(found, pairs) == is_settled, found


def test_those_that_help_come_first_and_those_that_failed_last():
    good, better = tried(1.2, 1.1, 1.3), tried(1.4, 1.3, 1.5)
    vain, doubtful = tried(0.9, 0.8, 0.99), tried(1.5, 0.9, 2.0)
    failed = replace(better, error="crashed")
    assert ranked([failed, vain, good, doubtful, better]) == (better, good, doubtful, vain, failed)


def test_it_can_be_read_again(tmp_path):
    layers = (LayerGain("forward", "0_F", "/a", 2e-3, 1e-3),)
    found = (
        replace(tried(1.2, 1.1, 1.3), before_s=2e-3, after_s=1e-3, layers=layers),
        tried(1.2, math.nan, math.nan, pairs=1, confirmed=False),
        Tried(CANDIDATE, error="crashed"),
    )
    settings = Settings(model="net", threads=1)
    advice = Advice(found, (Untried("float16", "slow"),), settings=settings, budget_s=180.0)
    assert read_advice(tmp_path) is None
    text = write_json(advice)
    (tmp_path / ADVICE).write_text(text)
    read = read_advice(tmp_path)
    assert write_json(read) == text
    assert (read.tried[0], read.settings) == (found[0], settings)
    assert read.helping == found[:1]
