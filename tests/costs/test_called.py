"""A backward's work by the functions that it calls."""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profile
from chainer_profile.costs.work import Work, following
from tests.costs.calls import Ran, real, run
from tests.costs.cases import case

#: Work of backwards that have no formula: operations, bytes read and written, multiply-adds.
BY_FUNCTIONS = {
    "identity": (0, 0, 0, 0),
    "sum_axis": (0, 0, 0, 0),
    "mean_axis": (3, 24, 24, 0),
    "logsumexp": (72, 208, 192, 0),
    "broadcast_to": (96, 960, 192, 0),
    "reshape": (0, 0, 0, 0),
    "split_axis": (0, 192, 192, 0),
    "concat": (0, 0, 0, 0),
    "cast": (0, 96, 192, 0),
    "pad_sequence": (0, 0, 0, 0),
    "transpose_sequence": (0, 80, 80, 0),
    "add_broadcast": (3, 48, 24, 0),
    "sub": (42, 192, 80, 0),
    "mul": (12, 144, 96, 0),
    "mul_broadcast": (66, 432, 240, 0),
    "exp": (24, 384, 192, 0),
    "linear": (100, 208, 176, 48),
    "matmul": (96, 208, 144, 48),
    "matmul_vector": (18, 88, 72, 6),
    "vector_vector": (6, 56, 48, 0),
    "tensordot": (480, 752, 672, 240),
    "einsum": (480, 1040, 720, 240),
    "einsum_three": (96, 160, 152, 0),
    "embed_id": (24, 224, 120, 0),
    "convolution": (5252, 2112, 1568, 2592),
    "convolution_grouped": (3498, 2272, 1936, 1728),
    "convolution_3d": (12288, 2352, 816, 6144),
    "deconvolution": (5300, 2112, 1184, 2592),
    "squared_error": (48, 288, 192, 0),
}


@pytest.mark.parametrize("name", BY_FUNCTIONS)
def test_it_is_the_work_of_the_functions_that_it_calls(name: str) -> None:
    ran = case(name)
    flops, read, written, macs = BY_FUNCTIONS[name]
    assert ran.followed(ran.needed) == Work(flops, read, written, macs)


def test_it_is_about_where_a_function_is() -> None:
    assert case("cumsum").backward().about


# -- functions of users


class Gelu(chainer.FunctionNode):
    """One whose backward is made of Chainer's functions, and of nothing else."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0,))
        return (inputs[0] * 2,)

    def backward(self, indexes: Any, gys: Any) -> Any:
        (x,) = self.get_retained_inputs()
        return (F.exp(x) * gys[0],)


class OnArrays(Gelu):
    """One that computes on arrays beside them."""

    def backward(self, indexes: Any, gys: Any) -> Any:
        return (chainer.Variable(gys[0].array * 2) * gys[0],)


class OfArrays(Gelu):
    """One that computes on arrays alone."""

    def backward(self, indexes: Any, gys: Any) -> Any:
        return (chainer.Variable(gys[0].array * 2),)


class WithUnknown(Gelu):
    """One that calls a function without a formula."""

    def backward(self, indexes: Any, gys: Any) -> Any:
        return (Gelu().apply((gys[0],))[0],)


class HandsOn(Gelu):
    """One that hands the gradient on."""

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys


class Old(chainer.Function):
    """An old-style one: its backward is on arrays."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inputs[0] * 2,)

    def backward(self, inputs: Any, gys: Any) -> Any:
        return (gys[0],)


class Fails(Gelu):
    """One that raises."""

    def backward(self, indexes: Any, gys: Any) -> Any:
        raise ValueError("no gradient")


def called(function: Any) -> Ran:
    return run(lambda x: function().apply((x,))[0], real(2, 3), gradients=False)


def test_a_function_of_the_users_that_is_made_of_chainers() -> None:
    ran = called(Gelu)
    # exp and a product; x and gy are read, gx is written, what is between counts for nothing.
    assert ran.followed((True,)) == Work(12, 96, 48)
    assert "backward" not in vars(ran.function)


@pytest.mark.parametrize("function", [OnArrays, OfArrays, WithUnknown])
def test_what_is_computed_by_other_means_is_not_known(function: type) -> None:
    assert called(function).followed((True,)) is None


def test_a_gradient_that_is_handed_on_is_no_work() -> None:
    assert called(HandsOn).followed((True,)) == Work(0, 0, 0)


def test_an_old_style_function_is_not_followed() -> None:
    ran = run(lambda x: Old()(x), real(2, 3), gradients=False)
    assert following(ran.function, ()) is None


def test_a_backward_that_fails_is_left_as_it_was() -> None:
    ran = called(Fails)
    with pytest.raises(ValueError, match="no gradient"):
        ran.followed((True,))
    assert "backward" not in vars(ran.function)


class Accumulates(Gelu):
    """One that adds up the gradients itself: Chainer calls this in place of its backward."""

    def backward_accumulate(self, indexes: Any, gys: Any, gxs: Any) -> Any:
        return (F.exp(gys[0]),)


def test_one_that_adds_up_gradients_is_left_as_it_was() -> None:
    ran = called(Accumulates)
    assert ran.followed((True,)) is None
    assert "backward" not in vars(ran.function)


def test_a_view_that_comes_in_counts_as_an_array() -> None:
    ran = called(Gelu)
    ran.gys = (np.broadcast_to(np.ones(()), (2, 3)),)
    assert ran.followed((True,)) == Work(12, 96, 48)


def test_adding_up_behind_a_backward_is_none_of_its_work() -> None:
    """Two functions take one variable: Chainer adds their gradients within the second's window."""
    net = chainer.Sequential(L.Convolution2D(3, 4, 3, pad=1), Both())
    x = np.ones((1, 3, 6, 6), np.float32)
    found = profile(net, x, phase="forward-backward", loss=F.sum, trials=1, warmups=0, memory=False)
    backward = [one for one in found.layers if one.phase == "backward"]
    convolutions = [one for one in backward if one.function == "Convolution2DFunction"]
    # Each but the first has two gradients, of as many products as its forward.
    assert [one.macs for one in convolutions] == [2 * 4 * 4 * 9 * 36] * 2 + [3 * 4 * 9 * 36]
    assert any(one.function == "gradient_accumulation" for one in backward)


class Both(chainer.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.one, self.other = (L.Convolution2D(4, 4, 3, pad=1) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return self.one(x) + self.other(x)
