"""A network runs under a change, and its outputs or gradients are checked."""

import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.advice.network import network_with_change
from chainer_profile.advice.worker import WorkerError
from chainer_profile.analyse.findings import Change
from chainer_profile.kernels import functions, numpy_kernels
from chainer_profile.measure.arguments import Arguments
from chainer_profile.record.recording import Settings
from tests.nets import net


def build(batchsize):
    np.random.seed(0)  # noqa: NPY002  (Chainer's)
    links = {"conv": L.Convolution2D(3, 4, 3, pad=1), "fc": L.Linear(4 * 6 * 6, 2)}
    x = np.random.default_rng(0).random((batchsize, 3, 6, 6), np.float32)
    return net(lambda self, x: self.fc(F.relu(self.conv(x))), **links), Arguments.from_input(x)


def network_with(change=None, phase="forward", build=build, **settings):
    settings = Settings(**{"batchsize": 2, "phase": phase, "threads": 1, "seed": 0} | settings)
    return network_with_change(build, settings, "auto", change or Change())


@pytest.mark.parametrize("phase", ["forward", "forward-backward", "train"])
def test_correct_changes_pass_the_check(phase):
    for change in (Change(), Change(kernels="numpy"), Change(threads=1)):
        with network_with(change, phase) as work:
            work.run()
            assert work.check() == "", change


@pytest.mark.parametrize(("phase", "wrong"), [("forward", "outputs"), ("train", "gradients")])
def test_check_finds_wrong_kernels(monkeypatch, phase, wrong):
    monkeypatch.setattr(functions, "_FEW_COLUMNS", 0)  # its convolution is small
    real = numpy_kernels.convolution
    monkeypatch.setattr(numpy_kernels, "convolution", lambda *args: 1.01 * real(*args))
    with network_with(Change(kernels="numpy"), phase) as work:
        work.run()
        assert work.check().startswith(f"its {wrong} differ by ")


def test_engine_and_dtype_of_a_change_are_used():
    with network_with(Change(engine="onnxruntime")) as work:
        work.run()
        assert (work.check(), work.layers()) == ("", [])
    for change, dtype in ((Change(), np.float16), (Change(dtype="float32"), np.float32)):
        with network_with(change, dtype="float16") as work:
            assert work.run().dtype == dtype


def test_layers_have_times_per_input():
    with network_with(Change(kernels="numpy")) as work:
        rows = work.layers()
    labels = ["0_Convolution2DFunction /conv", "1_ReLU /", "2_Reshape /fc", "3_LinearFunction /fc"]
    assert [f"{label} {path}" for _, label, path, _ in rows] == labels
    assert all(phase == "forward" and seconds > 0 for phase, _, _, seconds in rows)


def test_networks_with_several_arguments_and_a_fixed_batch():
    def build_loss(batchsize):
        small, arguments = build(2)
        return L.Classifier(small), Arguments((*arguments.args, np.zeros(2, np.int32)), {})

    with network_with(Change(kernels="numpy"), "train", build_loss, batchsize=1) as work:
        work.run()
        assert (work.check(), work.batchsize) == ("", 2)
    refused = pytest.raises(WorkerError, match="fixes the batch size at 2")
    with refused, network_with(Change(batchsize=8), "train", build_loss):
        pass
