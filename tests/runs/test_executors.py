"""Executors of concurrent.futures run each case in its own process."""

import json
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import executor as check_executor
from chainer_profile.record.recording import Recording
from chainer_profile.runs import executors
from chainer_profile.runs.executors import open_workers, run_case, stop
from tests import sweeping
from tests.refusing import refusal
from tests.sweeping import make_case

WORDS = make_case().words


@pytest.fixture(autouse=True)
def stand_in(folder, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(executors, "PROGRAM", sweeping.PROGRAM)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("tmp")))


def test_case_returns_its_recording_and_leaves_no_files():
    with open_workers("local:2") as workers:
        case = workers.submit("a", WORDS, ".").result()
    for outcome in (case, executors.run_alone("a", WORDS, "."), run_case("a", WORDS, "/missing")):
        assert (outcome.error, outcome.machine) == ("", os.uname().nodename)
        assert os.listdir() == ["ran.log"]
        assert os.listdir(tempfile.tempdir) == []
        Path("r.npz").write_bytes(outcome.recording)
        assert make_case().matches(Recording.load(Path("r.npz")).settings)
        Path("r.npz").unlink()


def test_executor_names_are_checked_and_broken_workers_report_errors(monkeypatch):
    for name in ("local", "local:3", "dask://host:8786", "dask://[::1]:1/"):
        assert check_executor(name) == name
    for name in ("", "local:0", "local:x", "dask", "dask://host", "slurm"):
        assert "give local, local:N or dask://" in refusal(check_executor, name, error=UsageError)
    monkeypatch.setattr(executors, "PROGRAM", Path("/missing/profile.py"))
    assert "can't open file '/missing/profile.py'" in run_case("a", WORDS, ".").error
    monkeypatch.setattr("tempfile.tempdir", "/missing")
    assert "No such file" in run_case("a", WORDS, ".").error


def test_stopped_sweep_ends_only_its_own_cases(monkeypatch):
    monkeypatch.setenv("SWEEP", json.dumps({"resnet18": "gate"}))
    os.mkfifo("gate")
    errors = []

    def run():
        errors.append(run_case("stopped", WORDS, ".").error)
        with suppress(OSError):  # releases the test if the case ended before the gate
            os.close(os.open("gate", os.O_WRONLY | os.O_NONBLOCK))

    runner = threading.Thread(target=run)
    runner.start()
    with open("gate") as gate:  # until the case starts
        stop("another")
        assert len(executors._running) == 1
        stop("stopped")
        assert gate.read() == ""
    runner.join()
    assert errors == ["its process was killed by SIGKILL"]
    assert run_case("stopped", WORDS, ".").error == errors[0]  # no case starts any more
