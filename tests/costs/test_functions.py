"""Work of functions: consistent for any shape, exact, and by formulas of users.

Most exact numbers of operations are counted while Chainer's NumPy code runs. They are calculated by
hand if that code does more or less than the formula.
"""

import importlib
import pkgutil
from contextlib import suppress

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer.functions.activation.relu import ReLU
from chainer.functions.rnn.n_step_gru import NStepGRU
from chainer.functions.rnn.n_step_lstm import NStepBiLSTM
from chainer.functions.rnn.n_step_rnn import NStepRNNTanh

from chainer_profile.basics.errors import UsageError
from chainer_profile.costs import formulas, work
from chainer_profile.costs.call import specs_of
from chainer_profile.costs.work import ArraySpec, Work, backward_work, forward_work, register_cost
from chainer_profile.measure.hooks import WalkHook
from models.registry import REGISTRY
from tests.costs.cases import CASES, CountingArray, case, positive, real, run, to_counting
from tests.refusing import refusal

pytestmark = pytest.mark.filterwarnings("ignore")

#: Classes of chainer.functions without a formula, and why.
WITHOUT = {
    "Forget": "runs functions of the user, which are separate calls",
    "TheanoFunction": "runs a Theano function",
    "DecorrelatedBatchNormalization": "computes eigenvectors by iteration",
    **dict.fromkeys(("BaseNStepRNN", "IndexSelectorBase", "Pooling2D"), "is a base class"),
    **dict.fromkeys(("SelectorBase", "_PoolingND"), "is a base class"),
    # The formula of another function's backward includes these, and all classes with Grad in their
    # names.
    **dict.fromkeys(("_MulInvStd", "_XHat"), "is a part of GroupNormalization's backward"),
}
#: Classes without a case: for cuDNN or double backpropagation.
WITHOUT_CASE = {
    *(name for name in formulas.FORWARD if name.startswith("NStep")),
    *("CudnnRNNWeightConcat", "RsqrtGPU", "Assign", "Convolution2DGradW", "ConvolutionNDGradW"),
    *("EmbedIDGrad", "LinearGradData", "LinearGradWeight", "MaxPoolingNDWithIndexes"),
    "_SetItemZero",
}


def function_classes():
    """All function classes in chainer.functions and its modules."""
    for module in pkgutil.walk_packages(F.__path__, "chainer.functions."):
        importlib.import_module(module.name)
    classes = [chainer.FunctionNode, chainer.Function]
    for cls in classes:
        classes += [derived for derived in cls.__subclasses__() if derived not in classes]
    return [cls for cls in classes if cls.__module__.startswith("chainer.functions.")]


def test_every_function_is_in_one_row():
    names = [name for cost in formulas.TABLE for name in cost.names.split()]
    assert len(names) == len(set(names))


def test_every_function_has_a_formula_or_a_reason_for_none():
    classes = function_classes()
    names = {cls.__name__ for cls in classes}
    assert len(names) == len(classes) > 250
    without = {c.__name__ for c in classes if not work.find("forward", c, formulas.FORWARD)}
    assert {name for name in without if "Grad" not in name} == WITHOUT.keys()
    assert formulas.FORWARD.keys() | formulas.BACKWARD.keys() <= names
    covered = {type(work.inner(case(name).function)).__name__ for name in CASES}
    assert formulas.FORWARD.keys() - covered == WITHOUT_CASE


#: Shapes for functions whose inputs all have one shape; Chainer refuses some.
SHAPES = ((), (1,), (5,), (2, 1), (0, 3), (1, 1, 1), (2, 3, 2, 2))


def test_figures_of_any_shape_are_consistent(subtests):
    """Every shape has figures. If they are approximate, each array counts once."""
    for name, (call, arrays) in CASES.items():
        with subtests.test(name):
            ran = case(name)
            check(ran)
            forward = ran.forward()
            if forward.about and name != "negative_sampling":
                moved = tuple(sum(array.nbytes for array in arrays) for arrays in ran.specs)
                assert (forward.nbytes_read, forward.nbytes_written) == moved
            if all(
                getattr(a, "shape", 0) == arrays[0].shape and a.dtype.kind == "f" for a in arrays
            ):
                for shape in SHAPES:
                    with suppress(Exception):
                        ran = run(call, *(np.asarray(positive(*shape)) for _ in arrays))
                    check(ran)


def check(ran):
    """Check that figures are integers, and that one gradient takes at most the work of all."""
    works = [ran.forward()]
    if ran.has_backward:
        whole = ran.backward()
        single = [
            ran.backward(tuple(j == i for j in range(len(ran.grads))))
            for i, grad in enumerate(ran.grads)
            if grad is not None
        ]
        works += [whole, *single]
        for work in single:
            assert work.flops <= whole.flops
            assert work.nbytes_read <= whole.nbytes_read
            assert work.nbytes_written <= whole.nbytes_written
        assert not single or sum(work.flops for work in single) >= whole.flops
    for work in works:
        assert work.flops >= 2 * work.macs >= 0
        assert min(work.nbytes_read, work.nbytes_written) >= 0
        assert all(type(value) is int for value in (work.flops, work.macs, work.nbytes))


# -- exact figures

#: Operations in forward and backward, perhaps with multiply-adds; None if they are counted.
BY_HAND = {
    # 24 elements, or 6. A random number is an operation, a mask is not.
    "relu": (None, 24),
    "leaky_relu": (2 * 24, 2 * 24),
    "clipped_relu": (None, 2 * 24),
    "prelu": (2 * 24, None),
    "elu": (3 * 24, None),
    "hard_sigmoid": (4 * 24, 3 * 24),
    "arcsin": (None, 4 * 24),
    "arccos": (None, 5 * 24),
    "arctan": (None, 3 * 24),
    "polygamma": (6, None),
    "digamma": (None, 2 * 6),
    # From 24 elements to one, or to 8.
    "logsumexp": (4 * 24, None),
    "argmax": (24 - 1, None),
    "argmin": (24 - 8, None),
    "dropout": (3 * 24, None),
    "zoneout": (2 * 6, None),
    "gaussian": (5 * 6, None),
    "mean": (24, None),
    # 12 elements: difference, product and sign; the gradient times 2 / n.
    "mean_squared_error": (None, 3 * 12 + 1),
    "mean_absolute_error": (3 * 12, None),
    # 12 elements, 3 examples, 4 channels.
    "layer_normalization": (None, 5 * 12 + 3 * 3 + (12 - 4) + (24 - 4) + 8 * 12),
    # Maximum of 4 rows of 3; a comparison per row, their sum, a division.
    "accuracy": (8 + 4 + 4, None),
    # 72 elements, each from 3 channels of 3 x 2 pixels, padding included; the bias.
    "convolution": ((2 * 72 * 18 + 72, 72 * 18), (2 * 2 * 72 * 18 + 72 - 4, 2 * 72 * 18)),
    # 3 channels of 4 x 4 x 4; 2 channels of 2 x 2 x 2 each.
    "convolution_3d": ((2 * 192 * 16, 192 * 16), (2 * 2 * 192 * 16, 2 * 192 * 16)),
    # Pixels of each window, once for x and once for W; biases.
    "convolution_dilated": (None, (2 * 2 * 72 * 12, 2 * 72 * 12)),
    "convolution_grouped": (None, (2 * 2 * 48 * 18 + 48 - 6, 2 * 48 * 18)),
    "convolution_depthwise": (None, (2 * 2 * 108 * 4, 2 * 108 * 4)),
    "convolution_1d": (None, (2 * 2 * 40 * 6 + 40 - 4, 2 * 40 * 6)),
    "local_convolution": (None, (2 * 2 * 36 * 12 + 36 - 18, 2 * 36 * 12)),
    "deconvolution_grouped": ((2 * 72 * 12, 72 * 12), None),
    "deconvolution_3d": ((2 * 16 * 24 + 81, 16 * 24), None),
    # 36 elements of x contribute to 4 channels of 3 x 3 pixels; 120 elements of y have a bias.
    "deconvolution": ((2 * 36 * 36 + 120, 36 * 36), (2 * 2 * 36 * 36 + 120 - 4, 2 * 36 * 36)),
    # 36 windows of 3 x 3, 6 of 4 x 6, 72 of 2 x 2: an operation per pixel; backward also divides.
    "average_pooling": (36 * 9, 36 * (9 + 1)),
    "average_pooling_global": (6 * 24, 6 * (24 + 1)),
    "average_pooling_nd": (72 * 4, None),
    "max_pooling": (72 * 8, 72),
    "max_pooling_floor": (12 * 8, 12),
    # 24 elements, 2 channels.
    "batch_normalization": (24 * 7 + 2 * 3, None),
    "batch_normalization_axis": (24 * 7 + 2 * 3, None),
    # As above, and 3 operations for each of 2 running averages of 2 channels.
    "batch_normalization_running": (24 * 7 + 2 * 3 + 2 * 2 * 3, None),
    # 4 labels and 12 elements, or twice as many: maximum, difference, exponential, sum, logarithm
    # plus maximum, difference, exponential; sum and scale of losses, or signs.
    "softmax_cross_entropy": (8 + 24 + 8 + 8 + 24 + 3 + 1, 4 + 12 + 1),
    "softmax_cross_entropy_weight": (8 + 24 + 8 + 8 + 24 + 12 + 3 + 1, 4 + 2 * 12 + 1),
    "softmax_cross_entropy_no": (16 + 48 + 16 + 16 + 48 + 8, 8 + 24),
    "softmax_cross_entropy_soft": (None, 12 + 12 + 1),
    "softmax_cross_entropy_kl": (None, 12 + 12 + 1),
    # 4 remaining states: 3 gates of 4 operations, 2 tanh, 4 products and sums.
    "lstm_ends": (4 * (3 * 4 + 2 + 4), 4 * (3 * 4 + 2 + 5 + 16 + 1)),
    "lstm": (4 * (3 * 4 + 2 + 4), 4 * (3 * 4 + 2 + 5 + 16 + 1)),
    # 6 states. slstm: 5 gates, 3 tanh, 9 products and sums; tree_lstm: 4 gates, 2 tanh, 6.
    "slstm": (6 * (5 * 4 + 3 + 9), 6 * (24 + 5 + 28 + 2)),
    "tree_lstm": (6 * (4 * 4 + 2 + 6), 6 * (1 + 5 + 12 + 2 * 5)),
}


def test_exact_operations_are_counted_or_calculated_by_hand(subtests):
    for name, (call, arrays) in CASES.items():
        with subtests.test(name):
            plain = case(name)
            by_hand = BY_HAND.get(name, (None, None))
            CountingArray.flops = 0
            counted = [to_counting(a) if a.dtype.kind == "f" else a for a in arrays]
            ran = run(call, *counted, gradients=False)
            compare(plain.forward(), by_hand[0])
            if plain.has_backward:
                nodes = zip(ran.function.inputs, ran.needed, strict=True)
                xs = [node.get_variable() for node, need in nodes if need]
                CountingArray.flops = 0
                chainer.grad(ran.ys, xs, [chainer.Variable(to_counting(gy)) for gy in ran.gys])
                compare(plain.backward(), by_hand[1])


def compare(work, by_hand):
    if by_hand is not None:
        assert not work.about
        assert (work.flops, work.macs) == (by_hand if isinstance(by_hand, tuple) else (by_hand, 0))
    assert work.about or by_hand is not None or work.flops == CountingArray.flops


#: Bytes read and written in forward and backward.
BYTES = {
    # Elements have 8 bytes, arrays of 2 x 3 x 4 have 192.
    "relu": ((192, 192), (2 * 192, 192)),
    "add_constant": ((192, 192), (0, 0)),
    "reshape": ((0, 0), (0, 0)),
    "sum_axis": ((192, 3 * 8), (0, 0)),
    "mean_axis": ((192, 3 * 8), (3 * 8, 3 * 8)),
    "broadcast_to": ((0, 0), (5 * 192, 192)),
    "cast": ((192, 96), (96, 192)),
    "get_item": ((0, 0), (64, 192)),
    "get_items": ((192 + 32, 256), (256, 192)),
    "get_mask": ((96 + 2, 96), (96, 192)),
    "split_axis": ((0, 0), (192, 192)),
    # A copy of 2 x 2 x 4 x 6; backward reads only the gradient.
    "space2depth": ((768, 768), (768, 768)),
    # Arrays of 2 x 3.
    "add": ((96, 48), (0, 0)),
    "add_broadcast": ((72, 48), (48, 24)),
    "mul": ((96, 48), (144, 96)),
    "concat": ((48 + 64, 112), (0, 0)),
    # x, W, b; gy.
    "linear": ((48 + 96 + 32, 64), (64 + 48 + 96, 48 + 96 + 32)),
    # 8 indices of 4 bytes; 5 rows of 3 elements in W, each read at most once.
    "embed_id": ((32 + 120, 192), (32 + 192, 120)),
    # x, labels, 12 of 50 rows of W; x, labels, gradient of the loss, rows.
    "negative_sampling": ((96 + 16 + 288, 8), (96 + 16 + 8 + 288, 96 + 1200)),
    # An index of 8 bytes for each maximum.
    "max_pooling": ((1152, 576), (576 + 576, 1152)),
    "average_pooling_global": ((1152, 48), (48, 1152)),
    # 4 of 12 elements, and labels of 4 bytes.
    "select_item": ((32 + 16, 32), (32 + 16, 96)),
    # Logits and labels of 4 bytes; forward stores the softmax.
    "softmax_cross_entropy": ((96 + 16, 8), (96 + 16 + 8, 96)),
    # x, gamma, beta and 2 averages; x, gy, gamma, and stored mean and 1 / std.
    "batch_normalization_running": ((192 + 4 * 16, 192 + 32), (2 * 192 + 3 * 16, 192 + 32)),
}


def test_exact_bytes():
    for name, bytes_moved in BYTES.items():
        works = case(name).forward(), case(name).backward()
        moved = tuple((work.nbytes_read, work.nbytes_written) for work in works)
        assert moved == bytes_moved, name


def test_work_without_some_gradients_and_with_numpy_scalars():
    ran = case("convolution")
    whole, without_x = ran.backward(), ran.backward((False, True, True))
    assert without_x.macs == whole.macs // 2
    x, w, b = (array.nbytes for array in ran.inputs)
    gy = ran.gys[0].nbytes
    assert (without_x.nbytes_read, without_x.nbytes_written) == (gy + x, w + b)
    assert (whole.nbytes_read, whole.nbytes_written) == (gy + x + w, x + w + b)
    assert ran.backward((False,) * 3) == Work(0, 0, 0)
    with pytest.raises(ValueError, match="needed has 1 entries, but there are 3"):
        ran.backward((True,))
    # Integers count like floats, and a constant array is broadcast.
    ones = np.ones((2, 3), np.int32)
    assert run(lambda a, b: a + b, ones, ones).forward() == Work(6, 48, 24)
    ran = run(lambda x: x * np.float32(2), real(2, 3).astype("f"))
    assert ran.forward() == Work(6, 24, 24)
    # A NumPy integer selects a view, and a NumPy boolean makes a copy.
    moved = [run(lambda x, at=at: x[at], real(2, 3)).forward() for at in (np.int64(1), np.True_)]
    assert moved == [Work(0, 0, 0), Work(0, 49, 48)]
    assert Work(10, 4, 1, 5) + Work(2, 1, 0, about=True) == Work(12, 5, 1, 5, about=True)


def work_of(call, *args):
    """Total work of all functions that a call runs."""
    works = []

    def end(function, inputs, outputs, _):
        works.append(forward_work(function, specs_of(inputs), specs_of(outputs)))

    no_graph = chainer.no_backprop_mode()
    with chainer.using_config("train", False), no_graph, WalkHook(end=end):
        call(*args)
    return sum(works, Work(0, 0, 0))


def test_multiply_adds_of_known_networks():
    for name, giga in {"resnet18": "1.814", "resnet34": "3.664", "resnet50": "4.089"}.items():
        x = np.zeros((1, *REGISTRY[name].input_shape), np.float32)
        assert f"{work_of(REGISTRY[name].build(), x).macs / 1e9:.3f}" == giga, name


RECURRENT = [
    (NStepRNNTanh, F.n_step_rnn, 1, 1),
    *((NStepGRU, F.n_step_gru, 3, 1), (NStepBiLSTM, F.n_step_bilstm, 4, 2)),
]


@pytest.mark.parametrize(("cls", "call", "gates", "directions"), RECURRENT)
def test_recurrent_functions_of_cudnn_have_the_work_of_the_cpu_functions(
    cls, call, gates, directions
):
    layers, n, width, hidden, lengths = 3, 3, 4, 5, (3, 2, 2)
    hx = real(layers * directions, n, hidden).astype("f")
    xs = [real(length, width).astype("f") for length in lengths]
    widths = [width] + [hidden * directions] * (layers - 1)
    ws = [
        [real(hidden, widths[i] if k < gates else hidden).astype("f") for k in range(2 * gates)]
        for i in range(layers)
        for _ in range(directions)
    ]
    bs = [[real(hidden).astype("f") for _ in range(2 * gates)] for _ in ws]
    states = (hx, hx) if gates == 4 else (hx,)
    on_cpu = work_of(call, layers, 0.0, *states, ws, bs, xs)
    function = object.__new__(cls)
    function.n_layers = layers
    n_weights = sum(w.size for layer in ws + bs for w in layer)
    state_specs = specs_of(states)
    x, y = ((sum(lengths), size) for size in (width, hidden * directions))
    inputs = *state_specs, ArraySpec((n_weights,), "float32"), ArraySpec(x, "float32")
    outputs = *state_specs, ArraySpec(y, "float32")
    forward = forward_work(function, inputs, outputs)
    backward = backward_work(function, inputs, outputs, (True,) * len(inputs))
    assert (forward.macs, forward.flops) == (on_cpu.macs, on_cpu.flops)
    assert backward.macs == 2 * forward.macs


# -- formulas of users


class OldCube(chainer.Function):
    def forward(self, inputs):
        return (inputs[0] ** 3,)

    def backward(self, indexes, gys):
        return (gys[0],)


class Cube(chainer.FunctionNode):
    forward, backward = OldCube.forward, OldCube.backward


class MyReLU(ReLU):
    pass


@pytest.fixture(autouse=True)
def no_registered_formulas(monkeypatch):
    monkeypatch.setattr(work, "_users", {})


def call_of(cls):
    return run(lambda x: cls()(x) if cls is OldCube else cls().apply((x,))[0], real(2, 3))


def test_user_formula_returns_a_number_work_or_none():
    for cls in (Cube, OldCube):
        ran, calls_seen = call_of(cls), []
        assert ran.forward() is ran.backward() is None

        def formula(call, calls_seen=calls_seen):
            calls_seen.append((type(call.function), call.needed))
            return (2 + len(call.needed)) * call.inputs[0].size

        register_cost(cls)(formula)
        register_cost(cls, backward=True)(formula)
        assert (ran.forward(), ran.backward()) == (Work(12, 48, 48), Work(18, 96, 48))
        assert calls_seen == [(cls, ()), (cls, (True,))]
        register_cost(cls)(lambda call: None)
        register_cost(cls, backward=True)(lambda call: Work(1, 2, 3, 4))
        assert (ran.forward(), ran.backward()) == (None, Work(1, 2, 3, 4))
    # A subclass uses the formula of its base class until it has its own.
    assert call_of(type("BigCube", (Cube,), {})).backward() == Work(1, 2, 3, 4)
    ran, base = call_of(MyReLU), run(F.relu, real(2, 3))
    register_cost(MyReLU)(lambda call: 100)
    assert [cost.flops for cost in (ran.forward(), base.forward(), ran.backward())] == [100, 6, 6]


@pytest.mark.parametrize("nothing", ["x", None, Cube(), lambda call: 3, int, L.Linear])
def test_formula_must_be_for_a_class_with_work(nothing):
    message = refusal(register_cost, nothing, error=UsageError)
    assert message.startswith("register_cost(")
    assert message.endswith("): give the class of a function, an update rule or a hook")


def test_formula_must_be_callable_and_only_functions_have_backward():
    message = refusal(register_cost(Cube), "x", error=UsageError)
    assert message == "the formula of Cube is 'x': give a function"
    message = refusal(register_cost, Cube, backward="no", error=UsageError)
    assert message == "backward is 'no': give True or False"
    for cls in (chainer.optimizers.adam.AdamRule, chainer.optimizer_hooks.WeightDecay):
        register_cost(cls)(lambda call: 3)
        message = refusal(register_cost, cls, backward=True, error=UsageError)
        assert message == f"{cls.__name__} is not a function: it has no backward"
