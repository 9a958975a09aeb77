"""What numbers that count cannot show: whole networks, other shapes, cuDNN, a backward's parts."""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer.functions.rnn.n_step_gru import NStepGRU
from chainer.functions.rnn.n_step_lstm import NStepBiLSTM
from chainer.functions.rnn.n_step_rnn import NStepRNNTanh

from chainer_profile.costs.work import ArraySpec, Work, backward_work, forward_work
from models.registry import REGISTRY
from tests.costs.test_cost_cases import case
from tests.costs.test_cost_harness import positive, real, run

F32 = "float32"


def spec(*shape: int, dtype: str = F32) -> ArraySpec:
    return ArraySpec(shape, dtype)


# -- known figures


class Works(chainer.FunctionHook):
    """The work of the functions that are called, in a backward as well."""

    name = "cost-works"

    def __init__(self) -> None:
        self.forward: list[Work | None] = []

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        run_forward = function.forward

        def forward(inputs: tuple[Any, ...]) -> Any:
            outputs = run_forward(inputs)
            specs = tuple(map(ArraySpec.of, inputs)), tuple(map(ArraySpec.of, outputs))
            self.forward.append(forward_work(function, *specs))
            return outputs

        function.forward = forward

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        del function.forward

    def sum(self) -> Work:
        assert None not in self.forward
        return sum((work for work in self.forward if work), Work(0, 0, 0))


@pytest.mark.parametrize(
    ("name", "giga"), [("resnet18", "1.814"), ("resnet34", "3.664"), ("resnet50", "4.089")]
)
def test_multiply_adds_of_the_references_networks(name: str, giga: str) -> None:
    entry = REGISTRY[name]
    x = np.zeros((1, *entry.input_shape), np.float32)
    model = entry.build()
    with chainer.using_config("train", False), chainer.no_backprop_mode(), Works() as hook:
        model(x)
    assert f"{hook.sum().macs / 1e9:.3f}" == giga


# -- backward against the functions that Chainer calls in it


@pytest.mark.parametrize(
    "name",
    [
        "convolution",
        "convolution_dilated",
        "convolution_grouped",
        "convolution_3d",
        "deconvolution",
        "deconvolution_3d",
        "linear",
        "tensordot",
        "matmul",
        "matmul_broadcast",
        "einsum",
        "einsum_three",
        "add_broadcast",
        "sub",
        "mul",
        "mul_broadcast",
        "broadcast_to",
        "embed_id",
        "mean_axis",
        "tile",
        "exp",
        "log",
        "erf",
        "cosh",
        "max_axis",
        "log1p",
        "squared_error",
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_backward_is_the_sum_of_the_functions_that_chainer_makes_it_of(name: str) -> None:
    ran = case(name)
    xs = [node.get_variable() for node in ran.function.inputs if node.requires_grad]
    with Works() as hook:
        chainer.grad(
            list(ran.ys), xs, list(map(chainer.Variable, ran.gys)), enable_double_backprop=True
        )
    assert hook.sum().macs == ran.backward().macs
    assert hook.sum().flops == ran.backward().flops


# -- properties

#: Cases whose work is done for each example: how many inputs have examples along their first axis,
#: and operations for the parameters alone.
PER_EXAMPLE = {
    "relu": (1, 0),
    "prelu": (1, 0),
    "swish": (1, 0),
    "softmax": (1, 0),
    "log_softmax": (1, 0),
    "sigmoid": (1, 0),
    "dropout": (1, 0),
    "add": (2, 0),
    "mul": (2, 0),
    "convolution": (1, 0),
    "convolution_grouped": (1, 0),
    "convolution_3d": (1, 0),
    "deconvolution": (1, 0),
    "linear": (1, 0),
    "average_pooling": (1, 0),
    "max_pooling": (1, 0),
    "unpooling_overlap": (1, 0),
    "resize_images": (1, 15 * 5),
    "fixed_batch_normalization": (1, 2 * 3),
    "group_normalization": (1, 0),
    "local_response_normalization": (1, 0),
    "lstm": (2, 0),
    "concat": (2, 0),
    "depth2space": (1, 0),
    "im2col": (1, 0),
    "softmax_cross_entropy_no": (2, 0),
    "huber_loss": (2, 0),
    "matmul_stack": (2, 0),
}


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("name", PER_EXAMPLE)
def test_work_is_linear_in_the_batch(name: str, n: int) -> None:
    ran = case(name)
    if name == "lstm":  # the state of the case has an example more
        ran.inputs = (ran.inputs[0][:2], ran.inputs[1])
        ran.outputs = (ran.outputs[0][:2], ran.outputs[1])
    n_data, constant = PER_EXAMPLE[name]
    inputs, outputs = ran.specs

    def many(specs: tuple[ArraySpec, ...]) -> tuple[ArraySpec, ...]:
        return tuple(ArraySpec((n * s.shape[0], *s.shape[1:]), s.dtype) for s in specs)

    one = ran.forward()
    work = forward_work(ran.function, many(inputs[:n_data]) + inputs[n_data:], many(outputs))
    assert work is not None
    assert work.flops - constant == n * (one.flops - constant)
    assert work.macs == n * one.macs
    assert work.nbytes_written == n * one.nbytes_written
    parameters = sum(s.nbytes for s in inputs[n_data:])
    assert work.nbytes_read - parameters == n * (one.nbytes_read - parameters)


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (F.relu, 0),
        (lambda x: F.linear(x, real(2, 3)), 0),
        (F.sum, 0),
        (lambda x: F.sum(x, axis=0), 0),
        (F.softmax, 0),
        (F.dropout, 0),
        (lambda x: F.add(x, real(1, 3)), 0),
        (lambda x: F.cumsum(x, axis=0), 0),
        (lambda x: F.layer_normalization(x, real(3), real(3)), 0),
        (lambda x: F.concat([x, x]), 0),
        # 1 / (variance + eps) and its root are there without examples, too.
        (lambda x: F.fixed_batch_normalization(x, *(positive(3) for _ in range(4))), 9),
    ],
)
def test_arrays_without_elements(call: Any, flops: int) -> None:
    ran = run(call, np.zeros((0, 3)), gradients=False)
    assert ran.forward().flops == flops
    assert ran.backward().macs == 0
    assert ran.backward().flops >= 0


# -- recurrent networks of cuDNN


class Bare:
    """Attributes in place of a function that needs a GPU."""


@pytest.mark.parametrize(
    ("cls", "gates", "bidirectional"),
    [(NStepRNNTanh, 1, False), (NStepGRU, 3, False), (NStepBiLSTM, 4, True)],
)
def test_n_step_networks_have_the_products_that_chainer_makes_on_the_cpu(
    cls: type, gates: int, bidirectional: bool
) -> None:
    layers, n, width, hidden, lengths = 3, 3, 4, 5, (3, 2, 2)
    directions = 2 if bidirectional else 1
    hx = real(layers * directions, n, hidden).astype(F32)
    xs = [real(length, width).astype(F32) for length in lengths]
    n_in = [width] + [hidden * directions] * (layers - 1)
    ws = [
        [real(hidden, n_in[i] if k < gates else hidden).astype(F32) for k in range(2 * gates)]
        for i in range(layers)
        for _ in range(directions)
    ]
    bs = [[real(hidden).astype(F32) for _ in range(2 * gates)] for _ in ws]
    calls = {NStepRNNTanh: F.n_step_rnn, NStepGRU: F.n_step_gru, NStepBiLSTM: F.n_step_bilstm}
    states = (hx, hx) if gates == 4 else (hx,)
    with chainer.using_config("train", False), Works() as hook:
        calls[cls](layers, 0.0, *states, ws, bs, xs)
    function: Any = object.__new__(cls)
    function.n_layers = layers
    n_weights = sum(w.size for layer in ws + bs for w in layer)
    inputs = (*map(ArraySpec.of, states), spec(n_weights), spec(sum(lengths), width))
    outputs = (*map(ArraySpec.of, states), spec(sum(lengths), hidden * directions))
    forward = forward_work(function, inputs, outputs)
    backward = backward_work(function, inputs, outputs, (True,) * len(inputs))
    assert forward is not None
    assert backward is not None
    assert forward.macs == hook.sum().macs
    assert backward.macs == 2 * forward.macs
    assert forward.flops == hook.sum().flops
