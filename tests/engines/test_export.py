"""Networks are exported to ONNX with correct outputs and names, or refused with a reason."""

import re
import warnings
from dataclasses import replace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import onnx

from chainer_profile.engines.equality import other_inputs
from chainer_profile.engines.onnx import converters
from chainer_profile.engines.onnx.export import OPSET, export_model
from chainer_profile.engines.onnx.nodes import read_origin
from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from tests.engines.exporting import (
    NETWORKS,
    assert_close,
    images,
    net,
    network_of,
    outputs_of,
    prepared,
)
from tests.engines.random_networks import random_network
from tests.refusing import arrays_of, assert_same, refusal


def check(network):
    """Export and run a network, check its outputs, and return the model."""
    engine = prepared(OnnxRuntimeEngine, network)
    assert_close(engine.run(network.inputs), outputs_of(network))
    return engine.model


class WithParameter(chainer.Chain):
    def __init__(self, function):
        super().__init__()
        self.function = function
        with self.init_scope():
            self.b = chainer.Parameter(images(4, 1, 1, seed=1))

    def forward(self, x):
        return self.function(x, self.b)


def test_an_array_and_a_parameter_in_either_order(subtests):
    for name, function in WITH_PARAMETER.items():
        with subtests.test(name):
            check(network_of(WithParameter(function), X))


def check_function(function, *inputs):
    """Check a network that consists of one function."""
    return check(network_of(net(lambda net, *xs: function(*xs)), *inputs))


X = images(2, 4, 6, 6)
#: Functions with our converters, and some others. random_networks.py has more.
FUNCTIONS = {
    "arithmetic": lambda x: (2 - x) / (x * x + 3) - x**2 + (-x) * 0.5 + 1 / (2 + F.square(x)),
    "add of three": lambda x: F.add(x, F.tanh(x), x),
    "add of three shapes": lambda x: F.add(x, x[:, :1], x[:1, :, :, :1]),
    "average_pooling_nd": lambda x: F.average_pooling_nd(x, 3, 2, 1),
    "average_pooling_nd unpadded": lambda x: F.average_pooling_nd(x, 3, 2, 1, pad_value=None),
    "elementwise": lambda x: F.log(F.exp(F.elu(x)) + 1) + F.erf(F.hard_sigmoid(x)) + F.sign(x),
    "flip": lambda x: F.flip(F.flip(x, 1), -1),
    "fliplr and flipud": lambda x: F.fliplr(F.flipud(x)),
    "getitem": lambda x: x[:, [0, 2]][:, :, ::2, -1],
    "layer_normalization": lambda x: F.layer_normalization(
        F.reshape(x, (2, -1)), np.ones(144, "f") * 2, np.ones(144, "f")
    ),
    **{
        f"max_pooling_2d {k}, {s}, {p}": lambda x, k=k, s=s, p=p: F.max_pooling_2d(x, k, s, p)
        for k, s, p in [(2, 2, 0), (3, 2, 0), (2, 4, 1), (3, 5, 1), (3, 2, 2), (2, 3, 1), (5, 4, 2)]
    },
    "normalize": lambda x: F.normalize(x),
    "prelu": lambda x: F.prelu(x, np.array([0.1, 0.2, 0.3, 0.4], "f")),
    "reductions": lambda x: F.logsumexp(x, axis=1) + F.sum(F.log_softmax(x), axis=1),
    "resize_images": lambda x: F.resize_images(x, (9, 4)),
    "resize_images without corners": lambda x: F.resize_images(x, (12, 9), align_corners=False),
    "resize_images nearest": lambda x: F.resize_images(
        x, (12, 18), mode="nearest", align_corners=False
    ),
    "shapes": lambda x: F.tile(F.repeat(F.stack((x, F.moveaxis(x, 2, 3))), 2, axis=2), (1,) * 5),
    "softplus": lambda x: F.softplus(x) + F.softplus(x, beta=2.0),
    "swish": lambda x: F.swish(x, np.array([0.5, 1, 2, 3], "f")),
    "transpose": lambda x: F.transpose(F.transpose(x, (0, -1, 1, 2))),
}
#: Operations of an array and a parameter, in which Chainer may swap the two.
WITH_PARAMETER = {
    "x + b": lambda x, b: x + b,
    "b + x": lambda x, b: b + x,
    "x * b": lambda x, b: x * b,
    "x - b": lambda x, b: x - b,
    "x / b": lambda x, b: x / (b + 9),
    "b of another rank": lambda x, b: x[:, :, 0, 0] + b[0],
    "x twice": lambda x, b: x * (x + b),
    "after a function": lambda x, b: x + F.relu(x) * (x + b),
}
LINKS = {
    "convolution_nd": lambda: L.ConvolutionND(2, 4, 6, 3, pad=1, dilate=2),
    "deconvolution_2d": lambda: L.Deconvolution2D(4, 6, 3, 2, 1),
    "deconvolution_2d of a size": lambda: L.Deconvolution2D(4, 6, 3, 2, outsize=(14, 13)),
    "deconvolution_nd": lambda: L.DeconvolutionND(2, 4, 6, 3, 2, 1),
    "group_normalization": lambda: L.GroupNormalization(2, 4),
    "no parameters": lambda: L.BatchNormalization(4, use_beta=False, use_gamma=False),
    "prelu": lambda: L.PReLU((4, 6, 6)),
}
#: Number of rows, ignored index, and indices.
INDICES = [
    (8, None, [[2, 0, 2], [1, 4, 7]]),
    (8, -1, [[2, 0, 2], [-1, 4, 7]]),
    (5, 7, [[2, 0, 2], [7, 4, 1]]),  # outside of the table
]


def test_exported_functions_and_links_compute_the_outputs_of_chainer(subtests):
    for name, function in FUNCTIONS.items():
        with subtests.test(name):
            check_function(function, X)
    for name, link in LINKS.items():
        with subtests.test(name):
            check(network_of(link(), X))
    for n_rows, ignored, indices in INDICES:
        for dtype in ("i", "l"):
            with subtests.test(ignored=ignored, dtype=dtype):
                link = L.EmbedID(n_rows, 4, ignore_label=ignored)
                check(network_of(link, np.array(indices, dtype)))


class Doubling(chainer.FunctionNode):
    """A function that calls other functions in its forward."""

    def forward(self, inputs):
        return ((F.sigmoid(inputs[0]) * 2).array,)


def doubling_in_onnx(params):
    nodes = onnx.helper.make_node("Sigmoid", params.input_names, ["half"])
    return nodes, onnx.helper.make_node("Add", ["half", "half"], params.output_names)


def test_node_names_identify_layers(monkeypatch):
    def layers_of(function):
        model = check_function(function, X)
        return [read_origin(model).layers_of(node.name) for node in model.graph.node]

    network = network_of(NETWORKS["branches"]())
    model = export_model(network)
    names = [node.name for node in model.graph.node]
    assert sorted(names, key=lambda name: int(name.partition("_")[0])) == [
        f"{layer.label}@{layer.path}" for layer in network.layers
    ]
    # Constants and parameters are initializers, not inputs.
    assert [value.name for value in model.graph.input] == ["input"]
    assert [value.name for value in model.graph.output] == ["output"]
    both = check_function(lambda x, y: x * y, images(2, 3), images(2, 1))
    assert [value.name for value in both.graph.input] == ["input_0", "input_1"]
    assert [opset.version for opset in model.opset_import] == [OPSET]
    # Several nodes of one layer; a node without a layer; nested calls.
    assert layers_of(lambda x: F.stack((x, x))) == [(0,)] * 3
    assert layers_of(lambda x: F.relu(F.sign(x))) == [(), (0,)]
    monkeypatch.setitem(converters.CONVERTERS, "Doubling", doubling_in_onnx)
    assert layers_of(lambda x: F.relu(Doubling().apply((x,))[0])) == [(0, 1, 2), (0, 1, 2), (3,)]
    # An unknown function is ignored if its output is not used.
    check_function(lambda x: (F.cumsum(x, axis=1), F.relu(x))[1], X)


def test_export_does_not_change_the_network():
    network = network_of(NETWORKS["twice"]())
    network.model.cleargrads()
    before, x = arrays_of(network.model), network.inputs[0].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_model(network)
    assert_same(arrays_of(network.model), before)
    assert all(param.grad is None for param in network.model.params())
    assert (network.inputs[0] == x).all()
    assert not chainer.disable_experimental_feature_warning


# Networks that cannot be exported.


def cut(net, x):
    with chainer.no_backprop_mode():
        h = F.relu(x)
    return F.tanh(h)


def forward_by_chance():
    calls = iter([False, False] + [True] * 9)
    return lambda net, x: F.tanh(x) if next(calls) else F.relu(x)


def forward_by_data(net, x):
    """A forward that calls other functions for all inputs except the first."""
    number = float(x.sum() if isinstance(x, np.ndarray) else x.array.sum())
    if not hasattr(net, "number"):
        object.__setattr__(net, "number", number)
    return F.relu(x) if number == net.number else F.tanh(x)


REFUSED = {
    "the ONNX exporter does not know Cumsum (layer 1_Cumsum at /inner)": net(
        lambda net, x: net.inner(F.relu(x)), inner=net(lambda net, x: F.crelu(F.cumsum(x, axis=1)))
    ),
    "the ONNX exporter cannot express Pad (layer 0_Pad at /): ValueError: ": (
        lambda net, x: F.pad(x, 1, "symmetric")
    ),
    "ReLU, call 0, runs in no_backprop_mode: remove this": cut,
    "the network returns a ndarray, but only a chainer.Variable can be exported": (
        lambda net, x: F.relu(x).array
    ),
    "the network does not always make the same calls: call 0": forward_by_chance(),
    "the network's calls depend on its data: call 0 is ReLU in one run and Tanh": forward_by_data,
}


def test_message_about_networks_that_cannot_be_exported(subtests):
    for message, model in REFUSED.items():
        with subtests.test(message):
            network = network_of(model if isinstance(model, chainer.Link) else net(model), X)
            assert refusal(export_model, network, error=EngineError).startswith(message)


#: Empty, or functions that ONNX Runtime lacks in float64 or float16.
EXPECTED_REASONS = r"^$|NOT_IMPLEMENTED .* for (Conv\(11\)|LeakyRelu\(6\)) node"
#: Allowed difference relative to the largest number, by item size.
TOLERANCES = {2: 2e-2, 4: 1e-3, 8: 1e-9}


def test_exported_random_networks_compute_the_outputs_of_chainer(subtests):
    n_exported = 0
    for seed in range(60):
        with subtests.test(seed=seed), np.errstate(all="ignore"):
            model, inputs = random_network(seed)
            network, engine = network_of(model, *inputs, threads=1), OnnxRuntimeEngine()
            reason = ""
            try:
                engine.prepare(network)
            except EngineError as error:
                reason = str(error)
            assert re.search(EXPECTED_REASONS, reason)
            if reason:
                continue
            n_exported += 1
            for arrays in (inputs, other_inputs(inputs)):
                expected = outputs_of(replace(network, inputs=arrays))
                for ours, theirs in zip(expected, engine.run(arrays), strict=True):
                    assert_close((theirs,), (ours,), TOLERANCES.get(ours.dtype.itemsize, 0))
    assert n_exported >= 40
