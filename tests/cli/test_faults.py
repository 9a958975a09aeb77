"""What goes wrong is said in one line, with the right exit code, and nothing measured is lost."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import pytest

from chainer_profile.record.recording import Recording
from chainer_profile.report import tables
from chainer_profile.runs.folder import load_run
from tests import names_in
from tests.command import (  # noqa: F401
    ALL_FILES,
    FILES,
    FIRST_TRIAL,
    Net,
    file_size_limit,
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


def test_a_gpu_without_cupy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main("--gpu", "0") == 1
    assert said(capsys).startswith("--gpu 0: CuPy ")
    assert os.listdir() == []


def test_a_network_without_functions(capsys: pytest.CaptureFixture[str]) -> None:
    class Nothing(Net):
        def forward(self, x: Any) -> Any:
            return x

    assert main(build=Nothing) == 1
    assert said(capsys) == "the network calls no Chainer function, so there is nothing to time"
    assert os.listdir() == []


class Branching(Net):
    """Another function from a call on."""

    branch = FIRST_TRIAL + 3

    def forward(self, x: Any) -> Any:
        self.calls += 1
        y = self.fc(x)
        return F.sigmoid(y) if self.calls >= self.branch else F.relu(y)


class Shrinking(Net):
    """Fewer rows from a call on, by the same functions."""

    branch = FIRST_TRIAL + 3

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return F.relu(self.fc(x[: 1 if self.calls >= self.branch else 2]))


class Growing(Net):
    """One more call in each trial."""

    def forward(self, x: Any) -> Any:
        self.calls += 1
        y = self.fc(x)
        for _ in range(self.calls):
            y = F.relu(y)
        return y


@pytest.mark.parametrize("build", [Branching, Shrinking, Growing])
def test_trials_that_differ_have_rows_by_link(
    build: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-n", "10", "--clean-trials", "5", "-b", "2", "-o", "run"]
    assert main(*words, build=build) == 0
    recording = load_run(Path("run"))
    assert recording.by_link
    assert (recording.n_trials, recording.left_out, recording.ended) == (10, 0, "complete")
    assert (recording.self_ns.sum(axis=1) <= recording.trial_ns).all()
    assert recording.memory is not None
    assert "median of 5 clean trials" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError("out of\nluck"),
            "the network fails after 45 trials, in or after layer 0_LinearFunction: "
            "RuntimeError: out of luck",
        ),
        (SystemExit("bye"), "the network ends the program: SystemExit: bye"),
        (KeyboardInterrupt(), "the network ends the program: KeyboardInterrupt"),
    ],
)
def test_a_network_that_fails_at_its_50th_call(
    error: BaseException, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Net):
        def at_call(self, number: int) -> None:
            if number == 50:
                raise error

    words = ["-n", "60", "--clean-trials", "0", "-q", "-o", "run"]
    assert main(*words, build=Failing) == 1
    assert said(capsys) == f"{message}; 45 of 60 trials are in run"
    assert names_in("run") == FILES
    recording = load_run(Path("run"))
    assert (recording.n_trials, recording.ended) == (45, f"failed: {message}")


def breaking(number: int) -> Any:
    """A network whose backward fails at its so many-th call."""

    class Breaking(Net):
        backwards = 0

        def forward(self, x: Any) -> Any:
            return Fuse(self, number).apply((super().forward(x),))[0]

    return Breaking


class Fuse(chainer.FunctionNode):
    def __init__(self, net: Any, number: int) -> None:
        self.net, self.number = net, number

    def forward(self, inputs: Any) -> Any:
        return inputs

    def backward(self, indexes: Any, grads: Any) -> Any:
        self.net.backwards += 1
        if self.net.backwards == self.number:
            raise RuntimeError("out of\nluck")
        return grads


@pytest.mark.parametrize("phase", ["forward-backward", "train"])
def test_a_backward_that_fails(phase: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Three structure passes, one warm-up, and four trials.
    words = ["--phase", phase, "-n", "9", "--clean-trials", "0", "-q", "-o", "run"]
    assert main(*words, build=lambda: breaking(3 + 1 + 4)()) == 1
    message = (
        "the network fails after 3 trials, in or after layer 6_Fuse: RuntimeError: out of luck"
    )
    assert said(capsys) == f"{message}; 3 of 9 trials are in run"
    recording = load_run(Path("run"))
    assert (recording.n_trials, recording.ended) == (3, f"failed: {message}")


def test_a_backward_that_fails_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--phase", "train", build=lambda: breaking(1)()) == 1
    assert said(capsys) == (
        "the network fails with an input of 1x3, in the backward of layer 6_Fuse at /: "
        "RuntimeError: out of luck"
    )
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("words", "change", "message"),
    [
        ([], lambda y: (y, y), "the network gives a tuple, which has no loss to go back from: "),
        ([], F.argmax, "the network gives a Variable, which has no loss to go back from: "),
        ([], lambda y: y[0], "the network's output has the shape (2,), and softmax_cross_entropy"),
        (["--loss", "output"], F.relu, "the network's output has the shape (1, 2): it is no loss"),
    ],
)
def test_outputs_without_a_loss(
    words: list[str], change: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Giving(Net):
        def forward(self, x: Any) -> Any:
            return change(super().forward(x))

    assert main("--phase", "train", *words, build=Giving) == 1
    assert said(capsys).startswith(message)
    assert os.listdir() == []


@pytest.mark.parametrize("error", [SystemExit("bye"), KeyboardInterrupt()])
def test_a_network_that_ends_the_program_at_once(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ending(Net):
        def at_call(self, number: int) -> None:
            raise error

    assert main(build=Ending) == 1
    assert said(capsys).startswith("the network ends the program: ")
    assert os.listdir() == []


def test_a_disk_that_is_full_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with file_size_limit(100):
        assert main("-n", "10000", "-o", "run") == 1
    assert said(capsys) == (
        "the samples cannot be written after 0 trials: File too large; free some space, "
        "or name a folder elsewhere with --out"
    )
    assert os.listdir() == []


def test_a_disk_that_fills_up_during_the_trials(capsys: pytest.CaptureFixture[str]) -> None:
    with file_size_limit(20_000):
        assert main("-n", "1000", "--clean-trials", "0", "-q", "-o", "run") == 1
    recording = load_run(Path("run"))
    done = recording.n_trials
    line = said(capsys)
    written = int(line.split()[6])
    # The last group of trials is in memory only, and in the recording nevertheless.
    assert 10 < written < done < 1000
    assert line == (
        f"the samples cannot be written after {written} trials: File too large; {done} of "
        "1,000 trials are in run; free some space, or name a folder elsewhere with --out"
    )
    assert names_in("run") == FILES


def no_space(recording: Recording, file: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("words", [[], ["-q"]])
def test_a_recording_for_which_there_is_no_space(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recording, "save", no_space)
        assert main("-n", "6", "-o", "run", *words) == 1
        out, err = capsys.readouterr()
        assert ("LinearFunction" in out) is not bool(words)
        assert one_line(err) == (
            "profile.py: error: run/recording.npz: cannot be written (No space left on device); "
            "the trials are kept in run/recording.journal: free some space, then run "
            "profile.py report run"
        )
        assert names_in("run") == ["recording.journal"]
        assert main("report", "run") == 1
        assert said(capsys) == (
            "run/recording.npz: cannot be written (No space left on device); the trials are kept "
            "in run/recording.journal"
        )
    assert main("report", "run", "-q") == 0
    assert names_in("run") == FILES
    assert load_run(Path("run")).n_trials == 6


def test_a_failure_and_no_space_are_both_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Net):
        def at_call(self, number: int) -> None:
            if number == FIRST_TRIAL + 3:
                raise RuntimeError("oh")

    with monkeypatch.context() as patch:
        patch.setattr(Recording, "save", no_space)
        assert main("-o", "run", "-q", "--clean-trials", "0", build=Failing) == 1
    line = said(capsys)
    assert line.startswith("the network fails after 3 trials")
    assert line.endswith("free some space, then run profile.py report run")
    assert main("report", "run", "-q") == 0
    assert load_run(Path("run")).n_trials == 3


def test_reports_for_which_there_is_no_space(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "to_csv", lambda *_: "x" * 80_000)
    with file_size_limit(40_000):
        assert main("-n", "6", "-o", "run") == 1
    out, err = capsys.readouterr()
    assert "LinearFunction" in out
    assert one_line(err) == (
        "profile.py: error: run/layers.csv: cannot be written (File too large); the trials are "
        "safe in recording.npz: free some space, then run profile.py report run"
    )
    assert names_in("run") == ["recording.npz"]
    assert main("report", "run", "-q") == 0
    assert names_in("run") == ALL_FILES


def test_tables_that_cannot_be_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert main("-o", "run") == 1
    assert names_in("run") == ALL_FILES
    assert one_line(capsys.readouterr().err).startswith(
        "profile.py: error: standard output cannot be written (No space left on device)"
    )


def test_force_replaces_only_what_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    def no_network() -> Any:
        raise ZeroDivisionError

    assert main("-q", "-o", "run") == 0
    before = Path("run/recording.npz").read_bytes()
    assert main("-q", "-o", "run") == 2
    assert said(capsys) == (
        "--out run: holds a run already; name another folder, or replace it with --force"
    )
    assert main("-q", "-o", "run", "--force", "--input-shape", "5") == 1
    assert names_in("run") == ALL_FILES
    assert Path("run/recording.npz").read_bytes() == before
    capsys.readouterr()
    assert main("-q", "-o", "run", "--force", "-n", "9") == 0
    assert names_in("run") == ALL_FILES
    assert load_run(Path("run")).n_trials == 9
