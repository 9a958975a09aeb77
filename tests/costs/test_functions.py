"""Figures of functions: what holds of each, those that are exact, and formulas of users.

An exact figure is what Chainer's NumPy code does, whose operations are counted while it runs, or
what is worked out by hand, where that code does something else.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer.functions.activation.relu import ReLU
from chainer.functions.rnn.n_step_gru import NStepGRU
from chainer.functions.rnn.n_step_lstm import NStepBiLSTM
from chainer.functions.rnn.n_step_rnn import NStepRNNTanh

from chainer_profile.costs import formulas, work
from chainer_profile.costs.work import (
    ArraySpec,
    Call,
    Work,
    backward_work,
    forward_work,
    register_cost,
)
from models.registry import REGISTRY
from tests.costs.cases import CASES, Ran, case, positive, real, run
from tests.costs.counting import Counting, counting

#: Classes of chainer.functions without a formula, and why.
WITHOUT = {
    "Forget": "runs functions of the user's, which are calls of their own",
    "TheanoFunction": "runs a function of Theano's",
    "DecorrelatedBatchNormalization": "decomposes into eigenvectors by iteration",
    "BaseNStepRNN": "is only derived from",
    "IndexSelectorBase": "is only derived from",
    "Pooling2D": "is only derived from",
    "SelectorBase": "is only derived from",
    "_PoolingND": "is only derived from",
    # Parts of the backward of another function, which counts them. So are all whose name has Grad
    # in it.
    "_MulInvStd": "is a part of GroupNormalization's",
    "_XHat": "is a part of GroupNormalization's",
}
#: Classes without a case: of cuDNN, and of double backpropagation.
WITHOUT_CASE = {
    *(name for name in formulas.FORWARD if name.startswith("NStep")),
    *("CudnnRNNWeightConcat", "RsqrtGPU", "Assign", "Convolution2DGradW", "ConvolutionNDGradW"),
    *("EmbedIDGrad", "LinearGradData", "LinearGradWeight", "MaxPoolingNDWithIndexes"),
    "_SetItemZero",
}


def function_classes() -> set[type]:
    """Every class of a function in chainer.functions and its modules."""
    for module in pkgutil.walk_packages(F.__path__, "chainer.functions."):
        importlib.import_module(module.name)
    found: set[type] = set()
    left = [chainer.FunctionNode, chainer.Function]
    while left:
        new = set(left.pop().__subclasses__()) - found
        found |= new
        left.extend(new)
    return {cls for cls in found if cls.__module__.startswith("chainer.functions.")}


def test_every_function_of_chainer_has_a_formula_or_a_reason() -> None:
    classes = function_classes()
    names = {cls.__name__ for cls in classes}
    assert len(names) == len(classes) > 250
    without = {c.__name__ for c in classes if not work.find("forward", c, formulas.FORWARD)}
    assert {name for name in without if "Grad" not in name} == WITHOUT.keys()
    assert formulas.FORWARD.keys() | formulas.BACKWARD.keys() <= names
    covered = {type(work.inner(case(name).function)).__name__ for name in CASES}
    assert formulas.FORWARD.keys() - covered == WITHOUT_CASE


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_every_figure(name: str) -> None:
    """It is known; each array counts once; one gradient alone takes no more than all."""
    ran = case(name)
    forward = ran.forward()
    inputs, outputs = (sum(array.nbytes for array in arrays) for arrays in ran.specs)
    check(forward)
    if forward.about and name != "negative_sampling":
        assert (forward.nbytes_read, forward.nbytes_written) == (inputs, outputs)
    if not ran.differentiable or not any(ran.needed):
        return
    whole = ran.backward()
    check(whole)
    if forward.macs and not whole.about and min(x.ndim for x in ran.inputs[:2]) > 1:
        assert whole.macs >= forward.macs
    flops = 0
    for i, grad in enumerate(ran.grads):
        if grad is not None:
            work = ran.backward(tuple(j == i for j in range(len(ran.grads))))
            assert work.flops <= whole.flops
            assert work.nbytes_read <= whole.nbytes_read
            assert work.nbytes_written <= ran.inputs[i].nbytes
            flops += work.flops
    assert flops >= whole.flops


def check(work: Work) -> None:
    assert work.flops >= 2 * work.macs >= 0
    assert min(work.nbytes_read, work.nbytes_written) >= 0
    assert all(type(value) is int for value in (work.flops, work.macs, work.nbytes))


#: Cases whose work is done for each example: how many inputs have examples along their first axis,
#: and operations for the parameters alone.
PER_EXAMPLE = {
    **dict.fromkeys(["relu", "softmax", "log_softmax", "sigmoid", "dropout"], (1, 0)),
    **dict.fromkeys(["convolution", "convolution_grouped", "convolution_3d"], (1, 0)),
    **dict.fromkeys(["deconvolution", "linear", "average_pooling", "max_pooling"], (1, 0)),
    **dict.fromkeys(["unpooling_overlap", "resize_images"], (1, 0)),
    **dict.fromkeys(["local_response_normalization", "depth2space", "im2col"], (1, 0)),
    **dict.fromkeys(["add", "mul", "concat", "softmax_cross_entropy_no", "matmul_stack"], (2, 0)),
    **dict.fromkeys(["huber_loss", "slstm", "tree_lstm"], (3, 0)),
    "lstm": (2, 0),
    "fixed_batch_normalization": (1, 2 * 3),
}


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("name", PER_EXAMPLE)
def test_work_is_linear_in_the_batch(name: str, n: int) -> None:
    ran = case(name)
    n_data, constant = PER_EXAMPLE[name]
    if name == "lstm":  # the state of the case has an example more
        ran.inputs = (ran.inputs[0][:2], ran.inputs[1])
        ran.outputs = (ran.outputs[0][:2], ran.outputs[1])
    if name == "slstm":
        n_data = 4
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


SHAPES = ((), (1,), (5,), (2, 3), (2, 1), (0, 3), (2, 3, 4), (1, 1, 1), (2, 3, 2, 2))
#: Functions of one array, or of arrays of one shape.
OF_ONE_SHAPE = [
    name
    for name, (_, arrays) in CASES.items()
    if all(getattr(a, "shape", None) == arrays[0].shape and a.dtype.kind == "f" for a in arrays)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_ONE_SHAPE)
def test_every_shape_that_a_function_takes_has_a_figure(name: str) -> None:
    call, arrays = CASES[name]
    for shape in SHAPES:
        try:
            ran = run(call, *(np.asarray(positive(*shape)) for _ in arrays))
        except Exception:  # Chainer does not take this shape
            continue
        check(ran.forward())
        if ran.differentiable and any(ran.needed):
            check(ran.backward())


def test_work_adds_up() -> None:
    work = Work(10, 4, 1, 5) + Work(2, 1, 0, about=True)
    assert work == Work(12, 5, 1, 5, about=True)
    assert work.nbytes == 6


# -- exact figures


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_exact_figures_are_what_chainer_does(name: str) -> None:
    call, arrays = CASES[name]
    known = case(name)
    Counting.flops = 0
    ran = run(call, *(counting(a) if a.dtype.kind == "f" else a for a in arrays), gradients=False)
    compare(name, "forward", known.work("forward"))
    if (work := known.work("backward")) is not None and not work.about:
        nodes = zip(ran.function.inputs, ran.needed, strict=True)
        xs = [node.get_variable() for node, need in nodes if need]
        Counting.flops = 0
        chainer.grad(list(ran.ys), xs, [chainer.Variable(counting(gy)) for gy in ran.gys])
        compare(name, "backward", work)


def compare(name: str, phase: str, work: Work | None) -> None:
    assert work is not None
    if not work.about:
        assert (name, phase) in BY_HAND or work.flops == Counting.flops


F32 = "float32"

#: By case and phase: operations, and multiply-adds among them, where Chainer does something else.
BY_HAND: dict[tuple[str, str], int | tuple[int, int]] = {
    # 24 elements, or 6; drawing a number is an operation, a mask is none.
    ("relu", "backward"): 24,
    ("leaky_relu", "forward"): 2 * 24,
    ("leaky_relu", "backward"): 2 * 24,
    ("clipped_relu", "backward"): 2 * 24,
    ("prelu", "forward"): 2 * 24,
    ("elu", "forward"): 3 * 24,
    ("hard_sigmoid", "forward"): 4 * 24,
    ("hard_sigmoid", "backward"): 3 * 24,
    ("arcsin", "backward"): 4 * 24,
    ("arccos", "backward"): 5 * 24,
    ("arctan", "backward"): 3 * 24,
    ("polygamma", "forward"): 6,
    ("digamma", "backward"): 2 * 6,
    # 24 elements to one, or to 8.
    ("logsumexp", "forward"): 4 * 24,
    ("argmax", "forward"): 24 - 1,
    ("argmin", "forward"): 24 - 8,
    ("dropout", "forward"): 3 * 24,
    ("zoneout", "forward"): 2 * 6,
    ("gaussian", "forward"): 5 * 6,
    ("mean", "forward"): 24,
    # 12 elements: difference, product, sign; 2 / n times the gradient.
    ("mean_squared_error", "backward"): 3 * 12 + 1,
    ("mean_absolute_error", "forward"): 3 * 12,
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
    # Places of a window, each once for x and once for W; biases.
    ("convolution_dilated", "backward"): (2 * 2 * 72 * 12, 2 * 72 * 12),
    ("convolution_grouped", "backward"): (2 * 2 * 48 * 18 + 48 - 6, 2 * 48 * 18),
    ("convolution_depthwise", "backward"): (2 * 2 * 108 * 4, 2 * 108 * 4),
    ("convolution_1d", "backward"): (2 * 2 * 40 * 6 + 40 - 4, 2 * 40 * 6),
    ("local_convolution", "backward"): (2 * 2 * 36 * 12 + 36 - 18, 2 * 36 * 12),
    ("deconvolution_grouped", "forward"): (2 * 72 * 12, 72 * 12),
    ("deconvolution_3d", "forward"): (2 * 16 * 24 + 81, 16 * 24),
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
    # 24 elements, 2 channels.
    ("batch_normalization", "forward"): 24 * 7 + 2 * 3,
    ("batch_normalization_axis", "forward"): 24 * 7 + 2 * 3,
    # As without running averages, which are 2 of 3 operations.
    ("batch_normalization_running", "forward"): 24 * 7 + 2 * 3 + 2 * 2 * 3,
    # 4 labels, 12 elements, or twice that: the largest, difference, exponential, sum, logarithm
    # (its maximum added), difference, exponential; the losses' sum and scale, or signs.
    ("softmax_cross_entropy", "forward"): 8 + 24 + 8 + 8 + 24 + 3 + 1,
    ("softmax_cross_entropy_weight", "forward"): 8 + 24 + 8 + 8 + 24 + 12 + 3 + 1,
    ("softmax_cross_entropy_no", "forward"): 16 + 48 + 16 + 16 + 48 + 8,
    ("softmax_cross_entropy", "backward"): 4 + 12 + 1,
    ("softmax_cross_entropy_weight", "backward"): 4 + 2 * 12 + 1,
    ("softmax_cross_entropy_no", "backward"): 8 + 24,
    ("softmax_cross_entropy_soft", "backward"): 12 + 12 + 1,
    ("softmax_cross_entropy_kl", "backward"): 12 + 12 + 1,
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


# -- formulas of users


class Cubing:
    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inputs[0] ** 3,)

    def backward(self, indexes: Any, gys: Any) -> Any:
        return (gys[0],)


class Cube(Cubing, chainer.FunctionNode):
    pass


class BigCube(Cube):
    pass


class OldCube(Cubing, chainer.Function):
    pass


class MyReLU(ReLU):
    pass


@pytest.fixture(autouse=True)
def _no_formula_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_users", {})


def cube(cls: type) -> Ran:
    return run(lambda x: cls().apply((x,))[0] if cls is not OldCube else cls()(x), real(2, 3))


@pytest.mark.parametrize("cls", [Cube, OldCube])
def test_a_function_without_a_formula_has_no_work(cls: type) -> None:
    ran = cube(cls)
    assert forward_work(ran.function, *ran.specs) is None
    assert backward_work(ran.function, *ran.specs, (True,)) is None


@pytest.mark.parametrize(("cls", "called"), [(Cube, Cube), (Cube, BigCube), (OldCube, OldCube)])
def test_a_formula_that_returns_a_number(cls: type, called: type) -> None:
    @register_cost(cls)
    def forward(call: Call) -> int:
        """Two products an element."""
        assert type(call.function) is called
        assert not call.needed
        return 2 * call.inputs[0].size

    @register_cost(cls, backward=True)
    def backward(call: Call) -> int:
        """Three products an element."""
        assert call.needed == (True,)
        return 3 * call.inputs[0].size

    ran = cube(called)
    assert ran.forward() == Work(12, 48, 48)
    assert ran.backward() == Work(18, 96, 48)


def test_a_formula_that_returns_work_or_nothing() -> None:
    register_cost(Cube)(lambda call: None)
    register_cost(Cube, backward=True)(lambda call: Work(1, 2, 3, 4))
    ran = cube(Cube)
    assert forward_work(ran.function, *ran.specs) is None
    assert ran.backward() == Work(1, 2, 3, 4)


def test_a_derived_class_takes_the_formula_of_its_base_until_it_has_its_own() -> None:
    ran = run(lambda x: MyReLU().apply((x,))[0], real(2, 3))
    assert ran.forward() == case_of_relu().forward()
    register_cost(MyReLU)(lambda call: 100)
    assert ran.forward().flops == 100
    assert case_of_relu().forward().flops == 6
    assert ran.backward().flops == 6


def case_of_relu() -> Ran:
    return run(F.relu, real(2, 3))


def test_needed_is_of_all_inputs() -> None:
    ran = case("linear")
    with pytest.raises(ValueError, match="needed has 1 entries, for 3 inputs"):
        ran.backward((True,))


def test_integers_count_like_other_numbers() -> None:
    ran = run(lambda a, b: a + b, np.ones((2, 3), np.int32), np.ones((2, 3), np.int32))
    assert ran.forward() == Work(6, 48, 24)


def test_a_constant_array_is_broadcast() -> None:
    ran = run(lambda x: x * np.float32(2), real(2, 3).astype(np.float32))
    assert ran.forward() == Work(6, 24, 24)
