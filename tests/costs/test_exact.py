"""Exact figures that were worked out by hand: operations, multiply-adds, bytes."""

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
from tests.costs.calls import positive, real, run
from tests.costs.cases import CASES, case

F32 = "float32"

#: By case and phase: operations, and multiply-adds among them. Others are in test_counted.py.
BY_HAND: dict[tuple[str, str], int | tuple[int, int]] = {
    # 24 elements, or 6; drawing a number is an operation, a mask is none.
    ("relu", "backward"): 24,
    ("leaky_relu", "forward"): 2 * 24,
    ("elu", "forward"): 3 * 24,
    ("hard_sigmoid", "forward"): 4 * 24,
    ("dropout", "forward"): 3 * 24,
    ("zoneout", "forward"): 2 * 6,
    ("gaussian", "forward"): 5 * 6,
    ("mean", "forward"): 24,
    # 12 elements: difference, product, sign; 2 / n times the gradient.
    ("mean_squared_error", "backward"): 3 * 12 + 1,
    # 12 elements, 3 examples, 4 channels.
    ("layer_normalization", "backward"): 5 * 12 + 3 * 3 + (12 - 4) + (24 - 4) + 8 * 12,
    # 4 rows of 3: the largest; a comparison each, their sum, a division.
    ("accuracy", "forward"): 8 + 4 + 4,
    # 6 states.
    ("slstm", "backward"): 6 * (24 + 5 + 28 + 2),
    ("tree_lstm", "backward"): 6 * (1 + 5 + 12 + 2 * 5),
    # 72 elements, 3 channels and 3 x 2 places each, zeros of the padding as well; the bias.
    ("convolution", "forward"): (2 * 72 * 18 + 72, 72 * 18),
    ("convolution", "backward"): (2 * 2 * 72 * 18 + 72 - 4, 2 * 72 * 18),
    # 3 channels of 4 x 4 x 4; 2 channels of 2 x 2 x 2 each.
    ("convolution_3d", "forward"): (2 * 192 * 16, 192 * 16),
    ("convolution_3d", "backward"): (2 * 2 * 192 * 16, 2 * 192 * 16),
    # 36 elements of x go to 4 channels, 3 x 3 places each; 120 elements of y have a bias.
    ("deconvolution", "forward"): (2 * 36 * 36 + 120, 36 * 36),
    ("deconvolution", "backward"): (2 * 2 * 36 * 36 + 120 - 4, 2 * 36 * 36),
    # 36 windows of 3 x 3, 6 of 4 x 6, 72 of 2 x 2: a place an operation, backward a division more.
    ("average_pooling", "forward"): 36 * 9,
    ("average_pooling", "backward"): 36 * (9 + 1),
    ("average_pooling_global", "forward"): 6 * 24,
    ("average_pooling_global", "backward"): 6 * (24 + 1),
    ("average_pooling_nd", "forward"): 72 * 4,
    ("max_pooling", "forward"): 72 * 8,
    ("max_pooling", "backward"): 72,
    ("max_pooling_floor", "forward"): 12 * 8,
    ("max_pooling_floor", "backward"): 12,
    # 24 elements, 2 channels: as without running averages, which are 2 of 3 operations.
    ("batch_normalization_running", "forward"): 24 * 7 + 2 * 3 + 2 * 2 * 3,
    # 4 labels, 12 elements, or twice that: the largest, difference, exponential, sum, logarithm
    # (its maximum added), difference, exponential; the losses' sum and scale, or signs.
    ("softmax_cross_entropy", "forward"): 8 + 24 + 8 + 8 + 24 + 3 + 1,
    ("softmax_cross_entropy_weight", "forward"): 8 + 24 + 8 + 8 + 24 + 12 + 3 + 1,
    ("softmax_cross_entropy_no", "forward"): 16 + 48 + 16 + 16 + 48 + 8,
    ("softmax_cross_entropy", "backward"): 4 + 12 + 1,
    ("softmax_cross_entropy_weight", "backward"): 4 + 2 * 12 + 1,
    ("softmax_cross_entropy_no", "backward"): 8 + 24,
    # 4 states that go on: 3 gates of 4, 2 tanh, 4 products and sums.
    ("lstm", "forward"): 4 * (3 * 4 + 2 + 4),
    ("lstm", "backward"): 4 * (3 * 4 + 2 + 5 + 16 + 1),
    # 6 states: 5 gates, 3 tanh, 8 products and sums, one of them of the gates; 4 gates, 2 tanh, 6.
    ("slstm", "forward"): 6 * (5 * 4 + 3 + 9),
    ("tree_lstm", "forward"): 6 * (4 * 4 + 2 + 6),
}


@pytest.mark.parametrize(("name", "phase"), BY_HAND)
def test_operations(name: str, phase: str) -> None:
    work, stated = case(name).work(phase), BY_HAND[name, phase]
    assert work is not None
    assert not work.about
    assert (work.flops, work.macs) == (stated if isinstance(stated, tuple) else (stated, 0))


#: Operations an element of arrays so large that what is done once a channel, group or example
#: rounds away.
NORMALISATIONS = {
    "batch_normalization": ((60, 5, 70), 5, 7, 10),
    "fixed_batch_normalization": ((60, 5, 70), 5, 4, 6),
    "group_normalization": ((60, 4, 70), 4, 7, 13),
    "layer_normalization": ((60, 700), 700, 7, 16),
}


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_operations_of_a_normalisation(name: str) -> None:
    shape, channels, *operations = NORMALISATIONS[name]
    call, arrays = CASES[name]
    ran = run(call, real(*shape), *(positive(channels) for _ in arrays[1:]))
    size = ran.inputs[0].size
    assert [round(work.flops / size) for work in (ran.forward(), ran.backward())] == operations


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        # Elements are 8 bytes; arrays of 2 x 3 x 4 have 192.
        ("relu", (192, 192), (2 * 192, 192)),
        ("sin", (192, 192), (2 * 192, 192)),
        ("add_constant", (192, 192), (0, 0)),
        ("reshape", (0, 0), (0, 0)),
        ("transpose", (0, 0), (0, 0)),
        ("identity", (0, 0), (0, 0)),
        ("sum_axis", (192, 3 * 8), (0, 0)),
        ("mean_axis", (192, 3 * 8), (3 * 8, 3 * 8)),
        ("broadcast_to", (0, 0), (5 * 192, 192)),
        ("dropout", (192, 192), (2 * 192, 192)),
        ("cast", (192, 96), (96, 192)),
        ("get_item", (0, 0), (64, 192)),
        ("get_items", (192 + 32, 256), (256, 192)),
        ("split_axis", (0, 0), (192, 192)),
        # Of 2 x 3.
        ("add", (96, 48), (0, 0)),
        ("add_broadcast", (72, 48), (48, 24)),
        ("mul", (96, 48), (144, 96)),
        ("concat", (48 + 64, 112), (0, 0)),
        # x, W, b; gy.
        ("linear", (48 + 96 + 32, 64), (64 + 48 + 96, 48 + 96 + 32)),
        # 8 indices of 4 bytes; W has 5 rows of 3 elements, no row is read twice.
        ("embed_id", (32 + 120, 192), (32 + 192, 120)),
        # x, labels, 12 of W's 50 rows; x, labels, the loss's gradient, the rows.
        ("negative_sampling", (96 + 16 + 288, 8), (96 + 16 + 8 + 288, 96 + 1200)),
        # An index of 8 bytes for each maximum.
        ("max_pooling", (1152, 576), (576 + 576, 1152)),
        ("average_pooling_global", (1152, 48), (48, 1152)),
        # 4 of 12 elements, and labels of 4 bytes.
        ("select_item", (32 + 16, 32), (32 + 16, 96)),
        # The logits, labels of 4 bytes; the softmax is kept.
        ("softmax_cross_entropy", (96 + 16, 8), (96 + 16 + 8, 96)),
        # x, 2 of the channels, and 2 averages; x, gy, gamma, mean and 1 / std that are kept.
        ("batch_normalization", (192 + 2 * 16, 192), (2 * 192 + 3 * 16, 192 + 32)),
        ("batch_normalization_running", (192 + 4 * 16, 192 + 32), (2 * 192 + 3 * 16, 192 + 32)),
    ],
)
def test_bytes(name: str, forward: tuple[int, int], backward: tuple[int, int]) -> None:
    ran = case(name)
    work = ran.forward()
    assert (work.nbytes_read, work.nbytes_written) == forward
    work = ran.backward()
    assert (work.nbytes_read, work.nbytes_written) == backward


def test_a_convolution_whose_input_needs_no_gradient() -> None:
    ran = case("convolution")
    whole, without_x = ran.backward(), ran.backward((False, True, True))
    assert without_x.macs == whole.macs // 2
    x, w, b = (array.nbytes for array in ran.inputs)
    gy = ran.outputs[0].nbytes
    assert (without_x.nbytes_read, without_x.nbytes_written) == (gy + x, w + b)
    assert (whole.nbytes_read, whole.nbytes_written) == (gy + x + w, x + w + b)
    assert backward_work(ran.function, *ran.specs, (False,) * 3) == Work(0, 0, 0)


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


# -- recurrent networks of cuDNN


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
    inputs = (
        *map(ArraySpec.of, states),
        ArraySpec((n_weights,), F32),
        ArraySpec((sum(lengths), width), F32),
    )
    outputs = (*map(ArraySpec.of, states), ArraySpec((sum(lengths), hidden * directions), F32))
    forward = forward_work(function, inputs, outputs)
    backward = backward_work(function, inputs, outputs, (True,) * len(inputs))
    assert forward is not None
    assert backward is not None
    assert forward.macs == hook.sum().macs
    assert backward.macs == 2 * forward.macs
    assert forward.flops == hook.sum().flops
