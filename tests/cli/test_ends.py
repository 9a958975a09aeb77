"""Ends of a run by signals, errors and full disks: messages, exit codes, and remaining files."""

import io
import os
import signal
import sys
from pathlib import Path

import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.cli.main import run_command
from chainer_profile.record.recording import Recording
from chainer_profile.report.pictures.figures import Picture
from chainer_profile.report.writers import csv_files
from chainer_profile.runs.folder import load_run
from tests import names_in
from tests.command import (
    ALL_FILES,
    FILES,
    FIRST_TRIAL,
    acting,
    file_size_limit,
    main,
    one_line,
    process,
    raising,
    sending,
)

INTO = ("--clean-trials", "0", "-o", "run")
AGAIN = "free some space, then run python profile.py report"


@pytest.fixture(autouse=True)
def signals():
    """Fail at a signal that the command does not handle; check that it restores the handlers."""

    def unhandled(signum, frame):
        raise AssertionError(f"nobody handles {signal.Signals(signum).name}")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, unhandled) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        assert signal.signal(number, handler) is unhandled


def kept():
    """Return the number of trials in the recording, and how the recording ended."""
    recording = load_run(Path("run"))
    return recording.n_trials, recording.ended


# -- signals


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_trials_before_a_signal_are_kept(name, code, capsys):
    build = acting(FIRST_TRIAL + 6, sending(signal.Signals[name]))
    assert main("-n", "20", *INTO, build=build) == code
    out, err = capsys.readouterr()
    # The trial during the signal is complete, and is the last one.
    assert kept() == (7, f"interrupted by {name}")
    assert one_line(err) == f"profile.py: interrupted by {name}: 7 of 20 trials are in run"
    assert f"after 7 of 20 trials: interrupted by {name}" in " ".join(out.split())
    assert names_in("run") == FILES


def test_signals_end_a_run_before_its_first_trial_or_in_a_trial_that_hangs(fails):
    text = "profile.py: interrupted by SIGTERM: no profiled trial was complete"
    build = acting(FIRST_TRIAL - 1, sending(signal.SIGTERM))
    assert fails("-o", "a/b/run", code=143, build=build) == text
    assert os.listdir() == []

    def hang():
        sending(signal.SIGINT, times=2)()
        raise AssertionError("the trial went on")

    text = fails("-n", "20", *INTO, code=130, build=acting(FIRST_TRIAL + 6, hang))
    assert text == "profile.py: interrupted; python profile.py report run shows the trials so far"
    assert main("report", "run", "-q") == 0
    assert kept() == (6, "killed before its end")


def test_signal_during_the_reports_keeps_the_recording(monkeypatch):
    def interrupted(picture):
        sending(signal.SIGINT)()
        pytest.fail("the reports go on")

    with monkeypatch.context() as patch:
        patch.setattr(Picture, "png", interrupted)
        assert main("-o", "run") == 130
    assert names_in("run") == ["recording.npz"]
    assert main("report", "run", "-q") == 0
    assert kept()[0] == 4


#: Calls 1 to 3 record the structure, call 4 is a warm-up, call 5 the first trial.
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
        if self.calls == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        # Trials of a tenth of a second are written one by one.
        end = time.perf_counter() + 0.11
        while time.perf_counter() < end:
            pass
        return y
"""


@pytest.mark.process
@pytest.mark.smoke
def test_killed_run_is_recovered(done):
    Path("own.py").write_text(KILLED)
    words = ("-m", "own.py:Net", "--input-shape", "3", "-w", "1", "-n", "50", *INTO)
    assert process(*words).returncode == -signal.SIGKILL
    assert names_in("run") == ["recording.journal"]
    # The interrupted trial is lost.
    message = "The run ended after 7 of 50 trials: killed before its end."
    assert message in " ".join(done("report", "run").split())
    assert names_in("run") == FILES
    assert kept()[0] == 7


# -- networks that fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("out of\nluck"), "the network fails after 45 trials, in Acting at /: "),
        (SystemExit("bye"), "the network ends the program: SystemExit: bye"),
        (KeyboardInterrupt(), "the network ends the program: KeyboardInterrupt"),
    ],
)
def test_network_that_fails_at_its_50th_call_keeps_its_trials(error, message, fails):
    text = fails("-n", "60", "-q", *INTO, build=acting(50, raising(error)))
    assert text.startswith(message)
    assert text.endswith("; 45 of 60 trials are in run")
    assert names_in("run") == FILES
    assert kept() == (45, f"failed: {text.rpartition(';')[0]}")


# -- full disks


def test_full_disk_during_the_trials_keeps_the_trials_that_fit(fails):
    where = "free some space, or choose another folder with --out"
    journal = "run/recording.journal: File too large"
    with file_size_limit(100):
        message = fails("-n", "10000", "-o", "run")
    assert message == f"the samples cannot be written after 0 trials: {journal}; {where}"
    assert os.listdir() == []
    with file_size_limit(20_000):
        message = fails("-n", "1000", "-q", *INTO)
    # The last group of trials is only in memory, but is in the recording.
    done = kept()[0]
    assert 10 < done < 1000
    assert message == (
        f"the samples cannot be written after {done} trials: {journal}; {done} of "
        f"1,000 trials are in run; {where}"
    )
    assert names_in("run") == FILES


def test_recording_without_space_is_recovered_from_the_journal(monkeypatch, fails, capsys):
    cannot = "run/recording.npz: cannot be written (No space left on device); the trials are"
    with monkeypatch.context() as patch:
        patch.setattr(Recording, "save", raising(OSError(28, "No space left on device")))
        assert main("-n", "6", "-o", "run") == 1
        out, err = capsys.readouterr()
        assert "LinearFunction" in out
        message = f"profile.py: error: {cannot} still in run/recording.journal: {AGAIN} run"
        assert one_line(err) == message
        assert fails("report", "run") == message.removeprefix("profile.py: error: ")
        build = acting(FIRST_TRIAL + 3, raising(RuntimeError("oh")))
        message = fails("-q", "--clean-trials", "0", "-o", "failed", build=build)
        assert message.startswith("the network fails after 3 trials")
        assert message.endswith(f"{AGAIN} failed")
    for name, trials in (("run", 6), ("failed", 3)):
        assert main("report", name, "-q") == 0
        assert names_in(name) == FILES
        assert load_run(Path(name)).n_trials == trials


def test_reports_without_space_keep_the_recording(monkeypatch, fails, capsys):
    with monkeypatch.context() as patch, file_size_limit(40_000):
        patch.setattr(csv_files, "to_csv", lambda *_: "x" * 80_000)
        assert main("-n", "6", "-o", "run") == 1
    out, err = capsys.readouterr()
    assert "LinearFunction" in out
    assert one_line(err) == (
        "profile.py: error: run/layers.csv: cannot be written (File too large); the trials are "
        f"safe in recording.npz: {AGAIN} run"
    )
    assert names_in("run") == ["recording.npz"]
    full = io.StringIO()
    full.write = raising(OSError(28, "No space left on device"))
    monkeypatch.setattr(sys, "stdout", full)
    message = "standard output cannot be written (No space left on device)"
    assert fails("-o", "other").startswith(message)
    assert names_in("other") == ALL_FILES


# -- errors in a command


def test_error_is_one_line_or_a_traceback_with_debug(capsys):
    with pytest.raises(ZeroDivisionError):  # a bug in our code is not reported in one line
        run_command("x.py", [], raising(ZeroDivisionError()))
    for words, begin in ((["--debug"], "Traceback"), ([], "x.py: error: here\n")):
        assert run_command("x.py", words, raising(ProfileError("here"))) == 1
        err = capsys.readouterr().err
        assert err.startswith(begin)
        assert err.endswith("x.py: error: here\n")
