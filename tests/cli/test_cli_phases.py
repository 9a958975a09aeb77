"""The command line: phases, losses, sizes and classes, and the tables that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.cli import main as cli
from chainer_profile.runs.folder import load_run
from models.registry import REGISTRY
from models.torchvision_weights import WEIGHT_FORMATS
from tests.command import Net, folder, main, one_line  # noqa: F401
from tests.models.test_torchvision_weights import make_state

FEW = ["--trials", "3", "--warmups", "1", "--clean-trials", "2", "-o", "run"]


def registered(*argv: str) -> int:
    """Run a command with the networks of the registry."""
    return cli.main([*argv, *FEW], REGISTRY, WEIGHT_FORMATS)


@pytest.mark.parametrize(
    ("phase", "phases", "optimizer"),
    [
        ("forward", {"forward"}, ""),
        ("forward-backward", {"forward", "backward"}, ""),
        ("train", {"forward", "backward", "update"}, "MomentumSGD"),
    ],
)
def test_phases(phase: str, phases: set[str], optimizer: str) -> None:
    assert main("--phase", phase, "-b", "2", "-q") == 0
    suffix = "" if phase == "forward" else f"-{phase}"
    recording = load_run(Path(f"reports/tiny-cpu-b2{suffix}"))
    assert {layer.phase for layer in recording.layers} == phases
    settings = recording.settings
    assert (settings.phase, settings.optimizer) == (phase, optimizer)
    assert settings.loss == ("" if phase == "forward" else "softmax_cross_entropy")
    assert settings.train_mode is (phase != "forward")
    summary = summarise(recording)
    assert summary.totals.profiled is not None
    assert summary.phases["total_s"].sum() == pytest.approx(summary.totals.profiled.mean_s)


def test_weights_stay_as_they_are_in_a_profiled_training() -> None:
    nets = []

    class Kept(Net):
        def __init__(self) -> None:
            super().__init__()
            nets.append(self)

        def at_call(self, number: int) -> None:
            if number == 1:
                self.first = self.fc.W.array.copy()

    assert main("--phase", "train", "-q", build=Kept) == 0
    assert nets[0].calls > 5
    assert np.array_equal(nets[0].fc.W.array, nets[0].first)


def test_losses() -> None:
    assert main("--phase", "train", "--loss", "mean_squared_error", "-q", "-o", "run") == 0
    recording = load_run(Path("run"))
    assert recording.settings.loss == "mean_squared_error"
    assert [layer.function for layer in recording.layers if layer.path == "loss"] == [
        "MeanSquaredError",
        "MeanSquaredError",
    ]


def test_a_network_that_gives_its_loss() -> None:
    class Losing(Net):
        def forward(self, x: Any) -> Any:
            return F.sum(super().forward(x))

    assert main("--phase", "forward-backward", "-q", "-o", "run", build=Losing) == 0
    assert load_run(Path("run")).settings.loss == "output"


def test_size_and_classes_of_a_registered_network() -> None:
    assert registered("--input-size", "20x12", "--classes", "7", "-q") == 0
    recording = load_run(Path("run"))
    assert recording.settings.input_shape == (1, 3, 20, 12)
    assert recording.layers[-1].output_shapes == ((1, 7),)


def test_a_network_of_one_size_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert registered("--model", "resnet34-relu-bn", "--input-size", "225x225") == 1
    message = one_line(capsys.readouterr().err)
    assert "takes inputs of 3 x 224 x 224 only, not 3 x 225 x 225" in message


def test_feature_maps_have_a_loss_too() -> None:
    words = ["--model", "se-resnet9-fixup", "--input-size", "16x16", "--phase", "train", "-q"]
    assert registered(*words) == 0
    loss = load_run(Path("run")).settings.loss
    assert loss == "softmax_cross_entropy"


def test_weights_of_torchvision() -> None:
    state = make_state(18)
    np.savez("resnet18.npz", **state)
    words = ["--model", "resnet18", "--input-size", "32x32", "--weights", "resnet18.npz", "-q"]
    assert registered(*words) == 0
    assert load_run(Path("run")).settings.weights == "resnet18.npz"


class Blocks(chainer.Chain):
    """Two blocks of two links, and functions of its own."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.blocks = chainer.ChainList(
                *(chainer.Sequential(L.Linear(3, 3), L.Linear(3, 3)) for _ in range(2))
            )

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = F.relu(block(x))
        return x


def test_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--tree", "--phase", "train", "-o", "run", build=Blocks) == 0
    shown = capsys.readouterr().out
    assert "Sequential" in shown
    assert "optimizer" in shown
    assert main("--tree", "--depth", "3", "-o", "run3", build=Blocks) == 0
    deep = capsys.readouterr().out
    assert deep.count("Linear ") > shown.count("Linear ")
    assert "/blocks/1/0" in Path("run/links.csv").read_text()


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("function", "LinearFunction"),
        ("link", "/blocks/0/1"),
        ("block", "/blocks/1"),
        ("shape", "LinearFunction 1x3 3x3 3"),
    ],
)
def test_groups(by: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--group-by", by, "--limit", "1", "-o", "run", build=Blocks) == 0
    out = capsys.readouterr().out
    assert main("--group-by", by, "--limit", "0", "-o", "run2", build=Blocks) == 0
    everything = capsys.readouterr().out
    assert says in everything
    assert len(out) < len(everything)
