"""profile.py sweep."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chainer_profile.runs import executors
from chainer_profile.runs.folder import load_run
from models.registry import REGISTRY
from tests import HANGS_S, names_in
from tests.command import OWN, ROOT, command, process
from tests.refusing import refusal
from tests.scripts import python
from tests.sweeping import PROGRAM, STAND_IN

pytestmark = pytest.mark.process

CASES = ("--input-shape", "3x8x8", "--trials", "4", "--warmups", "1")
TWO = ("--model", "resnet18,resnet34", *CASES)
THREE = ("--model", "resnet18,resnet34,resnet50", *CASES, "-q", "--out", "s")
FOLDER = Path("reports/sweep-resnet18-resnet34")


@pytest.fixture(autouse=True)
def stand_in(folder, tmp_path_factory, monkeypatch):
    """Run the cases with a fake program."""
    monkeypatch.delenv("SWEEP", raising=False)
    # Killed processes leave their folders.
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.setattr(executors, "PROGRAM", PROGRAM)


def run(*argv):
    return command("sweep", argv, REGISTRY)


def ran():
    """Return the networks that ran, in order."""
    return Path("ran.log").read_text().split() if os.path.exists("ran.log") else []


def table(out=FOLDER):
    return list(csv.DictReader(Path(out, "sweep.csv").read_text().splitlines()))


def test_sweep_writes_a_table_and_plots_and_repeats_no_case(capsys, monkeypatch):
    assert run(*TWO) == 0
    out, err = capsys.readouterr()
    assert [(row["network"], row["mean_ms"]) for row in table()] == [
        ("resnet18", "2"),
        ("resnet34", "2"),
    ]
    assert names_in(FOLDER) == [
        *("latency-by-network.png", "latency-by-network.svg"),
        *("resnet18-8x8-cpu-b1", "resnet34-8x8-cpu-b1"),
        *("sweep.csv", "sweep.html", "sweep.json", "sweep.md"),
    ]
    assert re.search(r"^resnet18 +8x8 +1 +cpu +basic +2\.0000 +1\.0000 +500\.0 +300 ", out, re.M)
    assert f"Written to {FOLDER}: sweep.csv, sweep.md, sweep.html, latency-by-network.png" in out
    first = "profile.py: [1/2] resnet18-8x8-cpu-b1: 2.000 ms, std 1.000 ms, 500.0 FPS (about "
    assert err.startswith(first)
    assert f"python profile.py sweep {' '.join(TWO)}" in (FOLDER / "sweep.md").read_text()
    assert run(*TWO, "-q") == 0
    assert capsys.readouterr() == ("", "")
    run(*TWO, "--dry-run")
    assert capsys.readouterr().out.count(" (done)") == 2
    # The old sweep is replaced only after workers are connected.
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "dask" in refusal(run, *TWO, "-q", "--force", "--executor", "dask://host:1")
    assert len(table()) == 2
    assert ran() == ["resnet18", "resnet34"]
    assert run(*TWO, "-q", "--force") == 0
    assert ran() == ["resnet18", "resnet34"] * 2


def test_failed_case_is_named(capsys, monkeypatch):
    monkeypatch.setenv("SWEEP", json.dumps({"resnet18": "fail"}))
    name, why = "resnet18-8x8-cpu-b1", "there is no luck"
    message = refusal(run, *TWO)
    assert message == f"1 of 2 cases failed: {name} ({why}); repeat the command to try again"
    out, err = capsys.readouterr()
    assert f"{name}: {why}; trying once more" in err
    assert f"Failed: {name}: {why}" in out
    assert [row["error"] for row in table()] == [why, ""]
    monkeypatch.delenv("SWEEP")
    assert run(*TWO, "-q") == 0
    assert ran() == ["resnet18", "resnet34", "resnet18", "resnet18"]
    assert "error" not in table()[0]


def test_dry_run_lists_commands(capsys):
    assert run(*TWO, "--batchsize", "1,2,1", "--device", "gpu:0", "--dry-run") == 0
    listed, err = capsys.readouterr()
    message = "2 cases are given more than once and run once, such as resnet18-8x8-gpu0-b1"
    assert err == f"profile.py: {message}\n"
    out = listed.splitlines()
    assert len(out) == 8
    assert out[2] == "resnet18-8x8-gpu0-b2"
    assert out[3].startswith("  python profile.py --model resnet18 --input-shape 3x8x8 --batchsize")
    assert os.listdir() == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_sweep_continues_after_a_signal(signum):
    os.mkfifo("gate")
    Path("driver.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{STAND_IN}\n"
        "from chainer_profile.cli.main import main\nfrom models.registry import REGISTRY\n"
        "sys.exit(main(sys.argv[1:], registry=REGISTRY))\n"
    )
    sweep = subprocess.Popen(
        [sys.executable, "driver.py", "sweep", *THREE],
        env=os.environ | {"SWEEP": json.dumps({"resnet34": "gate"})},
        stderr=subprocess.PIPE,
        text=True,
    )
    with open("gate") as gate:  # until the second case starts
        deadline = time.monotonic() + HANGS_S
        while not Path("s/sweep.csv").exists():  # the first case is saved while the second starts
            assert time.monotonic() < deadline
            os.sched_yield()
        sweep.send_signal(signum)
        assert gate.read() == ""  # the case ends with the sweep
    _, err = sweep.communicate()
    assert [row["network"] for row in table("s")] == ["resnet18"]
    if signum == signal.SIGINT:
        message = "interrupted; 1 of 3 cases are done: repeat the command to continue"
        assert (sweep.returncode, err) == (130, f"profile.py: {message}\n")
        assert "1 of 3 cases." in Path("s/sweep.md").read_text()
        return
    assert sweep.returncode == -signal.SIGKILL
    assert run(*THREE) == 0
    assert ran() == ["resnet18", "resnet34", "resnet34", "resnet50"]
    assert run(*THREE[:-1], "whole") == 0
    assert table("s") == table("whole")
    assert names_in("s") == names_in("whole")  # no other files are left


def test_process_that_starts_the_cases_does_not_import_chainer():
    code = "import sys, chainer_profile.cli.sweep; print('chainer' in sys.modules)"
    assert python("-c", code).stdout == "False\n"


def test_real_sweep_writes_cases_that_can_be_repeated(folder):
    (folder / "own.py").write_text(OWN)
    words = ("--model", "own.py:Net", "--input-shape", "3", "--batchsize", "1,4")
    result = process("sweep", *words, "--trials", "4", "--warmups", "1", "--out", "s")
    assert result.returncode == 0, result.stderr
    rows = table("s")
    assert [row["batch"] for row in rows] == ["1", "4"]
    assert all(float(row["mean_ms"]) > 0 and row["parameters"] == "8" for row in rows)
    # The command of a case repeats it.
    command = load_run(Path("s/own-Net-3-cpu-b4")).settings.command
    assert command.startswith("python profile.py --model own.py:Net --input-shape 3 --batchsize 4")
