"""Trainings of a tiny network: what their tests share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer.training import extensions

from chainer_profile.basics.errors import ProfileError
from chainer_profile.networks.cifar import Images
from chainer_profile.training import snapshots
from chainer_profile.training.training import Training, TrainingSettings, build_training, checksum

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take longer than everything else here."""
    monkeypatch.setattr(extensions.PlotReport, "available", staticmethod(lambda: False))


class Net(chainer.Chain):
    """Convolution, batch normalisation, dropout and a linear layer; ``at_call`` may be replaced."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.calls = 0
        with self.init_scope():
            self.conv = L.Convolution2D(3, 4, 5, stride=4)
            self.bn = L.BatchNormalization(4)
            self.fc = L.Linear(None, classes)

    def at_call(self, number: int) -> None:
        pass

    def forward(self, x: Any) -> Any:
        if chainer.config.train:
            self.calls += 1
            self.at_call(self.calls)
        return self.fc(F.dropout(F.tanh(self.bn(self.conv(x))), 0.2))


def draw(count: int, seed: int) -> Images:
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(count) % 10).astype(np.uint8)
    return Images(generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), labels)


TRAIN, TEST = draw(50, 0), draw(23, 1)


def settings(**changes: Any) -> TrainingSettings:
    values: dict[str, Any] = {
        "model": "net",
        "dataset": "synthetic",
        "images": len(TRAIN.images),
        "checksum": checksum(TRAIN),
        "batchsize": 8,
        "learning_rate": 0.1,
        "augmentation": True,
        "seed": 3,
        "epochs": 4,
    }
    return TrainingSettings(**(values | changes))


class Losses(chainer.training.Extension):
    """Keeps what each iteration had, exactly."""

    priority = chainer.training.PRIORITY_WRITER

    def __init__(self) -> None:
        self.by_iteration: dict[int, tuple[bytes, float]] = {}

    def __call__(self, trainer: Any) -> None:
        loss = trainer.observation["main/loss"].array
        rate = trainer.updater.get_optimizer("main").lr
        self.by_iteration[trainer.updater.iteration] = loss.tobytes(), rate


def make(
    out: Path, build: Callable[[], Any] = Net, plan: TrainingSettings | None = None, **kwargs: Any
) -> tuple[Training, Losses]:
    """A training of a new network, as train.py makes it, with a record of its losses."""
    plan = plan or settings()
    np.random.seed(plan.seed)  # noqa: NPY002  (as build_model does)
    net = build()
    with chainer.using_config("train", False):
        net(np.zeros((1, 3, 32, 32), np.float32))
    made = build_training(net, TRAIN, TEST, plan, out, mean=MEAN, std=STD, **kwargs)
    losses = Losses()
    made.trainer.extend(losses, trigger=(1, "iteration"))
    return made, losses


def log(out: Path) -> list[dict[str, float]]:
    """The log without the times."""
    entries: list[dict[str, float]] = json.loads((out / "log").read_text())
    for entry in entries:
        assert entry.pop("elapsed_time") > 0
    return entries


@pytest.fixture(scope="module", name="whole")
def whole_training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Losses, Training]:
    """An uninterrupted training with a snapshot after each iteration."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extensions.PlotReport, "available", staticmethod(lambda: False))
        patch.setattr(snapshots, "_KEPT", 1000)
        made, losses = make(out, snapshot_every=1)
        made.run()
    return out, losses, made


# 50 images in batches of 8: epochs end in the iterations 7, 13, 19 and 25, half is at 13, three
# quarters are at 19.
LAST = 25


def stop_at(made: Training, iteration: int) -> None:
    """Runs a training to the end of an iteration, as a signal would end it."""
    updater = made.trainer.updater
    stop = made.trainer.stop_trigger
    stop._reason = lambda: "stopped" if updater.iteration >= iteration else ""
    made.run()
    assert updater.iteration == iteration


def breaking(number: int, action: Callable[[Any], None]) -> Callable[[], Net]:
    """A network that does something in one of its training calls."""

    class Breaking(Net):
        def at_call(self, call: int) -> None:
            if call == number:
                action(self)

    return Breaking


def failure(made: Training) -> str:
    with pytest.raises(ProfileError) as error:
        made.run()
    text = str(error.value)
    assert "\n" not in text
    return text
