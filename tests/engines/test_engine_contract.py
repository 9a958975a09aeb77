"""ONNX Runtime as an engine: networks, layers and files; and Chainer as an engine."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import onnxruntime
import pytest

from chainer_profile.engines.equality import chainer_intermediates
from chainer_profile.engines.onnx.export import export_model
from chainer_profile.engines.protocol import EngineError
from chainer_profile.engines.runtimes import onnxruntime_engine
from chainer_profile.engines.runtimes.batch import larger_batch, take_any_batch
from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine, FastEngine
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from chainer_profile.kernels.accelerate import kernels_now
from tests.command import file_size_limit
from tests.engines.exporting import (
    NETWORKS,
    assert_close,
    images,
    net,
    network_of,
    outputs_of,
    prepared,
)
from tests.refusing import refusal

#: Kinds of nodes without a layer.
RUNTIME_KINDS = {"Identity", "ReorderInput", "ReorderOutput"}
#: Functions that a runtime may remove.
VIEWS = {"Reshape", "BroadcastTo"}


def network(name="residual", *inputs, **more):
    return network_of(NETWORKS[name](), *inputs, **more)


def assert_layers_and_times(profile, network, trials):
    """Check that each layer is in one node or gone, and that node times fit into run times."""
    covered = [index for node in profile.nodes for index in node.layers]
    assert sorted([*covered, *profile.gone]) == list(range(len(network.layers)))
    assert len(profile.run_ns) == trials
    assert profile.node_ns.shape == (trials, len(profile.nodes))
    assert (profile.node_ns >= 0).all()
    assert (profile.node_ns.sum(1) <= profile.run_ns).all()


def test_each_network_runs_saves_and_loads_in_onnx_runtime(tmp_path, subtests):
    for name in NETWORKS:
        with subtests.test(name):
            net = network(name, threads=1)
            engine, (x,), path = prepared(OnnxRuntimeEngine, net), net.inputs, tmp_path / "net.onnx"
            expected, layers = outputs_of(net), chainer_intermediates(net)
            got = engine.run((np.asfortranarray(x),))
            engine.run((x * 2,))  # the second run must not overwrite outputs
            assert_close(got, expected)
            engine.save(path)
            for param in net.model.params():
                param.array[...] = 0  # the weights must be from the file
            loaded = OnnxRuntimeEngine()
            loaded.load(net, path)
            for each in (engine, loaded):
                assert_close(each.run(net.inputs), expected)
                profile = each.layers(net.inputs, 3)
                assert_layers_and_times(profile, net, 3)
                # Layers faster than the resolution of the runtime's clock have nodes, too. Scalars
                # without effect are gone, except next to the network's input and output.
                gone = {net.layers[index].function for index in profile.gone}
                assert profile.gone == (2, 5) if "without effect" in name else gone <= VIEWS
                # Only changes of layout and copies have no layer.
                assert {node.kind for node in profile.nodes if not node.layers} <= RUNTIME_KINDS
                intermediates = each.intermediates(net.inputs)
                assert intermediates
                for index, array in intermediates.items():
                    assert_close((array.astype(layers[index].dtype),), (layers[index],))


def test_fused_node_has_all_its_layers():
    net = network(threads=1)
    nodes = prepared(OnnxRuntimeEngine, net).layers(net.inputs, 2).nodes
    # The sum and its activation belong to the last convolution.
    covers = sorted(node.layers for node in nodes if node.layers)
    assert covers in ([(0, 1, 2), (3, 4), (5, 6, 7, 8)], [(0, 1, 2), (3, 4, 7, 8), (5, 6)])


def test_files_of_other_networks_and_damaged_files_are_refused(tmp_path):
    net, path = network(), tmp_path / "net.onnx"
    engine = prepared(OnnxRuntimeEngine, net)
    with file_size_limit(1000), pytest.raises(Exception, match="cannot be written"):
        engine.save(path)
    assert list(tmp_path.iterdir()) == []
    engine.save(path)
    for other, expected in (
        (network("branches"), "the file contains another network: its layer 1 is"),
        (network("residual", images(3, 8, 8, 8)), "of 2x8x8x8, but the network's are 3x8x8x8"),
        (replace(net, layers=net.layers[:1]), "layers, but the network has 1"),
        (replace(net, device="gpu:0"), "omit --gpu"),
    ):
        assert expected in refusal(engine.load, other, path)
    for content in (path.read_bytes()[:200], b"something else", b"", b"\x08\x07" * 9):
        path.write_bytes(content)
        assert f"{path} is damaged, or not an " in refusal(engine.load, net, path)
    path.unlink()
    assert refusal(engine.load, net, path) == f"there is no file {path}"
    path.mkdir()
    assert "cannot be read" in refusal(engine.load, net, path)
    model = engine.model
    for text in ("{}", "[]", "{", '{"version": 1}', '{"version": 9}', "null"):
        model.metadata_props[0].value = text
        message = refusal(engine.start, net, model)
        assert re.search("is damaged|another version", message), text
    model.metadata_props.pop()
    assert refusal(engine.start, net, model).startswith("the file was made by another program")
    model = export_model(net)
    model.graph.node[0].op_type = "NoSuchThing"
    assert "ONNX Runtime cannot compile it: " in refusal(engine.start, net, model)


def test_nodes_of_chainer_are_its_layers():
    net = network()
    for make in (ChainerEngine, FastEngine):
        engine = prepared(make, net)
        assert engine.version == chainer.__version__
        assert_close(engine.run(net.inputs), outputs_of(net))
        assert kernels_now() == ""
        profile = engine.layers(net.inputs, 2)
        assert_layers_and_times(profile, net, 2)
        assert [node.layers for node in profile.nodes] == [(i,) for i in range(len(net.layers))]
        assert [node.kind for node in profile.nodes] == [layer.function for layer in net.layers]
    with engine.block():
        engine.run(net.inputs)
        assert kernels_now() == "numpy"
    assert "only for the CPU" in refusal(engine.prepare, network(device="gpu:0"))


#: Functions that use the batch size in shapes.
BATCH_SHAPES = [
    lambda x: F.reshape(x, (len(x) * x.shape[2], -1)),
    lambda x: x * F.broadcast_to(F.mean(x, axis=(2, 3), keepdims=True), x.shape),
    lambda x: F.reshape(F.reshape(x, (len(x), -1)), x.shape),
    lambda x: F.transpose(x, (1, 0, 2, 3)),
]


def test_any_batch_size_or_an_unchanged_engine(subtests):
    embedding = net(lambda net, x: F.reshape(net.embed(x), (len(x), -1)), embed=L.EmbedID(4, 3))
    cases = [(embedding, np.array([[1, 3], [0, 2]], np.int32))]
    cases += [(make(), images(2, 8, 8, 8)) for name, make in NETWORKS.items() if name != "grouped"]
    for function in BATCH_SHAPES:
        model = net(lambda net, x, function=function: function(F.relu(x)))
        # 6 is also the size of the images, so it is ambiguous in a shape.
        cases += [(model, images(batch, 4, 6, 6)) for batch in (1, 2, 6)]
    for number, (model, x) in enumerate(cases):
        with subtests.test(number=number):
            network = network_of(model, x, threads=1)
            engine = prepared(OnnxRuntimeEngine, network)
            take_any_batch(engine)
            other = larger_batch(larger_batch(network))
            assert len(other.inputs[0]) == 2 + len(x)
            for each in (other, replace(network, inputs=(x[:1],))):
                assert_close(engine.run(each.inputs), outputs_of(each))
    tiled = net(lambda net, x: F.tile(F.mean(x, axis=0, keepdims=True), (len(x), 1, 1, 1)))
    for model in (tiled, NETWORKS["grouped"]()):
        network = network_of(model, threads=1)
        engine = prepared(OnnxRuntimeEngine, network)
        refusal(take_any_batch, engine, error=EngineError)
        assert_close(engine.run(network.inputs), outputs_of(network))
    network = network_of(net(lambda net, a, b: F.matmul(a, b)), images(2, 3), images(3, 3))
    assert "no common batch size" in refusal(larger_batch, network, error=EngineError)


# -- execution providers

OPENVINO = "OpenVINOExecutionProvider"


def event(name, kind, provider="CPUExecutionProvider"):
    """Profiling event of a node."""
    args = {"op_name": kind, "provider": provider}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": 0, "dur": 5, "args": args}


RUN = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 9, "args": {}}
RELU = event("1_ReLU@/", "Relu")
#: Numbers of subgraphs differ between sessions.
SUBGRAPHS = [event(f"{OPENVINO}_subgraph_{n}_0", f"subgraph_{n}", OPENVINO) for n in (1, 2)]


def openvino_by(*events, providers=(OPENVINO, "CPUExecutionProvider")):
    """Make an engine with these providers, and these events in its first run."""
    engine = OnnxRuntimeEngine(OPENVINO)
    engine._session = SimpleNamespace(get_providers=lambda: list(providers))
    engine._require_provider([RUN, *events])
    return engine


def test_note_counts_nodes_on_other_providers_and_unused_provider_is_refused():
    assert openvino_by(*SUBGRAPHS).note == ""
    assert openvino_by(SUBGRAPHS[0], RELU, RELU).note == (
        f"1 of its 3 nodes ran on {OPENVINO} (a node may be a subgraph of several layers), the "
        "others on CPUExecutionProvider"
    )
    for events, providers in (([RELU], (OPENVINO,)), (SUBGRAPHS, ("CPUExecutionProvider",))):
        message = refusal(openvino_by, *events, providers=providers)
        assert message.startswith(f"none of its nodes runs on {OPENVINO}")
    if "AzureExecutionProvider" in onnxruntime.get_available_providers():  # it runs no node
        message = refusal(OnnxRuntimeEngine("AzureExecutionProvider").prepare, network())
        assert message.endswith("ONNX Runtime would use CPUExecutionProvider")
    engine = OnnxRuntimeEngine("CUDAExecutionProvider")
    assert "the launch of a GPU's nodes" in refusal(engine.layers, (), 1, error=EngineError)


def test_single_subgraph_has_all_layers():
    runs = [onnxruntime_engine._runs([subgraph, RUN]) for subgraph in SUBGRAPHS]
    assert runs == [[({("subgraph", "OpenVINO", 0): 5}, 9)]] * 2
    net = network()
    engine, subgraph = prepared(OnnxRuntimeEngine, net), ("subgraph", "OpenVINO")
    (node,) = engine._nodes([subgraph], Path("none"))
    assert node.layers == tuple(range(len(net.layers)))
    message = refusal(
        engine._nodes, [subgraph, ("1_ReLU@/", "Relu")], Path("none"), error=EngineError
    )
    assert message == "the layers of its subgraphs are unknown"
