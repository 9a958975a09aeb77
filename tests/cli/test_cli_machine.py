"""The command line: the machine's limits, by themselves and as a part of a run."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from chainer_profile.basics import parsing
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import clock, machine
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.machine import Device, limits_file, load_limits
from chainer_profile.record.recording import Environment, MachineLimits
from chainer_profile.runs.folder import load_run
from tests.command import (  # noqa: F401
    FIRST_TRIAL,
    Net,
    QuietMachine,
    folder,
    main,
    one_line,
    stand_in,
)
from tests.conftest import FakeClock


class Measured:
    """Stands in for measuring, and knows how often, and with how many BLAS threads it was."""

    def __init__(self) -> None:
        self.threads: list[set[int]] = []

    def __call__(self, environment: Environment, device: Device) -> MachineLimits:
        self.threads.append({library.threads for library in environment.blas})
        return replace(stand_in(environment, device), copy_nbytes_per_s=4e10 / len(self.threads))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    measured = Measured()
    monkeypatch.setattr(machine, "measure_limits", measured)
    return measured


def other_threads() -> int:
    """A number of BLAS threads that is not the one in use."""
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return 2 if {library["num_threads"] for library in blas} == {1} else 1


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, however many there are."""
    monkeypatch.setattr(parsing, "usable_cores", lambda: 2)


def limits_of(name: str) -> MachineLimits | None:
    return load_run(Path(name)).limits


def test_the_limits_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("machine", "--threads", "1") == 0
    out, err = capsys.readouterr()
    assert err == ""
    shown = {line[:24].strip(): line[24:] for line in out.splitlines()}
    assert shown.pop("machine").startswith("cpu, ")
    assert shown == {
        "BLAS threads": "1",
        "float32 matrix product": "200.0 GFLOP/s",
        "pass over 128.0 MiB": "40.00 GB/s, read and written in place",
        "copy into new memory": "20.00 GB/s",
        "ridge point": "5.000 flop/byte, into new memory 10.00 flop/byte",
        "kept in": f"{limits_file()} since 2026-01-02T03:04:05Z",
    }
    assert os.listdir() == []


def test_a_gpu_has_its_own_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(environment: Environment, device: Device) -> MachineLimits:
        return replace(stand_in(environment, device), half_flops_per_s=8e11)

    cpu = machine.find_device("cpu")
    found = {"gpu:3": replace(cpu, name="gpu:3", gpu="A GPU")}
    monkeypatch.setattr(machine, "find_device", found.__getitem__)
    monkeypatch.setattr(machine, "measure_limits", measure)
    assert main("machine", "-g", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("machine                 gpu:3, A GPU, CuPy")
    assert "float16 matrix product  800.0 GFLOP/s" in lines
    assert not any(line.startswith("BLAS") for line in lines)


def test_they_are_measured_once_and_again_with_refresh(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("machine") == main("machine") == 0
    assert len(measured.threads) == 1
    assert "20.00 GB/s, read" not in capsys.readouterr().out
    assert main("machine", "--refresh") == 0
    assert "20.00 GB/s, read" in capsys.readouterr().out
    assert main("machine") == 0
    assert "20.00 GB/s, read" in capsys.readouterr().out
    assert len(measured.threads) == 2


def test_a_cache_that_cannot_be_written_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main("machine") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[-1] == (
        f"{'not kept':24}{limits_file()}: cannot be written (Not a directory)"
    )
    assert main("-q", "-o", "run") == 0
    assert limits_of("run") is not None
    assert Path("file").read_text() == "mine"


def test_a_busy_machine_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(QuietMachine, "other_cpu", lambda self: 1.5)
    says = "other programs were busy: the limits may be higher"
    for words, more in (((), "; --refresh measures again"), (("--refresh",), "")):
        assert main("machine", *words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-2].startswith("kept in")
        assert lines[-1] == f"{'note':24}{says}{more}"


def test_a_machine_that_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(environment: Environment, device: Device) -> MachineLimits:
        raise ProfileError("there is too little memory")

    monkeypatch.setattr(machine, "measure_limits", fail)
    assert main("machine") == 1
    assert one_line(capsys.readouterr().err) == "profile.py: error: there is too little memory"
    assert main("-q", "-o", "run") == 0
    assert one_line(capsys.readouterr().err) == (
        "profile.py: the machine's limits are left out: there is too little memory"
    )
    assert limits_of("run") is None


def test_a_run_holds_the_limits_of_its_threads(measured: Measured) -> None:
    threads = other_threads()
    assert main("-q", "--threads", str(threads), "-o", "one") == 0
    assert main("-q", "--threads", str(threads), "-o", "two") == 0
    assert measured.threads == [{threads}]
    limits = limits_of("one")
    assert limits is not None
    assert limits.threads == threads
    assert limits_of("two") == limits
    assert load_limits() == {limits.key: limits}


def test_the_command_measures_with_its_threads(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = other_threads()
    assert main("machine", "--threads", str(threads)) == 0
    assert measured.threads == [{threads}]
    assert f"{'BLAS threads':24}{threads}" in capsys.readouterr().out.splitlines()
    assert other_threads() == threads
    assert main("-q", "--threads", str(threads), "-o", "run") == 0
    assert measured.threads == [{threads}]
    assert limits_of("run") is not None


def test_limits_are_measured_after_the_last_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Seen(Net):
        def at_call(self, number: int) -> None:
            events.append("call")

    def measure(environment: Environment, device: Device) -> MachineLimits:
        events.append("measure")
        return stand_in(environment, device)

    monkeypatch.setattr(machine, "measure_limits", measure)
    assert main("-q", build=Seen) == 0
    assert events.count("measure") == 1
    assert events[-1] == "measure"


def test_limits_that_would_take_too_long_are_not_measured(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeClock()
    monkeypatch.setattr(clock, "HOST_CLOCK", Clock(fake.now_ns))

    class Seconds(Net):
        def at_call(self, number: int) -> None:
            fake.advance(10**9)

    def run(name: str, seconds: int) -> MachineLimits | None:
        assert main("-q", "-o", name, "--max-seconds", str(seconds), build=Seconds) == 0
        return limits_of(name)

    # Sixteen calls are made, with the memory pass, where there is time for all of them.
    assert run("none", 18) is None
    assert measured.threads == []
    limits = run("measured", 60)
    assert len(measured.threads) == 1
    # Those that are kept take no time.
    assert limits is not None
    assert run("kept", 18) == limits
    assert len(measured.threads) == 1


def test_no_machine_leaves_them_out(measured: Measured) -> None:
    assert main("-q", "--no-machine", "-o", "run") == 0
    assert limits_of("run") is None
    assert measured.threads == []


@pytest.mark.parametrize("how", ["fails", "ends", "signal"])
def test_a_run_that_ends_early_measures_nothing(how: str, measured: Measured) -> None:
    class Ending(Net):
        def at_call(self, number: int) -> None:
            if number == FIRST_TRIAL + 1:
                if how == "signal":
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    raise RuntimeError if how == "fails" else SystemExit

    words = ["-q", "-n", "20", "--clean-trials", "0", "-o", "run"]
    assert main(*words, build=Ending) == (143 if how == "signal" else 1)
    assert load_run(Path("run")).n_trials > 0
    assert limits_of("run") is None
    assert measured.threads == []


def test_a_signal_while_limits_are_measured_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(environment: Environment, device: Device) -> MachineLimits:
        os.kill(os.getpid(), signal.SIGINT)
        return stand_in(environment, device)

    monkeypatch.setattr(machine, "measure_limits", measure)
    assert main("-q", "-o", "run") == 130
    assert one_line(capsys.readouterr().err) == (
        "profile.py: interrupted by SIGINT: 4 of 4 trials are in run"
    )
    recording = load_run(Path("run"))
    assert (recording.n_trials, recording.ended) == (4, "complete")


def test_a_second_signal_keeps_the_trials(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(environment: Environment, device: Device) -> Any:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("measuring went on")

    monkeypatch.setattr(machine, "measure_limits", measure)
    assert main("-q", "-o", "run") == 130
    assert one_line(capsys.readouterr().err) == (
        "profile.py: interrupted; profile.py report run shows the trials so far"
    )
    assert main("report", "run", "-q") == 0
    assert load_run(Path("run")).n_trials == 4
