"""A real sweep over Dask on this machine, started as docs/sweep.md shows."""

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

import pytest
from distributed import Client

from tests.command import ROOT
from tests.sweeping import STAND_IN

pytestmark = pytest.mark.process

#: Seconds until a process of the test is ended, far more than it needs on a busy machine.
DEADLINE_S = 240
#: Options for this machine only; docs/sweep.md names them.
HERE = "--host 127.0.0.1 --dashboard-address 127.0.0.1:0 --no-dashboard"
PAGE = (ROOT / "docs" / "sweep.md").read_text()

#: Replaces profile.py: fakes the cases and the plots.
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
TWO = ["--model", "resnet18,resnet34", "--input-shape", "3x8x8", "--out", "s"]
TWO += ["--trials", "4", "--warmups", "1"]
#: Behaviour of the cases.
HOW = json.dumps({"resnet18": "die once", "resnet34": "gate"})


@pytest.fixture
def start(tmp_path):
    """Start programs; end them after the test, or when it takes too long."""
    started: list[subprocess.Popen[str]] = []

    def end():
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with suppress(OSError):  # nobody waits for a case at the gate
            os.close(os.open(tmp_path / "gate", os.O_WRONLY | os.O_NONBLOCK))

    def begin(words, output=subprocess.DEVNULL, **kwargs):
        kwargs = {"stderr": output, "stdout": output, "start_new_session": True, **kwargs}
        started.append(subprocess.Popen(words, text=True, **kwargs))
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
    """Return the words of a command in docs/sweep.md that matches, adapted to this machine."""
    (shown,) = re.findall(rf"^    (.*{line}.*)$", PAGE, re.MULTILINE)
    places = {"python": [sys.executable], "profile.py": ["driver.py"], "r3.toml": TWO}
    words = shlex.split(shown.replace("HOST:8786", host), comments=True)
    return [word for each in words for word in places.get(each, [each])]


def test_dask_sweep_retries_a_case_and_stops_on_ctrl_c_or_without_its_scheduler(
    start, tmp_path, monkeypatch
):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # killed processes leave their folders
    Path("stand_in.py").write_text(STAND_IN)
    Path("driver.py").write_text(DRIVER)
    os.mkfifo("gate")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*free.getsockname())
    assert f"`{HERE}`" in PAGE
    # The scheduler runs outside the project, so it cannot import it.
    port = address.partition(":")[2]
    scheduler = start([*documented("dask scheduler"), *HERE.split(), "--port", port])
    worker = [*documented("dask worker", address), *HERE.split()]
    worker += ["--no-nanny", "--preload", str(tmp_path / "stand_in.py")]
    for _ in range(2):
        start(worker, cwd=ROOT, env=os.environ | {"SWEEP": HOW})
    with Client(f"tcp://{address}", timeout=DEADLINE_S, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=DEADLINE_S)
    command = documented("profile.py .*dask:", address)
    sweep = start(command, subprocess.PIPE)
    with open("gate") as gate:  # until the second case starts
        message = ""
        while not re.search(r"\[\d/\d\] resnet18", message):
            line = sweep.stderr.readline()
            assert line, message
            message += line
        assert "killed by SIGKILL; trying once more" in message
        sweep.send_signal(signal.SIGINT)
        assert gate.read() == ""  # the case ends with the sweep
    _, err = sweep.communicate()
    assert sweep.returncode == 130
    assert "interrupted; 1 of 2 cases are done: repeat the command to continue" in err
    assert sorted(Path("ran.log").read_text().split()) == ["resnet18", "resnet18", "resnet34"]
    sweep = start(command, subprocess.PIPE)
    with open("gate"):  # until the case starts again
        scheduler.kill()
        _, err = sweep.communicate()
    assert sweep.returncode == 1
    assert "1 of 2 cases are done already" in err
    assert err.endswith(
        "profile.py: error: the scheduler disconnected; repeat the command when it is back\n"
    )
    assert "Traceback" not in err
    (row,) = csv.DictReader(Path("s/sweep.csv").read_text().splitlines())
    assert row["case"] == "resnet18-8x8-cpu-b1"
