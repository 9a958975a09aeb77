"""train.py --resume, after a kill, a signal or the end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.command import folder, one_line  # noqa: F401
from tests.train_command import DEFAULT, Net, log, main, no_plots, process, same, weights_in  # noqa: F401


def test_resuming_takes_the_newest_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q", "-o", "whole") == 0
    assert main("-q", "-e", "3", "-o", "cut") == 0
    for name in ("snapshot_iter_15", "log", "model.npz"):
        Path("cut", name).unlink()
    assert main("-r", "-o", "cut") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[1] == f"Going on from {Path('cut', 'snapshot_iter_10')}"
    assert log("cut") == log("whole")
    assert same(weights_in("cut"), weights_in("whole"))


def test_resuming_from_a_file_goes_on_in_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q", "-o", "run") == 0
    before = log("run")
    Path("run", "model.npz").unlink()
    assert main("-q", "--resume", "run/snapshot_iter_5") == 0
    assert log("run") == before
    assert Path("run", "model.npz").exists()
    assert not Path("results").exists()


def test_resuming_from_a_file_into_another_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q", "-o", "run") == 0
    before = {path: path.read_bytes() for path in Path("run").glob("*") if path.is_file()}
    assert main("-q", "-r", "run/snapshot_iter_5", "-o", "new") == 0
    assert log("new") == log("run")
    assert same(weights_in("new"), weights_in("run"))
    assert {path: path.read_bytes() for path in Path("run").glob("*") if path.is_file()} == before
    assert main("-q", "-r", "run/snapshot_iter_5", "-o", "new") == 2
    assert "--out new: holds a training already" in one_line(capsys.readouterr().err)


def test_resuming_a_complete_training_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q") == 0
    before = weights_in(DEFAULT), log()
    (DEFAULT / "model.npz").unlink()
    assert main("--resume") == 0
    assert "Test accuracy" in capsys.readouterr().out
    assert log() == before[1]
    assert same(weights_in(DEFAULT), before[0])


def test_more_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q") == 0
    assert main("-r", "-e", "5") == 0
    said = "5 epochs in place of 3: the learning rate falls where it would have fallen before"
    assert said in capsys.readouterr().out.splitlines()
    assert [entry["lr"] for entry in log()] == pytest.approx([0.1, 0.01, 0.001, 0.001, 0.001])


def test_a_killed_training_is_resumed_to_the_same_end() -> None:
    killed = process("-o", "killed", SIGNAL="SIGKILL 12")
    assert killed.returncode == -signal.SIGKILL
    # The log may be as far as its snapshots, not farther.
    assert [entry["iteration"] for entry in log("killed")] == [5, 10]
    assert not Path("killed", "model.npz").exists()
    resumed = process("-o", "killed", "--resume")
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert f"Going on from {Path('killed', 'snapshot_iter_10')}" in resumed.stdout
    assert main("-m", "net.py:Net", "-o", "whole", "-q") == 0
    assert log("killed") == log("whole")
    assert same(weights_in("killed"), weights_in("whole"))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_training_after_the_iteration_with_a_snapshot(name: str) -> None:
    stopped = process("-o", "run", SIGNAL=f"{name} 7")
    assert stopped.returncode == 128 + getattr(signal, name)
    assert one_line(stopped.stderr) == (
        f"train.py: interrupted by {name}: the snapshot is {Path('run', 'snapshot_iter_7')}; "
        "go on with --resume"
    )
    assert not Path("run", "model.npz").exists()
    assert main("-m", "net.py:Net", "-o", "run", "--resume", "-q") == 0
    assert main("-m", "net.py:Net", "-o", "whole", "-q") == 0
    assert log("run") == log("whole")
    assert same(weights_in("run"), weights_in("whole"))


def test_a_second_signal_ends_it_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    class Twice(Net):
        def at_call(self, number: int) -> None:
            if number == 7:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)

    assert main("-q", build=Twice) == 143
    last = DEFAULT / "snapshot_iter_5"
    assert one_line(capsys.readouterr().err) == (
        f"train.py: interrupted; the last snapshot is {last}"
    )
