"""Load the fake CuPy of tests/fake_cupy in this process, or in a new one where Chainer finds it."""

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
    """Load a new fake CuPy in this process. ``import cupy`` returns it, but Chainer uses no GPU."""
    spec = importlib.util.spec_from_file_location("cupy_stand_in", FAKE / "cupy.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cupy_stand_in", module)
    monkeypatch.setitem(sys.modules, "cupy", module)
    spec.loader.exec_module(module)
    return module


def process(args: list[str], cwd: Path, **env: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process with the fake CuPy, which Chainer finds at its import."""
    path = os.pathsep.join([str(FAKE), str(ROOT)])
    fixed = {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    variables = {name: str(value) for name, value in env.items()}
    return python("-W", "error::UserWarning", *args, cwd=cwd, env=fixed | variables)


def profile(
    *words: str, cwd: Path, reports: bool = False, **env: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``profile.py --gpu 0`` with few trials, by default without reports, which are slow."""
    few = ["--gpu", "0", "--trials", "4", "--warmups", "1", "--clean-trials", "5"]
    command = [str(ROOT / "profile.py"), *few, "--skip", "machine", "--out", "run", *words]
    command += [] if reports else ["--format", "none"]
    return process(command, cwd, **env)
