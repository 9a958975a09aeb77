"""Outputs of engines against Chainer's."""

from __future__ import annotations

import math
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from chainer_profile.engines.equality import (
    chainer_intermediates,
    difference,
    host_copies,
    worst_layer,
)
from chainer_profile.engines.protocol import EngineError, Network
from tests.engines.exporting import network_of

ONE = np.array([1.0, -4.0, 2.0], np.float32)


def test_the_largest_difference_of_all_outputs() -> None:
    found = difference((ONE, ONE), (ONE + np.float32(0.25), ONE * np.float32(1.5)))
    assert (found.largest, found.magnitude, found.output) == (2.0, 4.0, 1)
    assert found.relative == 0.5


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_finite_number_must_be_so_in_both(value: float) -> None:
    odd = np.array([value, 1.0], np.float32)
    assert difference((odd,), (odd,)).relative == 0.0
    assert difference((odd,), (np.array([0.0, 1.0]),)).relative == math.inf
    assert difference((np.array([0.0, 1.0]),), (odd,)).relative == math.inf
    assert difference((odd,), (np.array([-value if value > 0 else 0.0, 1.0]),)).largest == math.inf


def test_outputs_of_another_number_or_shape_are_an_error_in_words() -> None:
    with pytest.raises(EngineError, match="gives 2 outputs, and Chainer 1 output"):
        difference((ONE,), (ONE, ONE))
    with pytest.raises(EngineError, match="output 0 has the shape 1x3, and Chainer's 3"):
        difference((ONE,), (ONE[None],))


def test_nothing_is_compared_of_empty_outputs() -> None:
    assert difference((ONE[:0],), (ONE[:0],)).relative == 0.0


def test_a_difference_from_nothing_but_zeros_is_infinite() -> None:
    zeros = np.zeros(3, np.float32)
    assert difference((zeros,), (zeros,)).relative == 0.0
    assert difference((zeros,), (ONE,)).relative == math.inf


arrays = npst.arrays(np.float32, (2, 3), elements=st.floats(-100, 100, width=32))


@settings(max_examples=30)
@given(arrays, arrays)
def test_a_difference_is_that_of_numpy_and_the_same_both_ways(a: Any, b: Any) -> None:
    found = difference((a,), (b,))
    assert found.largest == np.abs(a.astype(float) - b.astype(float)).max()
    assert found.largest == difference((b,), (a,)).largest
    assert difference((a,), (a,)).relative == 0.0


def test_copies_do_not_change_with_the_array() -> None:
    array = ONE.copy()
    (copy,) = host_copies((array,))
    array[:] = 0
    np.testing.assert_array_equal(copy, ONE)


class Net(chainer.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return F.dropout(F.relu(self.fc(x))) + 1


def network() -> Network:
    return network_of(Net(), ONE[None])


def test_chainers_intermediates_are_the_outputs_of_its_layers() -> None:
    net = network()
    found = chainer_intermediates(net)
    assert [layer.function for layer in net.layers] == ["LinearFunction", "ReLU", "AddConstant"]
    assert sorted(found) == [0, 1, 2]
    weights = net.model.fc
    expected = ONE[None] @ weights.W.array.T + weights.b.array
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(found[1], np.maximum(found[0], 0))
    np.testing.assert_array_equal(found[2], found[1] + 1)


def test_the_first_layer_beyond_the_tolerance_is_named() -> None:
    net = network()
    expected = chainer_intermediates(net)
    got = {i: a.copy() for i, a in expected.items()}
    got[1][...] += 1
    got[2][...] += 100
    said = worst_layer(expected, got, net.layers, 1e-4)
    assert said == "the first layer that differs is 1_ReLU at /"


def test_below_the_tolerance_it_is_the_layer_that_differs_most() -> None:
    net = network()
    expected = chainer_intermediates(net)
    got = {i: a * np.float32(1 + (1e-5 if i == 0 else 1e-6)) for i, a in expected.items()}
    said = worst_layer(expected, got, net.layers, 1e-4)
    assert said.endswith("the largest difference is that of 0_LinearFunction at /fc")


def test_layers_that_are_not_shown_are_not_blamed() -> None:
    net = network()
    expected = chainer_intermediates(net)
    for got in ({}, {0: expected[0]}, {0: np.zeros(7)}):
        assert "fused layers only" in worst_layer(expected, got, net.layers, 1e-4)
