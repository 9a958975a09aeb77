"""A network under a change: it runs, and its outputs or gradients are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.advice.network import network_under
from chainer_profile.advice.worker import WorkerError
from chainer_profile.analyse.findings import Change
from chainer_profile.kernels import numpy_kernels
from chainer_profile.measure.arguments import Arguments
from chainer_profile.record.recording import Settings


class Small(chainer.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(3, 4, 3, pad=1)
            self.fc = L.Linear(4 * 6 * 6, 2)

    def forward(self, x: Any) -> Any:
        return self.fc(F.relu(self.conv(x)))


def build(batchsize: int) -> tuple[Any, Arguments]:
    np.random.seed(0)  # noqa: NPY002  (Chainer's)
    x = np.random.default_rng(0).random((batchsize, 3, 6, 6), np.float32)
    return Small(), Arguments.of(x)


def under(change: Change, use: Callable[[Any], Any], phase: str = "forward") -> Any:
    settings = Settings(model="small", batchsize=2, phase=phase, threads=1, seed=0)
    with network_under(build, settings, "auto", change) as work:
        work.run()
        return use(work)


@pytest.mark.parametrize("phase", ["forward", "forward-backward", "train"])
@pytest.mark.parametrize("change", [Change(), Change(kernels="numpy"), Change(threads=1)])
def test_right_outputs_and_gradients(change: Change, phase: str) -> None:
    assert under(change, lambda work: work.check(), phase) == ""


@pytest.mark.parametrize(("phase", "what"), [("forward", "outputs"), ("train", "gradients")])
def test_wrong_kernels_are_found(monkeypatch: pytest.MonkeyPatch, phase: str, what: str) -> None:
    real = numpy_kernels.convolution
    monkeypatch.setattr(numpy_kernels, "convolution", lambda *args: 1.01 * real(*args))
    said = under(Change(kernels="numpy"), lambda work: work.check(), phase)
    assert said.startswith(f"its {what} differ by ")


def test_another_engine() -> None:
    found = under(Change(engine="onnxruntime"), lambda work: (work.check(), work.layers()))
    assert found == ("", [])


def test_another_dtype() -> None:
    settings = Settings(model="small", batchsize=1, threads=1, seed=0, dtype="float16")
    with network_under(build, settings, "auto", Change(dtype="float32")) as work:
        assert work.run().dtype == np.float32
    with network_under(build, settings, "auto", Change()) as work:
        assert work.run().dtype == np.float16


def test_times_of_layers_are_those_of_one_input() -> None:
    rows = under(Change(kernels="numpy"), lambda work: work.layers())
    assert [(phase, label, path) for phase, label, path, _ in rows] == [
        ("forward", "0_Convolution2DFunction", "/conv"),
        ("forward", "1_ReLU", "/"),
        ("forward", "2_Reshape", "/fc"),
        ("forward", "3_LinearFunction", "/fc"),
    ]
    assert all(seconds > 0 for *_, seconds in rows)


def test_networks_of_several_arguments_and_of_a_batch_that_is_given() -> None:
    def build_loss(batchsize: int) -> tuple[Any, Arguments]:
        small, given = build(2)
        return L.Classifier(small), Arguments((*given.args, np.zeros(2, np.int32)), {})

    settings = Settings(model="small", phase="train", threads=1, seed=0)
    with network_under(build_loss, settings, "auto", Change(kernels="numpy")) as work:
        work.run()
        assert work.check() == ""
        assert work.batchsize == 2
    refused = pytest.raises(WorkerError, match="fixes the batch size at 2")
    with refused, network_under(build_loss, settings, "auto", Change(batchsize=8)):
        pass
