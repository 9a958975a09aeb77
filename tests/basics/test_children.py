"""No process that we start outlives us, whatever ends us, and none leaves a file behind."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from tests.command import ROOT

CHILD = """
import signal, sys
with open(sys.argv[1], "w") as here:
    if "ready" in sys.argv:  # a worker of advise would end by it, as it takes JSON alone
        print("ready", flush=True)
    here.write("here\\n")
    here.flush()
    signal.pause()
"""
#: How each of our child processes begins, of those that may live long.
DOORS = {
    "a worker of advise": "worker.Worker([child, fifo], lambda: '').ask('ready', 600)",
    "a case of a sweep": "executors.PROGRAM = Path(child)\nexecutors.run_case('a', (fifo,), '.')",
    "a sampler": "words = sys.executable, child, fifo, 'ready'\n"
    "samplers._attached(words, 'ready', signal.pause)",
}
PARENT = """
import signal, sys
from pathlib import Path
from chainer_profile.advice import worker
from chainer_profile.measure import samplers
from chainer_profile.runs import executors
child, fifo = sys.argv[1:]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a child")
@pytest.mark.parametrize("door", DOORS)
def test_a_child_ends_with_its_parent(door, tmp_path):
    child, fifo, folder = tmp_path / "child.py", tmp_path / "fifo", tmp_path / "tmp"
    child.write_text(CHILD)
    os.mkfifo(fifo)
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT + DOORS[door], str(child), str(fifo)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": ROOT, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
    )

    def wake():
        """Let go of the fifo where the parent ends without a child."""
        parent.wait()
        with suppress(OSError):  # nobody waits
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))

    threading.Thread(target=wake).start()
    with open(fifo) as here:
        assert here.readline() == "here\n"
        parent.send_signal(signal.SIGKILL)
        assert here.read() == ""  # the child holds the other end
    assert parent.wait() == -signal.SIGKILL
    # A case's folder has a name; its content goes with the folder for temporary files.
    assert [name for name in os.listdir(folder) if not name.startswith("sweep-")] == []
