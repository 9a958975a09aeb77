"""The outputs of engines are compared with Chainer's outputs."""

import math
from functools import partial

import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from chainer_profile.engines.equality import (
    chainer_intermediates,
    difference,
    other_inputs,
    with_other_parameters,
    worst_layer,
)
from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.race import Contestant, Race
from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from tests.engines.exporting import images, net, network_of
from tests.engines.fake_engines import FakeEngine

SOME = np.array([1.0, -4.0, 2.0], np.float32)


def test_difference_is_the_largest_of_all_outputs():
    result = difference((SOME, SOME), (SOME + np.float32(0.25), SOME * np.float32(1.5)))
    assert (result.largest, result.magnitude, result.relative) == (2.0, 4.0, 0.5)
    nan, inf, zero = (np.array([value, 1.0], np.float32) for value in (np.nan, np.inf, 0.0))
    for same in (nan, inf, zero, SOME[:0]):
        assert difference((same,), (same,)).relative == 0.0
    for expected, output in ((nan, zero), (zero, nan), (inf, zero), (zero, inf), (inf, -inf)):
        assert difference((expected,), (output,)).largest == math.inf
    assert difference((0 * SOME,), (SOME,)).relative == math.inf
    with pytest.raises(EngineError, match="returns 2 outputs, but Chainer 1 output"):
        difference((SOME,), (SOME, SOME))
    with pytest.raises(EngineError, match="output 0 has shape 1x3, but Chainer's has 3"):
        difference((SOME,), (SOME[None],))


def test_intermediates_identify_the_first_layer_that_differs():
    model = net(lambda net, x: F.dropout(F.relu(net.fc(x))) + 1, fc=L.Linear(3, 2))
    network = network_of(model, SOME[None])
    result = chainer_intermediates(network)
    assert sorted(result) == [0, 1, 2]
    expected = SOME[None] @ model.fc.W.array.T + model.fc.b.array
    np.testing.assert_allclose(result[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(result[1], np.maximum(result[0], 0))
    np.testing.assert_array_equal(result[2], result[1] + 1)

    def worst(intermediates):
        return worst_layer(result, intermediates, network.layers, 1e-4)

    beyond = {0: result[0], 1: result[1] + 1, 2: result[2] + 100}
    assert worst(beyond) == "the first layer that differs is 1_ReLU at /"
    within = {i: a * np.float32(1 + (1e-5 if i == 0 else 1e-6)) for i, a in result.items()}
    message = "the largest difference is in 0_LinearFunction at /fc"
    assert worst(within).endswith(message)
    # Layers without intermediates are not named.
    for intermediates in ({}, {0: result[0]}, {0: np.zeros(7)}):
        assert "fused layers cause" in worst(intermediates)


# Inputs and parameters that reveal errors.

SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0)


@given(
    st.one_of(
        npst.arrays(np.float32, SHAPES, elements=st.floats(-100, 100, width=32)),
        npst.arrays(np.int32, SHAPES, elements=st.integers(0, 9)),
        npst.arrays(np.bool_, SHAPES),
    )
)
def test_other_inputs_have_the_same_shapes_and_ranges(array):
    (other,) = other_inputs((array,))
    assert (other.shape, other.dtype) == (array.shape, array.dtype)
    if array.size and not (array.dtype.kind == "f" and array.min() == array.max()):
        assert array.min() <= other.min()
        assert other.max() <= array.max()
    if array.dtype.kind != "f":
        assert set(other.flat) <= set(array.flat)


def test_other_inputs_have_new_values():
    array = images(3, 4)
    (other,) = other_inputs((array,))
    assert abs(other.sum() - array.sum()) > 1e-3
    assert not np.array_equal(np.sort(other, None), np.sort(array, None))
    for number in (0.0, 2.5):
        (other,) = other_inputs((np.full((3, 4), number, np.float32),))
        assert len(set(other.flat)) == 12
    # NaN inputs stay NaN.
    (nothing,) = other_inputs((np.array([np.nan, np.nan], "f"),))
    assert np.isnan(nothing).all()


def test_errors_hidden_by_initial_parameters_are_found(clock):
    network = network_of(net(lambda net, x: net.bn(x), bn=L.BatchNormalization(3)), images(4, 3))
    passing = partial(
        FakeEngine, clock, function=lambda x: x
    )  # an engine that skips the normalisation
    for make, wrong in ((None, False), (passing, True)):
        ours = Contestant(name="chainer", engine=ChainerEngine())
        theirs = Contestant(name="x", engine=passing(), make=make)
        Race([ours, theirs], network, trials=2, clock=clock).run()
        assert theirs.wrong == wrong
    bn = network.model.bn
    assert (bn.gamma.array == 1).all()
    bn.gamma.array[...], bn.beta.array[...] = [1, 2, 3], [0, 1, 2]
    bn.avg_mean[...], bn.avg_var[...] = [0, 1, 2], [1, 2, 3]
    assert with_other_parameters(network.model) is None
