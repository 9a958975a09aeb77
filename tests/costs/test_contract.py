"""What holds of every entry of the tables, and of formulas of users."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer.functions.activation.relu import ReLU

from chainer_profile.costs import formulas, work
from chainer_profile.costs.work import (
    ArraySpec,
    Call,
    Work,
    backward_work,
    forward_work,
    register_cost,
)
from tests import ROOT
from tests.costs.calls import Ran, positive, real, run
from tests.costs.cases import CASES, case

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


def test_it_is_imported_without_chainer() -> None:
    code = "import sys, chainer_profile.costs.work; sys.exit('chainer' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


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


def test_the_page_names_every_function_that_is_approximate() -> None:
    page = (ROOT / "docs" / "functions.md").read_text()
    section = page.partition("## Exact, and about\n")[2].partition(". Of some that are")[0]
    about = [case(name) for name in CASES if case(name).forward().about]
    assert set(re.findall(r"`(\w+)`", section)) == {
        type(work.inner(ran.function)).__name__ for ran in about
    }
