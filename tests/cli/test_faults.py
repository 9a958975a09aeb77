"""What goes wrong is said in one line, with the right exit code, and nothing measured is lost."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import pytest

from chainer_profile.cli import main as cli
from models.registry import REGISTRY
from tests.command import (  # noqa: F401
    OWN,
    Net,
    folder,
    main,
    one_line,
)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that failed, which printed nothing else."""
    out, err = capsys.readouterr()
    assert out == ""
    line = one_line(err)
    assert line.startswith("profile.py: error: ")
    return line.removeprefix("profile.py: error: ")


def test_the_nearest_models_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    cifar = {name: REGISTRY[name] for name in ("resnet20", "resnet20-he", "resnet32-he")}
    assert cli.main(["--model", "resnet21"], cifar) == 2
    assert said(capsys).startswith(
        "unknown model 'resnet21': did you mean resnet20, resnet32-he or resnet20-he?"
    )


def test_a_shape_that_a_function_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    class Reshaping(Net):
        def forward(self, x: Any) -> Any:
            return F.reshape(F.relu(x), (2, 2))

    assert main("--input-shape", "5", build=Reshaping) == 1
    line = said(capsys)
    assert line.startswith("the network fails with an input of 1x5, in Reshaping at /: InvalidType")
    assert "Reshape (Forward)" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no CIFAR-10 here, and it cannot be downloaded (OSError: no network): name a "),
        (["--data-dir", "absent"], "--data-dir absent: cifar-10-python.tar.gz cannot be read"),
        (["--data-dir", "packed"], "packed/cifar-10-python.tar.gz is not the known archive"),
    ],
)
def test_cifar10(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def download(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(chainer.dataset.download, "_dataset_root", "root")
    monkeypatch.setattr(chainer.dataset.download.request, "urlretrieve", download)
    Path("packed").mkdir()
    Path("packed/cifar-10-python.tar.gz").write_bytes(b"something else")
    assert main("--input", "cifar10", "--input-shape", "3x32x32", *words) == 1
    # Chainer says first what it downloads.
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"profile.py: error: {message}")
    assert not Path("reports").exists()


def test_a_gpu_without_cupy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main("--gpu", "0") == 1
    assert said(capsys).startswith("--gpu 0: CuPy ")
    assert os.listdir() == []


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.py").write_text("import absent_module")
    assert main("--model", "bad.py:Net", "--input-shape", "3", "--debug") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert any(line.startswith("ModuleNotFoundError: ") for line in lines)
    assert lines[-1].startswith("profile.py: error: importing bad.py failed: ")


def test_a_network_without_functions(capsys: pytest.CaptureFixture[str]) -> None:
    class Nothing(Net):
        def forward(self, x: Any) -> Any:
            return x

    assert main(build=Nothing) == 1
    assert said(capsys) == "the network calls no Chainer function, so there is nothing to time"
    assert os.listdir() == []
