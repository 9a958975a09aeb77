"""Stragglers and slow ranks are found where a test plants them, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.comparison_simulated import OTHERS, TRIAL, WITHIN
from benchmarks.ranks import found_in, training
from chainer_profile.ranks.merging import merge
from chainer_profile.ranks.stragglers import judge, twice_median_elsewhere
from chainer_profile.record.recording import Layer

#: Indices of a convolution, a batch normalization and a ReLU in both halves of the network.
LAYERS = (0, 16, 29)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_straggler_is_found_at_its_rank_and_layer(size):
    for seed, layer in enumerate(LAYERS):
        rank = seed % size
        for milliseconds in (10.0, 30.0, 100.0):
            ranks = merge(training(size, seed=seed, planted_ms={(rank, layer): milliseconds}))
            assert found_in(ranks) == [(rank, layer, pytest.approx(milliseconds, rel=0.05))]
            each = ranks.judged.stragglers[0]
            assert each.low_s <= each.excess_s <= each.high_s
            assert each.here_s - each.elsewhere_s == pytest.approx(each.excess_s, rel=0.05)
            assert ranks.judged.slow == ()
            assert ranks.last[rank] == 1
        # Only in every fifth iteration.
        ranks = merge(training(size, seed=seed, planted_ms={(rank, layer): 15.0}, every=5))
        [each] = ranks.judged.stragglers
        assert (each.rank, ranks.computing[each.layer], each.at_times) == (rank, layer, True)
        assert abs(each.excess_s) < 0.5e-3
        assert each.mean_s == pytest.approx(3e-3, rel=0.1)
        assert each.late_s == pytest.approx(15e-3, rel=0.1)
        assert each.low_s <= each.mean_s <= each.high_s
        assert ranks.judged.slow == ()


def test_equal_ranks_have_no_stragglers():
    for size in (1, 2, 3, 8, 32):
        for seed in range(100, 105):
            judged = merge(training(size, seed=seed)).judged
            assert (judged.stragglers, judged.slow) == ((), ()), (size, seed)
    # Random interruptions of layers, on one rank or on all, make no straggler.
    for size in (2, 8):
        for interrupted in ([size - 1], range(size)):
            for often in (0.3, 3.0):
                how = dict.fromkeys(interrupted, often)
                for seed in range(10):
                    judged = merge(training(size, seed=seed, interrupted=how)).judged
                    assert judged.stragglers == (), (how, seed)


def larger_batch(size, seed, factor):
    """Times and layers of a small network. A larger batch slows the long layers of rank 1 most."""
    names = ["Convolution", "ReLU", "MaxPooling", "Convolution", "ReLU", "Linear", "SoftmaxLoss"]
    forward = np.array([4e6, 6e5, 1.5e6, 3e6, 2e5, 5e5, 1e5])
    typical = np.concatenate([forward, 2 * forward[::-1]])
    rows = [(name, "forward") for name in names] + [(name, "backward") for name in names[::-1]]
    layers = [Layer(index, f"/{index}", name, phase) for index, (name, phase) in enumerate(rows)]
    rng = np.random.default_rng(seed)
    process = np.exp(rng.normal(0, TRIAL, (size, 1)) + rng.normal(0, OTHERS, (size, len(layers))))
    times_ns = (typical * process)[:, None] * np.exp(rng.normal(0, WITHIN, (size, 30, len(layers))))
    times_ns[1] *= 1 + (factor - 1) * typical / (typical + 1e6)
    return np.rint(times_ns).astype(np.int64), layers


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_all_layers_slowed_by_a_larger_batch_are_reported(size, factor):
    for seed in range(20):
        judged = judge(*larger_batch(size, seed, factor), 0.03, 1e-6)
        stragglers = {each.layer for each in judged.stragglers}
        assert stragglers >= {0, 3, 10, 13}, "the convolutions, forward and backward"
        assert {each.rank for each in judged.stragglers} == {1}


def test_slow_rank_is_one_finding():
    for size in (2, 4, 8):
        ranks = merge(training(size, slow={1: 1.5}))
        [slow] = ranks.judged.slow
        assert slow.rank == 1
        assert slow.factor == pytest.approx(1.5, rel=0.1)
        computing = np.median(ranks.self_ns[1][:, ranks.computing].sum(axis=1)) * 1e-9
        assert slow.excess_s == pytest.approx(computing * (1 - 1 / slow.factor), rel=0.05)
        assert ranks.judged.stragglers == ()


def test_stragglers_and_slow_ranks_are_found_together():
    planted = {(1, 0): 20.0, (2, 16): 30.0}
    ranks = merge(training(4, slow={1: 1.5}, planted_ms=planted))
    assert [each.rank for each in ranks.judged.slow] == [1]
    stragglers = {(rank, layer): excess for rank, layer, excess in found_in(ranks)}
    assert stragglers == {at: pytest.approx(ms, rel=0.05) for at, ms in planted.items()}
    for slow in (2, 4):  # half of the ranks are slow
        planted = {(rank, 3): 30.0 for rank in range(slow)}
        stragglers = found_in(merge(training(2 * slow, planted_ms=planted)))
        assert sorted(each[:2] for each in stragglers) == sorted(planted)


@given(st.integers(2, 9).flatmap(lambda n: arrays(np.int64, (n, 3, 2), elements=st.integers(0, 9))))
def test_elsewhere_is_the_median_of_the_other_ranks(values):
    others = [np.median(np.delete(values, index, axis=0), axis=0) for index in range(len(values))]
    assert (twice_median_elsewhere(values) / 2).tolist() == np.array(others).tolist()
