"""The machine's limits, measured by their own command or during a run."""

from dataclasses import replace
from pathlib import Path

import pytest

from chainer_profile.basics import parsing
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import clock, machine
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.machine import limits_file, load_limits
from chainer_profile.runs.folder import load_run
from tests.command import Net, QuietMachine, main, one_line, raising, stand_in
from tests.conftest import FakeClock


@pytest.fixture
def measured(monkeypatch):
    """Return the numbers of BLAS threads at each measurement of the limits."""
    threads = []

    def measure(environment, device):
        threads.append({library.threads for library in environment.blas})
        return stand_in(environment, device)

    monkeypatch.setattr(machine, "measure_limits", measure)
    monkeypatch.setattr(parsing, "usable_cores", lambda: 2)  # independent of the test machine
    return threads


def limits_of(name):
    return load_run(Path(name)).limits


def test_limits_are_shown_and_measured_again_if_requested(done, monkeypatch):
    values = {line[:24].strip(): line[24:] for line in done("--machine").splitlines()}
    assert values.pop("machine").startswith("cpu, ")
    assert values.pop("BLAS threads")
    assert values == {
        "float32 matrix product": "200.0 GFLOP/s",
        "pass over 128.0 MiB": "40.00 GB/s, read and written in place",
        "copy into new memory": "20.00 GB/s",
        "ridge point": "5.000 flop/byte, into new memory 10.00 flop/byte",
        "kept in": f"{limits_file()} since 2026-01-02T03:04:05Z",
    }
    halves = lambda *given: replace(stand_in(*given), half_flops_per_s=8e11)  # noqa: E731
    monkeypatch.setattr(machine, "measure_limits", halves)
    assert "float16 matrix product  800.0 GFLOP/s" in done("--machine", "again")


def test_run_does_not_fail_without_limits(monkeypatch, tmp_path, done, fails, capsys):
    with monkeypatch.context() as patch:  # a cache folder that is a file
        Path("file").write_text("mine")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        message = " ".join(done("--machine").split())
        assert message.endswith(f"not kept {limits_file()}: cannot be written (Not a directory)")
    with monkeypatch.context() as patch:  # a busy machine
        patch.setattr(QuietMachine, "other_cpu", lambda self: 1.5)
        says = "other programs were busy, so the limits may be higher"
        for words, more in (((), "; --machine again measures them anew"), (("again",), "")):
            assert done("--machine", *words).splitlines()[-1] == f"{'note':24}{says}{more}"
    monkeypatch.setattr(machine, "measure_limits", raising(ProfileError("too little memory")))
    assert fails("--machine", "again") == "too little memory"
    limits_file().unlink()
    assert main("-q", "-o", "run") == 0
    message = "profile.py: the machine's limits were not measured: too little memory"
    assert one_line(capsys.readouterr().err) == message
    assert limits_of("run") is None


@pytest.mark.parametrize("threads", [1, 2])
def test_limits_are_measured_once_for_each_number_of_threads(measured, done, threads):
    assert f"BLAS threads            {threads}\n" in done("--machine", "--threads", str(threads))
    done("-q", "-o", "run", "--threads", str(threads))
    assert measured == [{threads}]
    limits = limits_of("run")
    assert limits.threads == threads
    assert load_limits() == {limits.key: limits}
    done("-q", "-o", "without", "--skip", "machine")
    assert limits_of("without") is None


def test_limits_are_not_measured_if_time_is_short(measured, monkeypatch):
    fake = FakeClock()
    monkeypatch.setattr(clock, "HOST_CLOCK", Clock(fake.now_ns))

    class Seconds(Net):
        def at_call(self, number):
            fake.advance(10**9)

    # A measurement needs time for all calls, also of the memory pass; saved limits need no time.
    for name, seconds, count in (("none", 17, 0), ("measured", 60, 1), ("kept", 17, 1)):
        assert main("-q", "-o", name, "--max-seconds", str(seconds), build=Seconds) == 0
        assert len(measured) == count
    assert limits_of("none") is None
    assert limits_of("kept") == limits_of("measured") is not None
