"""Processes that find the stand-in for CuPy in tests/fake_cupy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import HANGS_S, ROOT

FAKE = ROOT / "tests" / "fake_cupy"
#: With so little memory the calibration's arrays do not fit, and are left out: they take seconds.
LITTLE_MEMORY = 100_000_000


def process(
    words: list[str], cwd: Path | None = None, **env: Any
) -> subprocess.CompletedProcess[str]:
    """A Python process; Chainer looks for CuPy only when it is imported."""
    path = os.pathsep.join([str(FAKE), str(ROOT)])
    given = {name: str(value) for name, value in env.items()}
    fixed = {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error::UserWarning", *words],
        cwd=cwd,
        env=os.environ | fixed | given,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )


def profile(*words: str, cwd: Path, **env: Any) -> subprocess.CompletedProcess[str]:
    """``profile.py --gpu 0``, with few trials."""
    few = ["--gpu", "0", "--trials", "4", "--warmups", "1", "--clean-trials", "5"]
    command = [str(ROOT / "profile.py"), *few, "--no-machine", "--out", "run", *words]
    return process(command, cwd, **({"FAKE_CUPY_MEMORY": LITTLE_MEMORY} | env))
