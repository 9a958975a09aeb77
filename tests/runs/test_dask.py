"""Sweeps over Dask for real, as docs/sweep.md starts them, on this machine alone."""

import csv
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Timer

import psutil
import pytest
from distributed import Client

from tests.command import ROOT
from tests.sweeping import STAND_IN

pytestmark = pytest.mark.process

#: Seconds until what a test has started is ended: far more than it takes on a busy machine.
DEADLINE_S = 240
#: For this machine alone.
HERE = "--host 127.0.0.1 --dashboard-address 127.0.0.1:0 --no-dashboard"

#: In place of profile.py: the stand-in runs the cases, and plots cost nothing.
DRIVER = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
{STAND_IN}
from chainer_profile.report.pictures import sweep as pictures
pictures.pictures = lambda results: {{}}
if __name__ == "__main__":
    from chainer_profile.cli.main import main
    from models.registry import REGISTRY
    sys.exit(main(sys.argv[1:], registry=REGISTRY))
"""
TWO = ["--models", "resnet18,resnet34", "--input-shapes", "3x8x8", "--out", "s"]
TWO += ["--trials", "4", "--warmups", "1"]
#: How the cases behave.
HOW = json.dumps({"resnet18": "die once", "resnet34": "gate"})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what is killed leaves its folders
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "driver.py").write_text(DRIVER)
    os.mkfifo("gate")
    return tmp_path


@pytest.fixture
def start(folder):
    """Starts programs; all of them are ended after the test, or when it takes too long."""
    started: list[subprocess.Popen[str]] = []

    def end():
        for process in started:
            with suppress(psutil.NoSuchProcess):
                root = psutil.Process(process.pid)
                for each in (*root.children(recursive=True), root):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
        with suppress(OSError):  # nobody waits for a case at the gate
            os.close(os.open(folder / "gate", os.O_WRONLY | os.O_NONBLOCK))

    def begin(words, **kwargs):
        kwargs = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, **kwargs}
        started.append(subprocess.Popen(words, text=True, start_new_session=True, **kwargs))
        return started[-1]

    timer = Timer(DEADLINE_S, end)
    timer.start()
    try:
        yield begin
    finally:
        timer.cancel()
        end()
        for process in started:
            process.communicate()


def documented(line, host=""):
    """The words of a line of docs/sweep.md that a pattern finds, made to fit this machine."""
    text = (ROOT / "docs" / "sweep.md").read_text()
    (found,) = re.findall(rf"^    (.*{line}.*)$", text, re.MULTILINE)
    places = {
        "python": [sys.executable],
        "profile.py": ["driver.py"],
        "r3.toml": TWO,
    }
    words = shlex.split(found.replace("HOST:8786", host), comments=True)
    return [word for each in words for word in places.get(each, [each])]


def rows():
    found = list(csv.DictReader(Path("s/sweep.csv").read_text().splitlines()))
    return sorted(found, key=lambda row: row["case"])


def ran():
    return sorted(Path("ran.log").read_text().split())


def stopped(start, command):
    """A sweep that was stopped in its second case, and what it said then."""
    sweep = start(command)
    with open("gate") as gate:  # until the case is there
        said = ""
        while not re.search(r"\[\d/\d\] resnet18", said):
            line = sweep.stderr.readline()
            assert line, said
            said += line
        assert "killed by SIGKILL; trying once more" in said
        sweep.send_signal(signal.SIGINT)
        assert gate.read() == ""  # the case ends with the sweep
    return sweep, sweep.communicate()[1]


def cluster(start, *more, env):
    """The address of a scheduler of Dask with two workers, and the scheduler."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # Away from the project: the scheduler cannot import it.
    words = [*documented("dask scheduler"), *HERE.split(), "--port", str(port)]
    scheduler = start(words, **quiet)
    for _ in range(2):
        worker = [*documented("dask worker", address), *HERE.split(), *more]
        start(worker, cwd=ROOT, env=os.environ | env, **quiet)
    with Client(f"tcp://{address}", timeout=DEADLINE_S, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=DEADLINE_S)
    return address, scheduler


def test_the_options_are_documented():
    text = (ROOT / "docs" / "sweep.md").read_text()
    assert f"`{HERE}`" in text


def test_dask_tries_again_stops_and_misses_its_scheduler(start, folder):
    preload = ("--no-nanny", "--preload", str(folder / "stand_in.py"))
    address, scheduler = cluster(start, *preload, env={"SWEEP": HOW})
    command = documented("profile.py .*dask:", address)
    sweep, err = stopped(start, command)
    assert sweep.returncode == 130
    assert "interrupted; 1 of 2 cases are done: repeat the command to continue" in err
    assert ran() == ["resnet18", "resnet18", "resnet34"]
    sweep = start(command)
    with open("gate"):  # until the case is there again
        scheduler.kill()
        _, err = sweep.communicate()
    assert sweep.returncode == 1
    assert "1 of 2 cases are done already" in err
    assert err.endswith(
        "profile.py: error: the scheduler disconnected; repeat the command when it is back\n"
    )
    assert "Traceback" not in err
    assert [row["case"] for row in rows()] == ["resnet18-8x8-cpu-b1-t1"]
