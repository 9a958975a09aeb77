from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile.engines.folded.fold import Node, fold, nodes_of
from chainer_profile.engines.trace import trace
from tests.engines.varied import Residual, given, images, vary

rng = np.random.default_rng(0)
W = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
V = rng.standard_normal((4, 4, 3, 3)).astype(np.float32)
B = rng.standard_normal(4).astype(np.float32)
VAR = rng.uniform(0.5, 1.5, 4).astype(np.float32)


def bn(x: Any) -> Any:
    return F.fixed_batch_normalization(x, VAR, B, B, VAR)


def folded(model: Callable[..., Any], *inputs: Any) -> list[Node]:
    traced = trace(lambda *arrays: model(*map(chainer.as_variable, arrays)), inputs)
    return fold(nodes_of(traced), traced.outputs)


def shown(nodes: list[Node]) -> list[tuple[str, tuple[int, ...], list[str]]]:
    return [(node.kind, node.layers, [after.kind for after in node.after]) for node in nodes]


X = images(2, 3, 6, 6)


def test_normalisation_goes_into_the_convolution_before_it() -> None:
    (node,) = folded(lambda x: F.relu(bn(F.convolution_2d(x, W, B, pad=1))), X)
    assert shown([node]) == [("convolution", (0, 1, 2), ["relu"])]
    scale = VAR / np.sqrt(VAR.astype(np.float64) + 2e-5)
    np.testing.assert_allclose(node.weight, (W.T * scale).T, rtol=1e-12)
    np.testing.assert_allclose(node.bias, (B - B) * scale + B, rtol=1e-12)


def test_what_is_needed_before_the_normalisation_keeps_it_apart() -> None:
    def model(x: Any) -> Any:
        h = F.convolution_2d(x, W, pad=1)
        return bn(h) * F.sigmoid(h)

    assert [node.kind for node in folded(model, X)] == [
        *("convolution", "affine", "sigmoid", "product")
    ]


def test_an_output_of_the_network_is_not_folded_away() -> None:
    def model(x: Any) -> Any:
        h = F.convolution_2d(x, W, pad=1)
        return h, bn(h)

    assert [node.kind for node in folded(model, X)] == ["convolution", "affine"]


def test_normalisation_goes_into_the_convolution_behind_it() -> None:
    def model(x: Any) -> Any:
        return F.convolution_2d(bn(F.relu(F.convolution_2d(x, W, pad=1))), V, pad=1)

    first, second = folded(model, X)
    assert shown([first, second]) == [
        ("convolution", (0, 1), ["relu"]),
        ("convolution", (2, 3), []),
    ]
    assert second.names == ("FixedBatchNormalization", "Convolution2DFunction")
    assert second.border.shape == (4,)


def test_a_shift_that_is_too_large_for_paddings_stays() -> None:
    tiny = np.full(4, 1e-12, np.float32)

    def model(x: Any) -> Any:
        h = F.fixed_batch_normalization(F.relu(x), tiny, B, B, VAR)
        return F.convolution_2d(h, V, pad=1)

    assert [node.kind for node in folded(model, images(1, 4, 5, 5))] == ["relu", "convolution"]
    assert folded(model, images(1, 4, 5, 5))[0].layers == (0, 1)


def test_a_shift_goes_through_a_pooling_that_counts_its_padding() -> None:
    def model(x: Any) -> Any:
        h = F.average_pooling_2d(F.relu(x) + 2, 3, stride=2, pad=1)
        return F.convolution_2d(h, V[:, :, :1, :1])

    relu, pool, conv = folded(model, images(1, 4, 5, 5))
    assert (pool.kind, pool.layers, pool.passes_on) == ("average_pooling", (1, 2), True)
    assert (conv.kind, conv.layers) == ("convolution", (1, 3))
    np.testing.assert_array_equal(pool.border, [-2] * 4)
    assert relu.layers == (0,)


def test_a_sum_is_done_by_the_later_of_the_two() -> None:
    def model(x: Any) -> Any:
        first = F.convolution_2d(x, W, pad=1)
        second = F.convolution_2d(x, W, pad=1)
        return F.relu(second + first)

    nodes = folded(model, X)
    assert shown(nodes) == [("convolution", (0,), []), ("convolution", (1, 2, 3), ["sum", "relu"])]
    assert nodes[1].after[0].inputs[1] is nodes[0].output


def test_twice_the_same_is_a_sum_of_its_own() -> None:
    def model(x: Any) -> Any:
        h = F.convolution_2d(x, W, pad=1)
        return h + h

    assert [node.kind for node in folded(model, X)] == ["convolution", "sum"]


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        (lambda x: x + np.ones((1, 3, 1, 1), "f"), ["affine"]),
        (lambda x: x + np.ones((6, 6), "f"), ["call"]),
        (lambda x: x * 3.0, ["affine"]),
        (lambda x: 3.0 - x, ["call"]),
        (lambda x: F.exp(x), ["call"]),
        (lambda x: F.convolution_2d(x, W[:3, :1], groups=3), ["call"]),
        (lambda x: F.convolution_2d(x, W, cover_all=True, stride=2), ["call"]),
        (lambda x: F.max_pooling_2d(x, 2), ["max_pooling"]),
        (lambda x: F.max_pooling_2d(x, 2, return_indices=True)[0], ["call"]),
        (lambda x: x * F.average_pooling_2d(x, 6), ["average_pooling", "product"]),
        (lambda x: F.convolution_2d(x, F.relu(W)), ["convolution"]),
    ],
)
def test_what_calls_become(model: Any, kinds: list[str]) -> None:
    assert [node.kind for node in folded(model, X)] == kinds


@pytest.mark.parametrize("name", ["resnet20", "resnet18-bottleneck", "se-resnet9-fixup"])
def test_no_layer_is_lost_and_nodes_stay_in_order(name: str) -> None:
    model, x = given(name)
    traced = trace(model, (x,))
    nodes = fold(nodes_of(traced), traced.outputs)
    assert {i for node in nodes for i in node.layers} == {call.index for call in traced.calls}
    known = {value.number for value in traced.inputs}
    for node in nodes:
        assert {value.number for value in node.takes} <= known
        known |= {value.number for value in node.outputs if value is not None}


def test_a_network_that_is_folded_has_no_normalisation_left() -> None:
    nodes = folded(vary(Residual()), X)
    assert shown(nodes) == [
        ("convolution", (0, 1, 2), ["relu"]),
        ("convolution", (3, 4, 5, 6), ["sum", "relu"]),
        ("average_pooling", (7,), []),
        ("reshape", (8,), []),
        ("linear", (9,), []),
    ]


def test_fixup_has_no_scalar_left() -> None:
    model, x = given("se-resnet9-fixup", side=64)
    assert not [node for node in folded(model, x) if node.kind == "affine"]
