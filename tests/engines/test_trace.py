import re

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.trace import Value, difference, require_static, trace
from tests.engines.exporting import NETWORKS, images, net, network_of, outputs_of
from tests.refusing import refusal


def test_calls_are_the_layers_in_their_order_and_values_come_from_earlier_ones():
    network = network_of(NETWORKS["residual"](), images(2, 8, 6, 6))
    before = outputs_of(network)
    traced, known = trace(network.model, network.inputs), {0}
    for call, layer in zip(traced.calls, network.layers, strict=True):
        assert (call.index, call.name) == (layer.index, layer.function)
        assert tuple(value.shape for value in call.outputs if value) == layer.output_shapes
        assert {source.number for source in call.inputs if isinstance(source, Value)} <= known
        made = {value.number for value in call.outputs if value is not None}
        assert not known & made
        known |= made
    assert {value.number for value in traced.outputs} <= known
    # Functions are left as they were.
    np.testing.assert_array_equal(outputs_of(network), before)


class Old(chainer.Function):
    def __init__(self, factor):
        self.factor = factor

    def forward(self, inputs):
        return (inputs[0] * self.factor,)


def test_settings_of_old_functions_are_compared():
    once, again, other = (trace(lambda x, n=n: Old(n)(x), (images(2, 3),)) for n in (2, 2, 3))
    assert difference(once, again) == ""
    assert difference(once, other) == "call 0, Old, has different settings for another input"


def test_a_call_of_constants_alone_gives_constants():
    table = images(2, 3)
    relu, add = trace(lambda x: x + F.relu(table), (images(2, 3),)).calls
    assert relu.outputs == ()
    assert isinstance(add.inputs[0], Value) != isinstance(add.inputs[1], Value)


def refused(model, x, message):
    assert re.search(message, refusal(require_static, model, (x,), error=EngineError))


def deciding(net, x):
    """Takes one of two ways by the first number of its input."""
    h = net.fc(x)
    return F.relu(h) if x.array[0, 0] > 0 else F.sigmoid(h)


def more(x):
    y = F.relu(x)
    return F.relu(y) if x[0, 0] > 0 else y


def in_place(x):
    h = F.relu(x)
    h.array[...] *= 2
    return F.sigmoid(h)


NUMBERS = [
    (net(deciding, fc=L.Linear(4, 4)), r"\(getitem, test_trace.py:\d+\)"),
    (lambda x: F.reshape(x, (int(x[0, 0] > 0) + 1, -1)), r"\(getitem, test_trace.py:\d+\)"),
    (lambda x: F.relu(x) + float(x[0, 0]), r"\(getitem, "),
    (more, r"\(getitem, "),
    (lambda x: F.relu(x[:, :2]), r"\(getitem, "),
    (in_place, r"\(getitem, "),
    (lambda x: F.relu(x) if x.sum() > -100 else F.sigmoid(x), r"\(sum, "),
    (lambda x: F.permutate(x, np.argsort(x[:, 0])), r"\(getitem, "),
    (lambda x: F.relu(x) * float(np.asarray(x).min()), "different settings|reads values"),
    (lambda x: F.where(x > 0, x, F.tanh(x)), r"\(greater, "),
]


def test_code_that_looks_at_numbers_and_what_else_cannot_be_exported(subtests):
    for message, model in {
        "output 0 .* that no Chainer function": lambda x: chainer.Variable(np.ones((2, 3), "f")),
        "the network returns a str": lambda x: "no",
        "the network fails: InvalidType: .*Linear": L.Linear(4, 3),
        "calls depend on its data: call 1 was LSTM": L.LSTM(3, 4),
    }.items():
        with subtests.test(message):
            refused(model, images(2, 3), message)
    x = np.array([[1, 2, 3, -4], [-5, 6, 7, -9]], np.float32)
    for number, (model, message) in enumerate(NUMBERS):
        with subtests.test(message, number=number):
            refused(model, x, f"calls depend on its data: .*{message}")
    require_static(lambda x: F.where(np.array([True, False, True, True]), x, F.tanh(x)), (x,))


def test_code_that_looks_at_shapes_and_types_alone():
    def model(x):
        h = F.relu(x.reshape(len(x), -1)) + np.zeros_like(x).reshape(len(x), -1).shape[1]
        assert x.dtype == np.float32
        assert np.ndim(x) == 3
        return F.broadcast_to(h, h.shape)

    assert require_static(model, (images(2, 3, 4),)).outputs


HOLDING = [
    lambda x: F.permutate(x, np.array([1, 0]).astype(np.int32)),
    lambda x: F.get_item(x, (np.array([1, 0]), slice(None))),
    lambda x: F.select_item(x, np.array([1, 0])),
    lambda x: F.where(np.array([[True, False, True]] * 2), x, F.relu(x)),
]


def test_arrays_that_a_function_holds():
    for model in HOLDING:  # and that stay the same
        assert len(require_static(model, (images(2, 3),)).outputs) == 1
    # An input is a value.
    mask = np.array([[True, False, True]] * 2)
    traced = require_static(lambda c, x: F.where(c, x, F.relu(x)), (mask, images(2, 3)))
    assert traced.calls[-1].held == {"condition": 0}


def test_nothing_is_left_of_the_second_pass():
    def forward(net, x):
        y = F.relu(x)
        net.calls += 1
        chainer.report({"most": F.max(y)}, net)
        return y

    reporter = chainer.Reporter()
    model = net(forward)
    model.calls = 0
    reporter.add_observer("net", model)
    x = images(2, 3)
    with reporter:
        require_static(model, (x,))
    assert float(reporter.observation["net/most"].array) == x.max()
    assert model.calls == 1


def test_a_value_is_known_by_its_number():
    for model, outputs in (
        # A function may give the array that it took; a shape outside of functions is no call.
        (lambda x: (F.identity(x), F.relu(x)), [1, 2]),
        (lambda x: F.relu(x.reshape(3, 2)), [1]),
        (lambda x: {"a": F.relu(x), "b": (F.exp(x), F.tanh(x))}, [1, 2, 3]),
    ):
        first, second = (trace(model, (images(2, 3, seed=seed),)) for seed in (1, 2))
        assert difference(first, second) == ""
        assert [value.number for value in first.outputs] == outputs
        assert all(isinstance(value, Value) for call in first.calls for value in call.inputs)
