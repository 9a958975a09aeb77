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
from tests.costs.test_cost_cases import case
from tests.costs.test_cost_harness import Ran, real, run

#: Work of backwards that have no formula: operations, bytes read and written, multiply-adds. These
#: are figures of formulas that were written by hand before, and checked on numbers that count; but
#: ``normalize`` reads the norms that it keeps, ``scatter_add`` its indices, and ``cumprodsum`` but
#: a part of its factors.
BY_FUNCTIONS = {
    "identity": (0, 0, 0, 0),
    "logsumexp": (72, 208, 192, 0),
    "logsumexp_axis": (72, 320, 192, 0),
    "sum": (0, 0, 0, 0),
    "sum_axis": (0, 0, 0, 0),
    "sum_keepdims": (0, 0, 0, 0),
    "sum_to": (0, 0, 0, 0),
    "mean": (1, 8, 8, 0),
    "mean_axis": (3, 24, 24, 0),
    "cumsum": (23, 192, 192, 0),
    "cumsum_axis": (18, 192, 192, 0),
    "broadcast_to": (96, 960, 192, 0),
    "normalize": (208, 408, 192, 0),
    "normalize_axes": (196, 390, 192, 0),
    "reshape": (0, 0, 0, 0),
    "transpose": (0, 0, 0, 0),
    "swapaxes": (0, 0, 0, 0),
    "moveaxis": (0, 0, 0, 0),
    "rollaxis": (0, 0, 0, 0),
    "expand_dims": (0, 0, 0, 0),
    "flip": (0, 0, 0, 0),
    "fliplr": (0, 0, 0, 0),
    "flipud": (0, 0, 0, 0),
    "cast": (0, 96, 192, 0),
    "split_axis": (0, 192, 192, 0),
    "separate": (0, 192, 192, 0),
    "pad": (0, 0, 0, 0),
    "permutate": (0, 192, 192, 0),
    "copy": (0, 0, 0, 0),
    "sub": (42, 192, 80, 0),
    "mul": (12, 144, 96, 0),
    "mul_broadcast": (66, 432, 240, 0),
    "polygamma": (18, 120, 48, 0),
    "broadcast": (3, 48, 24, 0),
    "fft": (240, 256, 256, 0),
    "concat": (0, 0, 0, 0),
    "stack": (0, 0, 0, 0),
    "hstack": (0, 0, 0, 0),
    "vstack": (0, 0, 0, 0),
    "dstack": (0, 0, 0, 0),
    "pad_sequence": (0, 0, 0, 0),
    "transpose_sequence": (0, 80, 80, 0),
    "scatter_add": (0, 48, 32, 0),
    "squeeze": (0, 0, 0, 0),
    "depth2space": (0, 768, 768, 0),
    "space2depth": (0, 768, 768, 0),
    "shift": (0, 1728, 1728, 0),
    "gaussian": (30, 144, 48, 0),
    "linear": (100, 208, 176, 48),
    "linear_no_bias": (96, 208, 144, 48),
    "matmul": (96, 208, 144, 48),
    "matmul_transposed": (96, 208, 144, 48),
    "matmul_stack": (480, 1040, 720, 240),
    "matmul_broadcast": (528, 656, 336, 240),
    "matmul_vector": (18, 88, 72, 6),
    "vector_matmul": (36, 152, 120, 12),
    "vector_vector": (6, 56, 48, 0),
    "tensordot": (480, 752, 672, 240),
    "einsum": (480, 1040, 720, 240),
    "einsum_outer": (48, 152, 56, 24),
    "einsum_trace": (0, 8, 72, 0),
    "einsum_ellipsis": (90, 344, 264, 30),
    "einsum_three": (96, 160, 152, 0),
    "embed_id": (24, 224, 120, 0),
    "convolution": (5252, 2112, 1568, 2592),
    "convolution_dilated": (3456, 2160, 1584, 1728),
    "convolution_grouped": (3498, 2272, 1936, 1728),
    "convolution_depthwise": (1728, 1824, 960, 864),
    "convolution_1d": (996, 800, 512, 480),
    "convolution_3d": (12288, 2352, 816, 6144),
    "deconvolution": (5300, 2112, 1184, 2592),
    "deconvolution_grouped": (3456, 2496, 960, 1728),
    "deconvolution_3d": (1614, 1160, 536, 768),
    "squared_error": (48, 288, 192, 0),
    "huber_loss": (60, 224, 192, 0),
    "huber_loss_no": (60, 288, 192, 0),
    "cross_covariance": (211, 168, 160, 72),
    "inv": (117, 144, 72, 54),
    "batch_inv": (234, 288, 144, 108),
    "batch_det": (144, 176, 144, 0),
    "cumprodsum": (48, 448, 320, 0),
}


@pytest.mark.parametrize("name", BY_FUNCTIONS)
def test_it_is_what_the_formula_by_hand_said(name: str) -> None:
    ran = case(name)
    flops, read, written, macs = BY_FUNCTIONS[name]
    assert ran.followed(ran.needed) == Work(flops, read, written, macs)


@pytest.mark.parametrize("name", BY_FUNCTIONS)
def test_one_gradient_alone_is_no_more_than_all(name: str) -> None:
    ran = case(name)
    whole, flops, written = ran.backward(), 0, 0
    for i, grad in enumerate(ran.grads):
        if grad is not None:
            work = ran.backward(tuple(j == i for j in range(len(ran.grads))))
            assert work.flops <= whole.flops
            assert work.nbytes_read <= whole.nbytes_read
            flops, written = flops + work.flops, written + work.nbytes_written
    assert flops >= whole.flops
    assert written >= whole.nbytes_written


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
