"""Child processes end with a killed parent, and leave no files."""

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
with open(sys.argv[1], "w") as fifo:
    if "ready" in sys.argv:  # a worker of advise accepts only JSON, and would end
        print("ready", flush=True)
    fifo.write("started\\n")
    fifo.flush()
    signal.pause()
"""
#: Code that starts each kind of long-running child process.
STARTS = {
    "a worker of advise": "worker.Worker([child, fifo], lambda: '').ask('ready', 600)",
    "a case of a sweep": "executors.PROGRAM = Path(child)\nexecutors.run_case('a', (fifo,), '.')",
    "a sampler": "command = sys.executable, child, fifo, 'ready'\n"
    "samplers._run_sampled(command, 'ready', signal.pause)",
}
PARENT = """
import signal, sys
from pathlib import Path
from chainer_profile.advice import worker
from chainer_profile.measure import samplers
from chainer_profile.runs import executors
child, fifo = sys.argv[1:]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can kill a child with its parent")
@pytest.mark.parametrize("kind", STARTS)
def test_child_is_killed_with_its_parent(kind, tmp_path):
    child, fifo, folder = tmp_path / "child.py", tmp_path / "fifo", tmp_path / "tmp"
    child.write_text(CHILD)
    os.mkfifo(fifo)
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT + STARTS[kind], str(child), str(fifo)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": ROOT, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
    )

    def wake():
        """Open the fifo for the reader below if the parent ends without starting a child."""
        parent.wait()
        with suppress(OSError):  # no reader is waiting
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))

    threading.Thread(target=wake).start()
    with open(fifo) as fifo_file:
        assert fifo_file.readline() == "started\n"
        parent.send_signal(signal.SIGKILL)
        assert fifo_file.read() == ""  # ends when the child has ended
    assert parent.wait() == -signal.SIGKILL
    # Only a case of a sweep leaves a folder, with a known name.
    assert [name for name in os.listdir(folder) if not name.startswith("sweep-")] == []
