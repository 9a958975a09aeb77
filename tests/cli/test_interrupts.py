"""Signals and errors: what they end, and what is kept of a run that they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.cli.running import Interrupted, Interrupts, run_command
from chainer_profile.report.pictures.figures import Picture
from chainer_profile.runs.folder import load_run
from tests import names_in
from tests.command import FILES, FIRST_TRIAL, Net, folder, main, one_line, process  # noqa: F401

pytestmark = pytest.mark.process

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Handlers that fail the test, for signals that a command leaves to itself."""

    def unhandled(signum: int, frame: Any) -> None:
        raise AssertionError(f"nobody handles {signal.Signals(signum).name}")

    before = {signum: signal.signal(signum, unhandled) for signum in SIGNALS}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def sending(signum: int, call: int, times: int = 1) -> Callable[[], Net]:
    """A network that sends a signal to its own process in one of its calls."""

    class Sending(Net):
        def at_call(self, number: int) -> None:
            if number == call:
                for _ in range(times):
                    os.kill(os.getpid(), signum)

    return Sending


@pytest.mark.parametrize("signum", SIGNALS)
def test_outside_the_trials_a_signal_raises(signum: int) -> None:
    with Interrupts() as interrupts, pytest.raises(Interrupted) as caught:
        os.kill(os.getpid(), signum)
    assert caught.value.signum == signum
    assert interrupts.reason() == ""


def test_during_the_trials_the_first_signal_is_noted_and_the_second_raises() -> None:
    with Interrupts() as interrupts, interrupts.measuring():
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.signum == signal.SIGTERM
        assert interrupts.reason() == "interrupted by SIGTERM"
        with pytest.raises(Interrupted) as caught:
            os.kill(os.getpid(), signal.SIGINT)
    assert caught.value.signum == signal.SIGINT


def test_after_the_trials_a_signal_raises_again() -> None:
    with Interrupts() as interrupts:
        with interrupts.measuring():
            pass
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("signum", "code", "name"), [(signal.SIGINT, 130, "SIGINT"), (signal.SIGTERM, 143, "SIGTERM")]
)
def test_the_trials_before_a_signal_are_kept(
    signum: int, code: int, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    build = sending(signum, FIRST_TRIAL + 6)
    words = ["-n", "20", "--clean-trials", "0", "-o", "run"]
    assert main(*words, build=build) == code
    out, err = capsys.readouterr()
    # The trial in which the signal came is complete, and the last one.
    recording = load_run(Path("run"))
    assert recording.n_trials == 7
    assert recording.ended == f"interrupted by {name}"
    assert one_line(err) == f"profile.py: interrupted by {name}: 7 of 20 trials are in run"
    assert f"after 7 of 20 trials: interrupted by {name}" in " ".join(out.split())
    assert names_in("run") == FILES


@pytest.mark.parametrize("call", [1, 3, FIRST_TRIAL - 1])
def test_a_signal_before_the_first_trial_leaves_nothing(
    call: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("-o", "a/b/run", build=sending(signal.SIGTERM, call)) == 143
    out, err = capsys.readouterr()
    assert (out, one_line(err)) == (
        "",
        "profile.py: interrupted by SIGTERM: no profiled trial was complete",
    )
    assert os.listdir() == []


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_network_is_imported(
    signum: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(f"import os\nos.kill(os.getpid(), {int(signum)})\n")
    assert main("-m", "own.py:Net", "--input-shape", "3") == code
    out, err = capsys.readouterr()
    assert (out, one_line(err)) == ("", "profile.py: interrupted")
    assert set(os.listdir()) - {"__pycache__"} == {"own.py"}


def test_a_signal_while_the_network_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    def build() -> Net:
        os.kill(os.getpid(), signal.SIGINT)
        return Net()

    assert main(build=build) == 130
    assert one_line(capsys.readouterr().err) == "profile.py: interrupted"
    assert os.listdir() == []


def test_a_second_signal_ends_a_trial_that_hangs(capsys: pytest.CaptureFixture[str]) -> None:
    class Hanging(Net):
        def at_call(self, number: int) -> None:
            if number == FIRST_TRIAL + 6:
                for _ in range(2):
                    os.kill(os.getpid(), signal.SIGINT)
                raise AssertionError("the trial went on")

    words = ["-n", "20", "--clean-trials", "0", "-o", "run"]
    assert main(*words, build=Hanging) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert one_line(err) == (
        "profile.py: interrupted; profile.py report run shows the trials so far"
    )
    assert main("report", "run", "-q") == 0
    recording = load_run(Path("run"))
    assert (recording.n_trials, recording.ended) == (6, "killed before its end")


def test_a_second_signal_before_the_first_trial_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main("-o", "run", build=sending(signal.SIGINT, 2, times=2)) == 130
    assert one_line(capsys.readouterr().err) == "profile.py: interrupted"
    assert os.listdir() == []


def test_a_signal_while_the_reports_are_made_keeps_the_recording(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(picture: Any) -> bytes:
        os.kill(os.getpid(), signal.SIGINT)
        return b"plot"

    with monkeypatch.context() as patch:
        patch.setattr(Picture, "png", interrupted)
        assert main("-o", "run") == 130
    assert one_line(capsys.readouterr().err) == "profile.py: interrupted"
    assert names_in("run") == ["recording.npz"]
    assert main("report", "run", "-q") == 0
    assert load_run(Path("run")).n_trials == 4


KILLED = """
import os, signal
import time
import chainer.functions as F
import chainer.links as L

class Net(L.Linear):
    def __init__(self):
        super().__init__(3, 2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = F.relu(super().forward(x))
        # Calls 1 to 3 learn the structure, 4 is a warm-up, 5 the first trial.
        if self.calls == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        # Trials of a tenth of a second are written one by one.
        end = time.perf_counter() + 0.11
        while time.perf_counter() < end:
            pass
        return y
"""


@pytest.mark.smoke
def test_a_killed_run_is_recovered(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(KILLED)
    words = ["-m", "own.py:Net", "--input-shape", "3", "-w", "1", "-n", "50"]
    result = process(*words, "--clean-trials", "0", "-o", "run")
    assert result.returncode == -signal.SIGKILL
    assert names_in("run") == ["recording.journal"]

    assert main("report", "run") == 0
    out, err = capsys.readouterr()
    assert err == ""
    text = " ".join(out.split())
    # All trials but the one in which it was killed.
    assert "The run ended after 7 of 50 trials: killed before its end." in text
    assert names_in("run") == FILES
    assert load_run(Path("run")).n_trials == 7


def test_a_run_killed_in_its_first_trial_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(KILLED.replace("== 12", "== 5"))
    words = ["-m", "own.py:Net", "--input-shape", "3", "-w", "1", "-n", "50", "-o", "run"]
    assert process(*words).returncode == -signal.SIGKILL
    assert main("report", "run") == 1
    assert one_line(capsys.readouterr().err) == (
        "profile.py: error: run: the run was killed before its first trials were written; "
        "run it again with --force"
    )
    assert main("-q", "-o", "run", "--force") == 0
    assert load_run(Path("run")).n_trials == 4


# -- what a command is run within


def raising(error: BaseException):
    def command(interrupts: Interrupts) -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ProfileError("no such thing"), 1, "x.py: error: no such thing\n"),
        (UsageError("no such word"), 2, "x.py: error: no such word\n"),
        (Interrupted(15), 143, "x.py: interrupted\n"),
    ],
)
def test_an_error_is_one_line_and_a_code(error, code, says, capsys) -> None:
    assert run_command("x.py", [], raising(error)) == code
    assert capsys.readouterr() == ("", says)


def test_debug_shows_the_traceback(capsys) -> None:
    assert run_command("x.py", ["--debug"], raising(ProfileError("here"))) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("x.py: error: here\n")


def test_the_code_of_a_command_is_its_own(capsys) -> None:
    assert run_command("x.py", [], lambda interrupts: 7) == 7
    assert capsys.readouterr() == ("", "")


def test_an_error_of_ours_is_no_line() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command("x.py", [], raising(ZeroDivisionError()))


@pytest.mark.parametrize(
    "ending", [lambda interrupts: 7, raising(Interrupted(15)), raising(ZeroDivisionError())]
)
def test_signals_are_handled_as_before_by_whoever_calls_a_command(ending) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with suppress(ZeroDivisionError):
        run_command("x.py", [], ending)
    assert [signal.getsignal(number) for number in SIGNALS] == before
