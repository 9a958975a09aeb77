"""What is said while a sweep goes on."""

from __future__ import annotations

import io
import math
import sys

import pytest

from chainer_profile.cli import sweep_progress
from chainer_profile.cli.sweep_progress import SweepProgress
from tests.sweeping import make_run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A standard error that is a terminal; from within a test, as pytest replaces it before."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("COLUMNS", "100")
    return found


def test_a_line_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepProgress(4, 1, quiet=False) as progress:
        progress.begun("a")
        progress.ended(make_run(name="a"), 60)
        progress.begun("b")
        progress.again("b", "killed")
        progress.begun("b")
        progress.ended(make_run(name="b", mean_ms=math.nan, error="no\nluck"), 20)
        progress.ended(make_run(name="c"), 1)
    assert capsys.readouterr().err.splitlines() == [
        "profile.py: 1 of 4 cases are done already",
        "profile.py: [2/4] a: 2.000 ms, std 200.0 us, 500.0 FPS (about 2 min left)",
        "profile.py: b: killed; it is tried once more",
        r"profile.py: [3/4] b: failed: no\nluck (about 40 s left)",
        "profile.py: [4/4] c: 2.000 ms, std 200.0 us, 500.0 FPS",
    ]


def test_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with SweepProgress(4, 1, quiet=True) as progress:
        progress.begun("a")
        progress.waiting(0)
        progress.ended(make_run(name="a"), 60)
    assert terminal.getvalue() == ""


def test_workers_that_are_gone_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepProgress(4, 0, quiet=False) as progress:
        for workers in (0, 0, 1, 0):
            progress.waiting(workers)
    said = "profile.py: no worker is there; waiting for one"
    assert capsys.readouterr().err.splitlines() == [said, said]


def test_the_time_left_with_several_workers(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepProgress(9, 0, quiet=False) as progress:
        progress.waiting(4)
        progress.ended(make_run(name="a"), 60)
    assert "(about 2 min left)" in capsys.readouterr().err


def test_the_line_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    now = [100.0]
    monkeypatch.setattr(sweep_progress, "monotonic", lambda: now[0])
    with SweepProgress(4, 0, quiet=False) as progress:
        progress.begun("a")
        now[0] += 35
        progress.waiting(1)
        assert terminal.getvalue().endswith("\r\x1b[K0 of 4 done; running a (35 s)")
        progress.begun("b" * 200)
        assert len(terminal.getvalue().rpartition("\x1b[K")[2]) == 99
    assert terminal.getvalue().endswith("\r\x1b[K")
