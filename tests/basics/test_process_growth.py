from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.basics import free_memory
from chainer_profile.basics.free_memory import Growth, status_nbytes

MIB = 1 << 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_what_is_held_and_what_a_run_takes_at_its_most() -> None:
    growth = Growth()
    passing = np.ones(64 * MIB, np.uint8)
    del passing
    held = np.ones(32 * MIB, np.uint8)
    growth.settle()
    before = growth.nbytes()
    if before is None:
        pytest.skip("this system does not tell a process's most memory anew")
    assert 30 * MIB < before < 48 * MIB
    assert np.ones(40 * MIB, np.uint8).all()
    most = growth.nbytes()
    assert most is not None
    assert 70 * MIB < most < 90 * MIB
    assert held.all()


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = partial(status_nbytes, process=tmp_path)
    monkeypatch.setattr(free_memory, "status_nbytes", status)
    monkeypatch.setattr(free_memory, "_REFERENCES", tmp_path / "no" / "refs")
    growth = Growth()
    growth.settle()
    assert growth.nbytes() is None
    (tmp_path / "status").write_text("Name: python\nVmRSS: lots kB\n")
    assert Growth().nbytes() is None


def test_a_system_that_does_not_forget_the_most(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "status").write_text("VmRSS:\t 100 kB\nVmHWM:\t 300 kB\n")
    status = partial(status_nbytes, process=tmp_path)
    monkeypatch.setattr(free_memory, "status_nbytes", status)
    monkeypatch.setattr(free_memory, "_REFERENCES", tmp_path / "refs")
    growth = Growth()
    growth.settle()
    assert growth.nbytes() == 200 * 1024
    monkeypatch.setattr(free_memory, "_REFERENCES", tmp_path / "no" / "refs")
    growth.settle()
    assert growth.nbytes() is None
