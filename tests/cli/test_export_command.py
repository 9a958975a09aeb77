"""profile.py export."""

from pathlib import Path

import chainer
import chainer.functions as F
import numpy as np
import onnx

from chainer_profile.engines.catalogue import EngineEntry
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from tests import names_in
from tests.command import Net, file_size_limit
from tests.engines.exporting import images, network_of, outputs_of


def check(to, model, batch):
    """Check that the file gives the same output as the network."""
    network, engine = network_of(model, images(batch, 3)), OnnxRuntimeEngine()
    engine.load(network, Path(to))
    given = engine.run(network.inputs)
    np.testing.assert_allclose(given, outputs_of(network), rtol=1e-5, atol=1e-6)


class Single(chainer.Chain):
    """A network that accepts only a batch of 1."""

    def forward(self, x):
        return F.relu(F.reshape(x, (1, 3)))


def test_file_accepts_any_batch_size_or_one(done):
    model = Net()
    wrote, differ, batch = done("export", "net.onnx", build=lambda: model).split("; ")
    assert wrote.startswith("wrote net.onnx (")
    assert differ.startswith("outputs differ by at most ")
    assert batch == "for any batch\n"
    for size in (1, 2, 5):
        check("net.onnx", model, size)
    message = done("export", "one.onnx", build=Single)
    assert "; for a batch of 1 (the network accepts no other: " in message
    Path("net.onnx").write_bytes(b"old")
    model.fc.W.array[...] = 7
    chainer.serializers.save_npz("weights.npz", model)
    words = ("--force", "-q", "-b", "3", "--weights", "weights.npz")
    assert done("export", "net.onnx", *words) == ""
    check("net.onnx", model, 3)
    weights = onnx.load("net.onnx").graph.initializer
    assert any((onnx.numpy_helper.to_array(array) == 7).all() for array in weights)


def test_failed_export_leaves_no_file(fails, monkeypatch):
    with file_size_limit(100):
        message = fails("export", "net.onnx")
    assert message.startswith("net.onnx: ")
    assert "cannot be written" in message
    assert names_in(".") == []
    run = OnnxRuntimeEngine.run
    wrong = lambda *args: tuple(array + np.float32(0.25) for array in run(*args))  # noqa: E731
    Path("net.onnx").write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(OnnxRuntimeEngine, "run", wrong)
        message = fails("export", "net.onnx", "--force", code=4)
    assert message.startswith("net.onnx: outputs differ by at most 2.")
    assert message.endswith(", more than the tolerance of 1.0e-04; nothing is written")
    assert (names_in("."), Path("net.onnx").read_bytes()) == (["net.onnx"], b"old")
    monkeypatch.setattr(EngineEntry, "why_unavailable", lambda self: "not installed")
    message = "onnxruntime is not installed: python -m pip install onnx onnxruntime"
    assert fails("export", "other.onnx") == message
