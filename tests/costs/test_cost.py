"""The work model: what it covers, bytes, and formulas of users."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer.functions.activation.relu import ReLU

from chainer_profile.basics.words import BACKWARD, FORWARD
from chainer_profile.costs import registry
from chainer_profile.costs.work import (
    ArraySpec,
    Call,
    Work,
    backward_work,
    forward_work,
    known_functions,
    register_cost,
)
from tests import ROOT
from tests.costs.test_called import BY_FUNCTIONS
from tests.costs.test_cost_cases import case
from tests.costs.test_cost_harness import Ran, real, run

F32 = "float32"


def spec(*shape: int, dtype: str = F32) -> ArraySpec:
    return ArraySpec(shape, dtype)


# -- what is covered

#: Classes of chainer.functions without a formula, and why.
WITHOUT = {
    "Forget": "runs functions of the user's, which are calls of their own",
    "TheanoFunction": "runs a function of Theano's",
    "DecorrelatedBatchNormalization": "decomposes into eigenvectors by iteration",
    # Bases.
    "BaseNStepRNN": "is only derived from",
    "IndexSelectorBase": "is only derived from",
    "Pooling2D": "is only derived from",
    "SelectorBase": "is only derived from",
    "_PoolingND": "is only derived from",
    # Parts of the backward of another function, which counts them; calls of their own only in
    # double backpropagation. So are all whose name has Grad in it.
    "_MulInvStd": "is a part of GroupNormalization's",
    "_XHat": "is a part of GroupNormalization's",
}
#: Classes whose forward has a formula and whose backward has none.
NOT_DIFFERENTIABLE = {"Accuracy", "ArgMax", "ArgMin", "BinaryAccuracy", "ClassificationSummary"} | {
    "R2_score"
}
DOUBLE_BACKPROPAGATION = {"Assign", "DiagEinSum", "MaxPoolingNDWithIndexes", "_SetItemZero"}


def function_classes() -> Iterator[type]:
    """Every class of a function in chainer.functions and its modules."""
    for module in pkgutil.walk_packages(F.__path__, "chainer.functions."):
        importlib.import_module(module.name)
    found: set[type] = set()
    left = [chainer.FunctionNode, chainer.Function]
    while left:
        for cls in left.pop().__subclasses__():
            if cls not in found:
                found.add(cls)
                left.append(cls)
    for cls in sorted(found, key=lambda cls: cls.__name__):
        if cls.__module__.startswith("chainer.functions."):
            yield cls


def entry(cls: type, phase: str) -> registry.Entry | None:
    return registry.find(object.__new__(cls), phase)


def test_every_function_of_chainer_has_a_formula_or_a_reason() -> None:
    classes = list(function_classes())
    assert len(classes) > 250
    without = {cls.__name__ for cls in classes if entry(cls, FORWARD) is None}
    assert {name for name in without if "Grad" not in name} == WITHOUT.keys()


def test_every_function_with_a_gradient_has_a_formula_for_it_or_calls_functions_that_have() -> None:
    without = {
        cls.__name__
        for cls in function_classes()
        if entry(cls, FORWARD) and not entry(cls, BACKWARD)
    }
    by_functions = {type(case(name).function).__name__ for name in BY_FUNCTIONS}
    assert {name for name in without if "Grad" not in name} == (
        NOT_DIFFERENTIABLE | DOUBLE_BACKPROPAGATION | by_functions
    )


def test_every_formula_is_of_a_class_that_there_is() -> None:
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in function_classes()}
    assert registry.chainer_names() <= names


def test_every_formula_says_what_it_counts() -> None:
    known = known_functions()
    assert known["ReLU"] == (
        "activation",
        "maximum(x, 0), each element; backward: where(y > 0, g, 0), each element",
    )
    assert known["Convolution2DFunction"][0] == "convolution"
    for name, (family, meaning) in known.items():
        assert family.isalpha(), name
        assert len(meaning.partition("; backward: ")[0]) > 10, name
        assert "\n" not in meaning, name


def test_it_is_imported_without_chainer() -> None:
    code = "import sys, chainer_profile.costs.work; sys.exit('chainer' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# -- bytes


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
        ("max_axis", (192, 64), (192 + 2 * 64, 192)),
        # Of 2 x 3.
        ("add", (96, 48), (0, 0)),
        ("add_broadcast", (72, 48), (48, 24)),
        ("mul", (96, 48), (144, 96)),
        ("concat", (48 + 64, 112), (0, 0)),
        # x, W, b; gy.
        ("linear", (48 + 96 + 32, 64), (64 + 48 + 96, 48 + 96 + 32)),
        # 8 indices of 4 bytes; W has 5 rows of 3 elements, no row is read twice.
        ("embed_id", (32 + 120, 192), (32 + 192, 120)),
        # x, labels, 12 of W's 50 rows; x, the loss's gradient, 12 samples of 4 bytes, the rows.
        ("negative_sampling", (96 + 16 + 288, 8), (96 + 8 + 48 + 288, 96 + 1200)),
        # An index of 8 bytes for each maximum.
        ("max_pooling", (1152, 576), (576 + 576, 1152)),
        ("average_pooling_global", (1152, 48), (48, 1152)),
        ("upsampling", (2 * 1152, 4608), (2 * 1152, 1152)),
        # 4 of 12 elements, and labels of 4 bytes.
        ("select_item", (32 + 16, 32), (32 + 16, 96)),
        # 2 elements with two indices of 4 bytes each, 4 x 5 elements, 3 x 5 results.
        ("sparse_matmul", (16 + 16 + 160, 120), (16 + 16 + 160 + 120, 16 + 160)),
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
    assert ran.backward((False, False, False)) == Work(0, 0, 0)


def test_work_in_words() -> None:
    work = Work(10, 4, 1, 5) + Work(2, 1, 0)
    assert work == Work(12, 5, 1, 5)
    assert work.nbytes == 6
    assert work.intensity == 2
    assert Work(0, 0, 0).intensity is None


# -- formulas of users


class Cube(chainer.FunctionNode):
    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inputs[0] ** 3,)

    def backward(self, indexes: Any, gys: Any) -> Any:
        return (gys[0],)


class BigCube(Cube):
    pass


class OldCube(chainer.Function):
    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inputs[0] ** 3,)

    def backward(self, inputs: Any, gys: Any) -> Any:
        return (gys[0],)


class MyReLU(ReLU):
    pass


@pytest.fixture(autouse=True)
def _no_formula_stays() -> Iterator[None]:
    yield
    for cls in (Cube, BigCube, OldCube, MyReLU):
        registry.forget(cls)


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
    assert known_functions()[cls.__name__] == (
        "user",
        "Two products an element; backward: Three products an element",
    )


def test_formulas_that_return_work_and_arrays() -> None:
    @register_cost(Cube)
    def forward(call: Call) -> Any:
        """x^3: two products."""
        return call.x[0] * call.x[0] * call.x[0]

    @register_cost(Cube, backward=True)
    def backward(call: Call) -> Work:
        """A constant."""
        return Work(1, 2, 3, 4)

    ran = cube(Cube)
    assert ran.forward() == Work(12, 48, 48)
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
    ran = run(lambda x: x * np.float32(2), real(2, 3).astype(F32))
    assert ran.forward() == Work(6, 24, 24)
