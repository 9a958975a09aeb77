from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.trace import Value, difference, require_static, trace, turned
from tests.engines.varied import Deciding, Residual, images, network, output


def test_calls_are_the_layers_in_their_order() -> None:
    model, x = Residual(), images(2, 3, 6, 6)
    traced = trace(model, (x,))
    layers = network(model, x).layers
    assert [(call.index, call.name) for call in traced.calls] == [
        (layer.index, layer.function) for layer in layers
    ]
    for call, layer in zip(traced.calls, layers, strict=True):
        assert tuple(value.shape for value in call.outputs if value) == layer.output_shapes


def test_every_value_comes_from_an_input_or_an_earlier_call() -> None:
    traced = trace(Residual(), (images(1, 3, 6, 6),))
    known = {value.number for value in traced.inputs}
    for call in traced.calls:
        taken = [source for source in call.inputs if isinstance(source, Value)]
        assert {value.number for value in taken} <= known
        made = [value.number for value in call.outputs if value is not None]
        assert not known & set(made)
        known |= set(made)
    assert {value.number for value in traced.outputs} <= known


def test_functions_are_left_as_they_were() -> None:
    model = Residual()
    before = output(model, images(1, 3, 6, 6)).array
    trace(model, (images(1, 3, 6, 6),))
    np.testing.assert_array_equal(output(model, images(1, 3, 6, 6)).array, before)


class Outer(chainer.FunctionNode):
    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (F.relu(inputs[0]).array + 1,)


def test_calls_within_calls_count_but_are_not_kept() -> None:
    traced = trace(lambda x: F.sigmoid(Outer().apply((x,))[0]), (images(2, 3),))
    assert [(call.index, call.name) for call in traced.calls] == [(0, "Outer"), (2, "Sigmoid")]


class Old(chainer.Function):
    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs(())
        return (inputs[0] * 2,)


def test_old_functions_can_be_called_again() -> None:
    x = images(2, 3)
    traced = trace(lambda x: Old()(x), (x,))
    np.testing.assert_array_equal(traced.calls[0].function.forward((x,))[0], 2 * x)


def test_a_call_of_constants_alone_gives_constants() -> None:
    table = images(2, 3)
    traced = trace(lambda x: x + F.relu(table), (images(2, 3),))
    relu, add = traced.calls
    assert relu.outputs == ()
    assert isinstance(add.inputs[0], Value) != isinstance(add.inputs[1], Value)


def test_the_form_of_the_output_is_kept() -> None:
    traced = trace(lambda x: {"a": F.relu(x), "b": (F.exp(x), F.tanh(x))}, (images(2, 3),))
    assert len(traced.outputs) == 3
    assert [value.number for value in traced.outputs] == [1, 2, 3]


def test_an_output_that_no_function_made() -> None:
    with pytest.raises(EngineError, match="output 0 of the network is an array that no Chainer"):
        trace(lambda x: chainer.Variable(x * 2), (images(2, 3),))


def test_an_output_that_is_no_array() -> None:
    with pytest.raises(EngineError, match="the network gives a str"):
        trace(lambda x: "no", (images(2, 3),))


def test_a_network_that_fails() -> None:
    with pytest.raises(EngineError, match=r"the network fails: InvalidType: .*Convolution2D"):
        trace(Residual(), (images(1, 2, 6, 6),))


def test_turned_has_the_same_numbers_in_another_order() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.testing.assert_array_equal(turned(x), [[5, 4, 3], [2, 1, 0]])


def sensitive(x: Any) -> Any:
    return F.reshape(x, (int(x[0, 0] > 0) + 1, -1))


def outside(x: Any) -> Any:
    return F.relu(x) + float(x[0, 0])


def more(x: Any) -> Any:
    y = F.relu(x)
    return F.relu(y) if x[0, 0] > 0 else y


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Deciding(), "call 1 was ReLU for one input, and Sigmoid for another"),
        (sensitive, "the outputs of call 0, Reshape, have other shapes for another input"),
        (outside, "call 1, AddConstant, has other settings for another input"),
        (lambda x: F.add(F.relu(x), 2 * x), "call 1, Add, takes an array that was computed out"),
        (more, "2 calls for one input, and 1 for another"),
    ],
)
def test_calls_that_depend_on_the_data(model: Any, message: str) -> None:
    x = np.array([[1, 2, 3, -4], [-5, 6, 7, -9]], np.float32)
    with pytest.raises(EngineError, match=f"calls depend on its data: {message}"):
        require_static(model, (x,))


def test_the_same_network_twice_has_no_difference() -> None:
    model = chainer.Sequential(L.Linear(3, 4), F.relu)
    first, second = (trace(model, (images(2, 3, seed=seed),)) for seed in (1, 2))
    assert difference(first, second) == ""


def test_a_function_that_gives_what_it_took() -> None:
    traced = trace(lambda x: (F.identity(x), F.relu(x)), (images(2, 3),))
    numbers = [value.number for value in (*traced.inputs, *traced.outputs)]
    assert len(set(numbers)) == 3


def test_an_input_that_is_reshaped_outside_of_functions() -> None:
    traced = trace(lambda x: F.relu(x.reshape(2, 6)), (images(2, 3, 2),))
    assert [(call.index, call.name) for call in traced.calls] == [(-1, "Reshape"), (0, "ReLU")]
    assert traced.calls[1].inputs == traced.calls[0].outputs
