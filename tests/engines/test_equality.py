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
    other_inputs,
    with_other_parameters,
    worst_layer,
)
from chainer_profile.engines.protocol import EngineError, Network
from chainer_profile.engines.race import Contestant, Race
from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from tests.conftest import FakeClock
from tests.engines.exporting import images, network_of
from tests.engines.fake_engines import FakeEngine

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


# Inputs and parameters that hide nothing.

SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0)


@given(
    st.one_of(
        npst.arrays(np.float32, SHAPES, elements=st.floats(-100, 100, width=32)),
        npst.arrays(np.int32, SHAPES, elements=st.integers(0, 9)),
        npst.arrays(np.bool_, SHAPES),
    )
)
def test_they_are_of_the_same_shapes_and_within_the_same_limits(array: Any) -> None:
    (other,) = other_inputs((array,))
    assert (other.shape, other.dtype) == (array.shape, array.dtype)
    assert other is not array
    assert other.flags.c_contiguous
    if array.size and not (array.dtype.kind == "f" and array.min() == array.max()):
        assert array.min() <= other.min()
        assert other.max() <= array.max()
    if array.dtype.kind != "f":
        assert set(other.flat) <= set(array.flat)


@pytest.mark.parametrize("seed", range(5))
def test_they_are_no_permutation(seed: int) -> None:
    array = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
    (other,) = other_inputs((array,))
    assert abs(other.sum() - array.sum()) > 1e-3
    assert not np.array_equal(np.sort(other, None), np.sort(array, None))


@pytest.mark.parametrize("number", [0.0, 2.5])
def test_of_one_number_alone_they_are_others(number: float) -> None:
    (other,) = other_inputs((np.full((3, 4), number, np.float32),))
    assert len(set(other.flat)) == 12


def test_numbers_that_are_none_are_no_matter() -> None:
    (other,) = other_inputs((np.array([np.nan, 1, 2, np.inf], np.float32),))
    assert other.shape == (4,)
    (other,) = other_inputs((np.array([np.nan, np.nan], np.float32),))
    assert np.isnan(other).all()


class Normalised(chainer.Chain):
    """A network whose initial normalisation does nothing."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.bn = L.BatchNormalization(3)

    def forward(self, x: Any) -> Any:
        return self.bn(x)


class Passing(FakeEngine):
    """An engine that leaves out normalisations."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), function=lambda x: x)


def test_what_initial_parameters_hide_is_seen(clock: FakeClock) -> None:
    network = network_of(Normalised(), images(4, 3))
    for make, wrong in ((None, False), (Passing, True)):
        ours = Contestant(name="chainer", engine=ChainerEngine())
        theirs = Contestant(name="x", engine=Passing(), make=make)
        one = Race([ours, theirs], network, trials=2, clock=clock)  # type: ignore[arg-type]
        one.run()
        assert theirs.wrong == wrong
    kept = network.model.bn
    assert (kept.gamma.array == 1).all()
    kept.gamma.array[...], kept.beta.array[...] = [1, 2, 3], [0, 1, 2]
    kept.avg_mean[...], kept.avg_var[...] = [0, 1, 2], [1, 2, 3]
    assert with_other_parameters(network.model) is None
