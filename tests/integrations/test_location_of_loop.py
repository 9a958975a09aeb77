"""The location of the program's loop, around which the user writes a change."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import chainer
import pytest

from chainer_profile.integrations.origins import LIBRARIES
from chainer_profile.integrations.trying import location_of_loop

PROGRAM = "for _ in range(1):\n    locate()\n"


def located(path, call="locate()"):
    """The location that a call by a file at a path finds; the file need not exist."""
    found = []
    frames = {"locate": lambda: found.append(location_of_loop(sys._getframe(1)))}
    code = compile(call, str(path), "exec")
    # A new thread's stack has no file of the tests.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(exec, code, frames).result()
    return found[0]


@pytest.mark.parametrize("folder", ["src", "chainer/examples/mnist"])
def test_program_in_a_clone_of_chainer_has_a_location(folder, tmp_path, monkeypatch):
    """The line to write used to be around nothing."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / folder / "train.py"
    path.parent.mkdir(parents=True)
    path.write_text(PROGRAM)
    assert located(path, PROGRAM) == f"{folder}/train.py:1"


@pytest.mark.parametrize("folder", [*LIBRARIES[:1], os.path.dirname(chainer.__file__)])
def test_program_that_is_a_library_has_no_file(folder):
    assert located(os.path.join(folder, "train.py")) == "the training"
