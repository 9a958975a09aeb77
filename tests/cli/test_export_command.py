"""profile.py export."""

import re
from pathlib import Path

import chainer
import chainer.functions as F
import numpy as np
import onnx
import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from chainer_profile.engines.runtimes.openvino_engine import OpenVinoEngine
from tests import names_in
from tests.command import (
    OWN,
    Entry,
    Net,
    command,
    file_size_limit,
    one_line,
)
from tests.engines.exporting import images, network_of, outputs_of

SUFFIXES = [".onnx", ".xml"]


def run(*argv, build=Net):
    """Run the command on a tiny network."""
    args = list(argv)
    if "--model" not in args:
        args += ["--model", "tiny"]
    return command("export", args, {"tiny": Entry(build)})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_is_written_and_checked(suffix, capsys):
    assert run("--to", f"net{suffix}", "-b", "3") == 0
    out, err = capsys.readouterr()
    assert err == ""
    names = {".xml": ["net.bin", "net.xml"]}.get(suffix, [f"net{suffix}"])
    assert names_in(".") == names
    wrote, differ, batch = one_line(out).split("; ")
    assert batch == ("for any batch" if suffix == ".onnx" else "for a batch of 3")
    assert re.fullmatch(rf"wrote {' and '.join(names[::-1])} \([\d.]+ K?i?B\)", wrote)
    assert re.fullmatch(r"outputs differ by at most \S+ of the largest", differ)
    assert run("--to", f"net{suffix}", "--force", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_the_files_can_be_loaded():
    model = Net()
    for suffix in SUFFIXES:
        run("--to", f"net{suffix}", "-b", "2", "-q", build=lambda: model)
    network = network_of(model, images(2, 3))
    expected = outputs_of(network)
    for engine, suffix in ((OnnxRuntimeEngine(), ".onnx"), (OpenVinoEngine(), ".xml")):
        engine.load(network, Path(f"net{suffix}"))
        np.testing.assert_allclose(engine.run(network.inputs), expected, rtol=1e-5, atol=1e-6)


def test_weights_are_those_of_the_file():
    model = Net()
    model.fc.W.array[...] = 7
    chainer.serializers.save_npz("weights.npz", model)
    run("--to", "net.onnx", "--weights", "weights.npz", "-q")
    weights = onnx.load("net.onnx").graph.initializer
    assert any((onnx.numpy_helper.to_array(one) == 7).all() for one in weights)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_there_stays(suffix):
    Path(f"net{suffix}").write_bytes(b"old")
    with pytest.raises(UsageError, match=r"is there already; replace it with --force"):
        run("--to", f"net{suffix}")
    assert Path(f"net{suffix}").read_bytes() == b"old"
    assert run("--to", f"net{suffix}", "--force", "-q") == 0
    assert Path(f"net{suffix}").read_bytes() != b"old"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_nothing(suffix):
    with (
        file_size_limit(100),
        pytest.raises(ProfileError, match="cannot be written") as error,
    ):
        run("--to", f"net{suffix}")
    assert str(error.value).startswith(f"net{suffix}: ")
    assert "\n" not in str(error.value)
    assert names_in(".") == []


@pytest.mark.parametrize("old", [b"", b"old"])
def test_wrong_outputs(old, monkeypatch):
    if old:
        Path("net.onnx").write_bytes(old)
    run_model = OnnxRuntimeEngine.run

    def wrong(self, inputs):
        return tuple(array + np.float32(0.25) for array in run_model(self, inputs))

    monkeypatch.setattr(OnnxRuntimeEngine, "run", wrong)
    with pytest.raises(ProfileError) as error:
        run("--to", "net.onnx", "--force")
    assert error.value.exit_code == 4
    assert re.fullmatch(
        r"net\.onnx: outputs differ by at most \S+ of the largest, where fp32 may by 1\.0e-04; "
        "nothing is written",
        str(error.value),
    )
    # What was there before was good.
    assert names_in(".") == (["net.onnx"] if old else [])
    if old:
        assert Path("net.onnx").read_bytes() == old


class Cumulating(Net):
    def forward(self, x):
        return F.cumsum(super().forward(x), axis=1)


def test_a_function_that_onnx_does_not_have():
    with pytest.raises(ProfileError) as error:
        run("--to", "net.onnx", build=Cumulating)
    assert str(error.value) == (
        "net.onnx: the ONNX exporter does not know Cumsum (layer 2_Cumsum at /)"
    )
    assert names_in(".") == []


def test_an_engine_that_is_not_installed(monkeypatch):
    from chainer_profile.engines.catalogue import EngineEntry

    monkeypatch.setattr(EngineEntry, "lacks", lambda self: "not installed")
    message = "openvino is not installed: python -m pip install onnx openvino"
    with pytest.raises(ProfileError, match=message):
        run("--to", "net.xml")


def test_an_own_network():
    Path("own.py").write_text(OWN)
    words = ["--to", "net.onnx", "--model", "own.py:Net", "--input-shape", "3", "-q"]
    assert run(*words) == 0


class Pooled(chainer.Chain):
    """Its rows depend on one another, so that no batch stands for another."""

    def forward(self, x):
        return x + F.broadcast_to(F.mean(x, axis=0, keepdims=True), (2, 3))


def test_one_batch_size_where_the_network_has_no_other(capsys):
    assert run("--to", "net.onnx", "-b", "2", build=Pooled) == 0
    assert "; for a batch of 2 (the network takes no other: " in one_line(capsys.readouterr().out)
    with pytest.raises(ProfileError, match=r"--dynamic-batch: the network takes no other"):
        run("--to", "b.onnx", "-b", "2", "--dynamic-batch", build=Pooled)
    assert run("--to", "net.onnx", "-b", "2", "--no-dynamic-batch", "--force") == 0
    assert one_line(capsys.readouterr().out).endswith("; for a batch of 2")
    with pytest.raises(UsageError, match=r"--dynamic-batch: net\.xml is for one batch size"):
        run("--to", "net.xml", "--dynamic-batch")


def test_a_file_for_any_batch_is_loaded_for_any():
    model = Net()
    run("--to", "net.onnx", "-b", "2", "-q", "--dynamic-batch", build=lambda: model)
    for batch in (1, 2, 5):
        network = network_of(model, images(batch, 3))
        engine = OnnxRuntimeEngine()
        engine.load(network, Path("net.onnx"))
        expected = outputs_of(network)
        np.testing.assert_allclose(engine.run(network.inputs), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ProfileError, match="takes inputs of 2x3, and the network's are 2x4"):
        OnnxRuntimeEngine().load(
            network_of(chainer.Sequential(F.relu), images(2, 4)), Path("net.onnx")
        )


def test_another_opset(capsys):
    model = Net()
    assert run("--to", "net.onnx", "--opset", "17", "-b", "2", build=lambda: model) == 0
    assert onnx.load("net.onnx").opset_import[0].version == 17
    network = network_of(model, images(3, 3))
    engine = OnnxRuntimeEngine()
    engine.load(network, Path("net.onnx"))
    np.testing.assert_allclose(engine.run(network.inputs), outputs_of(network), rtol=1e-5)
    profile = engine.layers(network.inputs, 2)
    assert profile is not None
    assert {index for node in profile.nodes for index in node.layers} == {0, 1}
    with pytest.raises(ProfileError, match="--opset 9999: "):
        run("--to", "b.onnx", "--opset", "9999")
    with pytest.raises(UsageError, match=r"--opset 17: only \.onnx files have one"):
        run("--to", "net.xml", "--opset", "17")
