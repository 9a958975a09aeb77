from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.engines.folded import plan as plan_module
from chainer_profile.engines.folded.fold import fold, nodes_of
from chainer_profile.engines.folded.plan import Plan
from chainer_profile.engines.trace import trace
from tests.engines.varied import images, output, relative


def planned(model: Any, *inputs: Any) -> Plan:
    traced = trace(lambda *arrays: model(*map(chainer.as_variable, arrays)), inputs)
    return Plan(fold(nodes_of(traced), traced.outputs), traced.inputs, traced.outputs, np)


def assert_same(model: Any, *inputs: Any) -> Plan:
    """Two passes on other inputs than those that the plan was made with."""
    plan = planned(model, *inputs)
    for seed in (7, 8):
        others = tuple(images(*x.shape, seed=seed + k) for k, x in enumerate(inputs))
        expected = output(model, *map(chainer.as_variable, others))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for want, got in zip(expected, plan(others), strict=True):
            assert want.shape == got.shape
            assert want.dtype == got.dtype
            # A window that holds padding alone has no maximum.
            finite = np.isfinite(want.array)
            np.testing.assert_array_equal(want.array[~finite], got[~finite])
            assert relative(np.where(finite, want.array, 0), np.where(finite, got, 0)) < 1e-5
    return plan


class Drawn:
    """A network that is drawn step by step; its steps are made anew at every call."""

    def __init__(self, data: st.DataObject) -> None:
        self.steps: list[Any] = []
        self._draw = data.draw
        self._rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        for _ in range(data.draw(st.integers(1, 7))):
            kind = self._draw(
                st.sampled_from(
                    ["conv", "conv", "bn", "scalar", "relu", "max", "average", "add", "mul", "exp"]
                )
            )
            self.steps.append((kind, self._settings(kind)))

    def _numbers(self, *shape: int) -> Any:
        return self._rng.uniform(0.5, 1.5, shape).astype(np.float32)

    def _settings(self, kind: str) -> Any:
        small = st.integers(1, 3)
        if kind == "conv":
            k = self._draw(small)
            stride, pad, dilate = self._draw(small), self._draw(st.integers(0, 2)), 1
            if self._draw(st.booleans()):
                dilate = 2
            bias = self._rng.standard_normal(4).astype(np.float32)
            weight = self._rng.standard_normal((4, 4, k, k)).astype(np.float32) / (2 * k)
            return weight, bias if self._draw(st.booleans()) else None, stride, pad, dilate
        if kind in ("max", "average"):
            k = self._draw(st.integers(2, 3))
            return k, self._draw(small), self._draw(st.integers(0, k - 1))
        if kind in ("add", "mul"):
            return self._draw(st.integers(0, 7))
        return self._numbers(4), self._rng.standard_normal(4).astype(np.float32)

    def __call__(self, x: Any) -> Any:
        h = F.identity(x)
        seen = [h]
        for kind, values in self.steps:
            if kind == "conv":
                weight, bias, stride, pad, dilate = values
                needed = (weight.shape[2] - 1) * dilate + 1
                if min(h.shape[2:]) + 2 * pad < needed:
                    continue
                h = F.convolution_2d(h, weight, bias, stride=stride, pad=pad, dilate=dilate)
            elif kind == "bn":
                h = F.fixed_batch_normalization(h, values[0], values[1], values[1], values[0])
            elif kind == "scalar":
                h = h * values[0][:1] + values[1][:1]
            elif kind == "relu":
                h = F.relu(h)
            elif kind in ("max", "average"):
                k, stride, pad = values
                if min(h.shape[2:]) < k:
                    continue
                pool = F.max_pooling_2d if kind == "max" else F.average_pooling_2d
                h = pool(h, k, stride, pad)
            elif kind == "exp":
                h = F.exp(F.tanh(h))
            else:
                alike = [other for other in seen if other.shape == h.shape]
                if alike:
                    other = alike[values % len(alike)]
                    h = h + other if kind == "add" else h * F.tanh(other)
            seen.append(h)
        return h, seen[len(seen) // 2]


@settings(max_examples=120)
@given(st.data())
def test_a_plan_gives_what_chainer_gives(data: st.DataObject) -> None:
    model = Drawn(data)
    shape = data.draw(st.integers(1, 3)), 4, data.draw(st.integers(3, 7)), 5
    assert_same(model, images(*shape))


W = images(5, 4, 3, 3, seed=1)


@pytest.mark.parametrize("nbytes", [1, 2000, 10**7])
@pytest.mark.parametrize("pad", [0, 1])
def test_patches_in_parts(monkeypatch: pytest.MonkeyPatch, nbytes: int, pad: int) -> None:
    monkeypatch.setattr(plan_module, "PATCHES_NBYTES", nbytes)

    def model(x: Any) -> Any:
        h = F.relu(F.convolution_2d(x, W, pad=1))
        h = F.convolution_2d(h, images(5, 5, 3, 3), images(5), pad=pad)
        return F.relu(h + F.convolution_2d(x, W, images(5), pad=pad))

    assert_same(model, images(3, 4, 9, 5))


PER_CHANNEL = tuple(abs(images(4, seed=seed)) for seed in range(4))


def views_of_one(x: Any) -> Any:
    """A value with two views, of which the later one is needed after much else."""
    h = F.linear(F.reshape(x, (2, -1)), images(16, 144))
    first, second = F.reshape(h, (4, 8)), F.reshape(h, (8, 4))
    other = F.relu(first)
    for _ in range(3):
        other = F.tanh(F.linear(F.reshape(other, (2, 16)), images(16, 16)))
    return F.matmul(F.reshape(other, (4, 8)), second)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: F.space2depth(F.relu(x), 2),
        lambda x: F.convolution_2d(F.space2depth(x, 2), images(3, 16, 1, 1)),
        lambda x: F.sigmoid(x) * F.reshape(F.sigmoid(F.average_pooling_2d(x, 6)), (2, 4, 1, 1)),
        lambda x: F.linear(F.reshape(F.average_pooling_2d(x, 6), (2, 4)), images(3, 4), images(3)),
        lambda x: F.relu(F.linear(F.reshape(F.max_pooling_2d(x, 2), (2, -1)), images(3, 36)) + 1),
        lambda x: F.linear(
            F.fixed_batch_normalization(
                F.reshape(x, (2, -1)), *(abs(images(144, seed=k)) for k in range(4))
            ),
            images(3, 144),
        ),
        lambda x: F.max_pooling_2d(x, 3, stride=2, pad=1, cover_all=True),
        lambda x: F.max_pooling_2d(x, 5, stride=4, pad=2, cover_all=False),
        lambda x: F.concat([F.relu(x), F.softmax(x)], axis=1),
        lambda x: F.split_axis(x, 2, axis=1),
        lambda x: F.transpose(F.reshape(x, (2, 2, 12, 6)), (0, 2, 1, 3)),
        lambda x: (
            F.convolution_2d(F.relu(x) + images(1)[0], W, pad=2)
            + F.convolution_2d(F.relu(x) * 2, W, pad=2)
        ),
        lambda x: (x, F.relu(x)),
        lambda x: F.deconvolution_2d(x, images(4, 3, 2, 2), stride=2),
        lambda x: F.reshape(F.convolution_2d(x, W), (2, -1)),
        lambda x: F.relu(F.average_pooling_2d(F.relu(x) - 1, 3, 2, 1)),
        lambda x: F.convolution_2d(x, images(3, 4, 1, 1), images(3), stride=2),
        lambda x: F.convolution_2d(F.convolution_2d(x, W, pad=1), images(3, 5, 1, 1), images(3)),
        # A node whose output another takes as the second operand of a sum within it.
        lambda x: F.relu(x) * 0.5 + F.convolution_2d(x, images(4, 4, 3, 3), pad=1),
        lambda x: F.relu(F.fixed_batch_normalization(x, *PER_CHANNEL)) + (x + images(1)[0]),
        lambda x: F.relu(x) + F.relu(F.fixed_batch_normalization(x, *PER_CHANNEL) + 1),
        # A view of the image's axes does not lie with its channels last.
        lambda x: F.convolution_2d(F.reshape(F.reshape(x, (2, -1)), (2, 4, 6, 6)), W),
        lambda x: F.convolution_2d(
            F.reshape(F.linear(F.reshape(x, (2, -1)), images(36, 144)), (2, 4, 3, 3)), W
        ),
        lambda x: F.convolution_2d(
            F.reshape(F.tanh(F.reshape(x, (2, -1))), (2, 9, 4, 4)), images(3, 9, 1, 1)
        ),
        lambda x: F.convolution_2d(
            F.reshape(F.tanh(F.reshape(x, (2, -1))), (2, 1, 12, 12)), images(3, 1, 3, 3)
        ),
        # The memory of several views.
        views_of_one,
    ],
)
def test_single_functions(model: Any) -> None:
    assert_same(model, images(2, 4, 6, 6))


def test_an_input_that_two_paddings_want() -> None:
    def model(x: Any) -> Any:
        wide = F.convolution_2d(x, images(5, 4, 5, 5), pad=2)
        shifted = F.convolution_2d(x + 3, W, pad=1)
        return wide + shifted + F.convolution_2d(x, W, pad=1)

    assert_same(model, images(2, 4, 6, 6))


def test_several_inputs() -> None:
    assert_same(lambda a, b: F.matmul(a, b) + F.relu(a), images(3, 3), images(3, 3, seed=4))


def test_results_are_not_overwritten_by_the_next_pass() -> None:
    plan = planned(lambda x: F.relu(F.convolution_2d(x, W)), images(1, 4, 5, 5))
    (first,) = plan((images(1, 4, 5, 5, seed=1),))
    kept = first.copy()
    plan((images(1, 4, 5, 5, seed=2),))
    np.testing.assert_array_equal(first, kept)


def test_memory_is_used_again() -> None:
    weight = images(4, 4, 3, 3)

    def model(x: Any, layers: int) -> Any:
        for _ in range(layers):
            x = F.relu(F.convolution_2d(x, weight, pad=1))
        return x

    sizes = [planned(lambda x, n=n: model(x, n), images(1, 4, 8, 8)).nbytes for n in (3, 30)]
    assert sizes[0] == sizes[1]


def test_a_clock_is_read_around_every_step() -> None:
    plan = planned(lambda x: F.sigmoid(F.relu(F.convolution_2d(x, W))), images(1, 4, 5, 5))
    reads: list[int] = []
    (timed,) = plan((images(1, 4, 5, 5),), lambda: reads.append(1))
    assert len(reads) == len(plan.steps) + 3
    np.testing.assert_array_equal(timed, plan((images(1, 4, 5, 5),))[0])


def test_intermediates_are_what_the_layers_give() -> None:
    x = images(2, 4, 6, 6)

    def model(x: Any) -> Any:
        h = F.relu(F.convolution_2d(x, W, pad=1))
        return F.average_pooling_2d(h + 1, 6)

    plan = planned(model, x)
    found = {max(node.layers): array for node, array in plan.intermediates((x,))}
    relu = F.relu(F.convolution_2d(x, W, pad=1))
    assert set(found) == {2, 3}
    assert relative((relu + 1).array, found[2]) < 1e-6
    assert relative(output(model, x).array, found[3]) < 1e-6


def test_float64_stays_float64() -> None:
    x = images(1, 4, 5, 5).astype(np.float64)
    weight = W.astype(np.float64)
    plan = planned(lambda x: F.relu(F.convolution_2d(x, weight, pad=1)), x)
    (got,) = plan((x,))
    assert got.dtype == np.float64
    assert (
        relative(output(lambda x: F.relu(F.convolution_2d(x, weight, pad=1)), x).array, got) < 1e-14
    )


def test_nan_goes_through() -> None:
    x = images(1, 4, 5, 5)
    plan = planned(lambda x: F.relu(F.max_pooling_2d(x, 2)), x)
    x[0, 0, 0, 0] = np.nan
    (got,) = plan((x,))
    assert np.isnan(got[0, 0, 0, 0])
    assert np.isnan(got).sum() == 1


def test_a_function_with_a_state_of_its_own() -> None:
    class Counting(chainer.FunctionNode):
        def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (inputs[0] * 2, None)

    plan = planned(lambda x: Counting().apply((x,))[0], images(2, 3))
    np.testing.assert_array_equal(plan((images(2, 3),))[0], 2 * images(2, 3))
