"""train.py on a tiny network: what its tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer.training import extensions

from chainer_profile.cli import main as cli
from tests import HANGS_S
from tests.command import ROOT, Entry

#: A file with the network, for tests that need another process; a call may send a signal.
OWN = """
import os
import signal

import chainer
import chainer.functions as F
import chainer.links as L


class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        self.calls = 0
        with self.init_scope():
            self.conv = L.Convolution2D(3, 4, 5, stride=4)
            self.bn = L.BatchNormalization(4)
            self.fc = L.Linear(196, 10)

    def forward(self, x):
        if chainer.config.train:
            self.calls += 1
            name, _, call = os.environ.get("SIGNAL", "").partition(" ")
            if call == str(self.calls):
                os.kill(os.getpid(), getattr(signal, name))
        return self.fc(F.dropout(F.tanh(self.bn(self.conv(x))), 0.2))
"""


class Net(chainer.Chain):
    """A tiny network; ``at_call`` may be replaced."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.calls = 0
        with self.init_scope():
            self.conv = L.Convolution2D(3, 4, 5, stride=4)
            self.bn = L.BatchNormalization(4)
            self.fc = L.Linear(196, classes)

    def at_call(self, number: int) -> None:
        pass

    def forward(self, x: Any) -> Any:
        if chainer.config.train:
            self.calls += 1
            self.at_call(self.calls)
        return self.fc(F.dropout(F.tanh(self.bn(self.conv(x))), 0.2))


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions.PlotReport, "available", staticmethod(lambda: False))


SMALL = ["-d", "synthetic", "--synthetic-size", "50", "-b", "10", "-e", "3", "-l", "0.1"]
DEFAULT = Path("results", "tiny-synthetic")


def main(*words: str, build: Callable[..., Any] = Net, small: bool = True) -> int:
    """Run train.py in this process on a tiny network: 3 epochs of 5 iterations."""
    registry: dict[str, Any] = {
        "tiny": Entry(build, input_shape=(3, 32, 32), classes=10),
        "other": Entry(build, "other", classes=10),
        "features": Entry(build, "features"),
    }
    return cli.main(["train", "-m", "tiny", *(SMALL if small else []), *words], registry)


def process(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run train.py on the network of net.py in a process of its own."""
    Path("net.py").write_text(OWN)
    command = [sys.executable, str(ROOT / "train.py"), "-m", "net.py:Net", *SMALL, *words]
    return subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, timeout=HANGS_S
    )


def log(out: str | Path = DEFAULT) -> list[dict[str, float]]:
    """The log without the times."""
    entries: list[dict[str, float]] = json.loads(Path(out, "log").read_text())
    for entry in entries:
        del entry["elapsed_time"]
    return entries


def weights_in(out: str | Path) -> dict[str, Any]:
    with np.load(Path(out, "model.npz")) as arrays:
        return dict(arrays)


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )
