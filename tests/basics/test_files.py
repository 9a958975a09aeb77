"""Reading and replacing files, and values that JSON does not support."""

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.basics.files import as_json, read_regular, replacing
from tests import names_in
from tests.refusing import refusal


@dataclass
class Part:
    times: object
    factor: float


def test_json_has_arrays_and_infinity_as_text():
    parts = (Part(np.array([1, 2]), np.inf), Part((1.5, float("nan")), np.float64(0.25)))
    assert json.loads(as_json({"parts": parts})) == {
        "parts": [{"times": "1 2", "factor": "inf"}, {"times": [1.5, "nan"], "factor": 0.25}]
    }


@pytest.fixture
def irregular(tmp_path):
    """Paths that are no regular files, with the message about each."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "socket"))
        yield {
            tmp_path / "fifo": "not a regular file",
            Path("/dev/zero"): "not a regular file",
            tmp_path / "socket": "No such device or address",
            tmp_path: "Is a directory",
        }


def test_only_regular_files_are_read(irregular, tmp_path):
    for path, message in irregular.items():
        with pytest.raises(OSError, match=message):
            read_regular(path)
    (tmp_path / "file").write_bytes(b"123")
    assert read_regular(tmp_path / "file", max_nbytes=3) == b"123"
    with pytest.raises(OSError, match="the file is too large"):
        read_regular(tmp_path / "file", max_nbytes=2)


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("no bytes")
    assert (path.read_text(), names_in(tmp_path)) == ("before", ["file"])
    with replacing(path) as file:
        file.write(b"after")
    assert path.read_text() == "after"
    nowhere = tmp_path / "none" / "file"
    message = refusal(replacing(nowhere).__enter__)
    assert message == f"{nowhere}: cannot be written (there is no folder {nowhere.parent})"
