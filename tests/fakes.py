"""The stand-in for CuPy in tests/fake_cupy: in this process, or in one where Chainer finds it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.scripts import python

FAKE = ROOT / "tests" / "fake_cupy"


def load_cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, new, in this process: ``import cupy`` gives it, but Chainer takes no GPU."""
    spec = importlib.util.spec_from_file_location("cupy_stand_in", FAKE / "cupy.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cupy_stand_in", module)
    monkeypatch.setitem(sys.modules, "cupy", module)
    spec.loader.exec_module(module)
    return module


def process(words: list[str], cwd: Path, **env: Any) -> subprocess.CompletedProcess[str]:
    """A Python process; Chainer looks for CuPy only when it is imported."""
    path = os.pathsep.join([str(FAKE), str(ROOT)])
    fixed = {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    given = {name: str(value) for name, value in env.items()}
    return python("-W", "error::UserWarning", *words, cwd=cwd, env=fixed | given)


def profile(
    *words: str, cwd: Path, reports: bool = False, **env: Any
) -> subprocess.CompletedProcess[str]:
    """``profile.py --gpu 0``, with few trials; drawing the reports would take longest."""
    few = ["--gpu", "0", "--trials", "4", "--warmups", "1", "--clean-trials", "5"]
    command = [str(ROOT / "profile.py"), *few, "--skip", "machine", "--out", "run", *words]
    command += [] if reports else ["--format", "none"]
    return process(command, cwd, **env)
