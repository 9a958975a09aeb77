"""profile.py export."""

import re
from pathlib import Path

import chainer
import chainer.functions as F
import numpy as np
import onnx
import pytest

from chainer_profile.engines.catalogue import EngineEntry
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from tests import names_in
from tests.command import Net, file_size_limit
from tests.engines.exporting import images, network_of, outputs_of


@pytest.fixture
def export(done):
    """Exports into a file, quiet or not; gives what it says."""
    return lambda to, *words, **more: done("export", to, *words, **more)


def read(to, model, batch=2):
    """Whether what a file gives is what the model gives."""
    network, made = network_of(model, images(batch, 3)), OnnxRuntimeEngine()
    made.load(network, Path(to))
    given = made.run(network.inputs)
    np.testing.assert_allclose(given, outputs_of(network), rtol=1e-5, atol=1e-6)


def test_a_file_is_written_checked_and_replaced_with_force(export):
    model = Net()
    wrote, differ, batch = (
        export("net.onnx", "-b", "3", build=lambda: model).rstrip("\n").split("; ")
    )
    assert names_in(".") == ["net.onnx"]
    assert batch == "for a batch of 3"
    assert re.fullmatch(r"wrote net\.onnx \([\d.]+ K?i?B\)", wrote)
    assert re.fullmatch(r"outputs differ by at most \S+ of the largest", differ)
    read("net.onnx", model, 3)
    Path("net.onnx").write_bytes(b"old")
    assert export("net.onnx", "--force", "-q", "-b", "3", build=lambda: model) == ""
    read("net.onnx", model, 3)


def test_what_cannot_be_written_leaves_nothing(fails, monkeypatch):
    with file_size_limit(100):
        said = fails("export", "net.onnx")
    assert said.startswith("net.onnx: ")
    assert "cannot be written" in said
    assert names_in(".") == []
    run = OnnxRuntimeEngine.run
    with monkeypatch.context() as patch:
        patch.setattr(
            OnnxRuntimeEngine,
            "run",
            lambda *args: tuple(array + np.float32(0.25) for array in run(*args)),
        )
        Path("net.onnx").write_bytes(b"old")
        said = fails("export", "net.onnx", "--force", code=4)
        assert said.startswith("net.onnx: outputs differ by at most 2.")
        assert said.endswith(", more than the tolerance of 1.0e-04; nothing is written")
        assert (names_in("."), Path("net.onnx").read_bytes()) == (["net.onnx"], b"old")
    monkeypatch.setattr(EngineEntry, "lacks", lambda self: "not installed")
    said = "onnxruntime is not installed: python -m pip install onnx onnxruntime"
    assert fails("export", "other.onnx") == said


def test_weights(export):
    model = Net()
    model.fc.W.array[...] = 7
    chainer.serializers.save_npz("weights.npz", model)
    export("net.onnx", "--weights", "weights.npz", "-q")
    weights = onnx.load("net.onnx").graph.initializer
    assert any((onnx.numpy_helper.to_array(array) == 7).all() for array in weights)


class Single(chainer.Chain):
    """Takes a batch of 1 alone."""

    def forward(self, x):
        return F.relu(F.reshape(x, (1, 3)))


def test_batches(export):
    model = Net()
    assert export("any.onnx", build=lambda: model).endswith("; for any batch\n")
    for batch in (1, 2, 5):
        read("any.onnx", model, batch)
    # One batch size if the network takes no other.
    said = export("one.onnx", build=Single)
    assert "; for a batch of 1 (the network accepts no other: " in said
