"""A network under a change: it runs, and its outputs or gradients are compared."""

import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.advice.network import network_with_change
from chainer_profile.advice.worker import WorkerError
from chainer_profile.analyse.findings import Change
from chainer_profile.kernels import numpy_kernels
from chainer_profile.measure.arguments import Arguments
from chainer_profile.record.recording import Settings
from tests.nets import net


def build(batchsize):
    np.random.seed(0)  # noqa: NPY002  (Chainer's)
    links = {"conv": L.Convolution2D(3, 4, 3, pad=1), "fc": L.Linear(4 * 6 * 6, 2)}
    x = np.random.default_rng(0).random((batchsize, 3, 6, 6), np.float32)
    return net(lambda self, x: self.fc(F.relu(self.conv(x))), **links), Arguments.from_input(x)


def under(change=None, phase="forward", build=build, **settings):
    settings = Settings(**{"batchsize": 2, "phase": phase, "threads": 1, "seed": 0} | settings)
    return network_with_change(build, settings, "auto", change or Change())


@pytest.mark.parametrize("phase", ["forward", "forward-backward", "train"])
def test_right_outputs_and_gradients(phase):
    for change in (Change(), Change(kernels="numpy"), Change(threads=1)):
        with under(change, phase) as work:
            work.run()
            assert work.check() == "", change


@pytest.mark.parametrize(("phase", "wrong"), [("forward", "outputs"), ("train", "gradients")])
def test_wrong_kernels_are_noticed(monkeypatch, phase, wrong):
    real = numpy_kernels.convolution
    monkeypatch.setattr(numpy_kernels, "convolution", lambda *args: 1.01 * real(*args))
    with under(Change(kernels="numpy"), phase) as work:
        work.run()
        assert work.check().startswith(f"its {wrong} differ by ")


def test_another_engine_or_dtype():
    with under(Change(engine="onnxruntime")) as work:
        work.run()
        assert (work.check(), work.layers()) == ("", [])
    for change, dtype in ((Change(), np.float16), (Change(dtype="float32"), np.float32)):
        with under(change, dtype="float16") as work:
            assert work.run().dtype == dtype


def test_times_of_layers_are_those_of_one_input():
    with under(Change(kernels="numpy")) as work:
        rows = work.layers()
    labels = ["0_Convolution2DFunction /conv", "1_ReLU /", "2_Reshape /fc", "3_LinearFunction /fc"]
    assert [f"{label} {path}" for _, label, path, _ in rows] == labels
    assert all(phase == "forward" and seconds > 0 for phase, _, _, seconds in rows)


def test_networks_of_several_arguments_and_of_a_batch_that_is_given():
    def build_loss(batchsize):
        small, given = build(2)
        return L.Classifier(small), Arguments((*given.args, np.zeros(2, np.int32)), {})

    with under(Change(kernels="numpy"), "train", build_loss, batchsize=1) as work:
        work.run()
        assert (work.check(), work.batchsize) == ("", 2)
    refused = pytest.raises(WorkerError, match="fixes the batch size at 2")
    with refused, under(Change(batchsize=8), "train", build_loss):
        pass
