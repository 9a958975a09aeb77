"""Streams that are closed, and folders that cannot be written: one line, and nothing is lost."""

from __future__ import annotations

import builtins
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import replacing
from chainer_profile.runs.folder import load_run
from tests import HANGS_S, names_in
from tests.command import FILES, OWN, ROOT, folder, main, one_line  # noqa: F401

pytestmark = pytest.mark.process


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the current folder is as on a file system that is mounted read-only."""
    here = os.getcwd()

    def refuse(path: Any) -> None:
        if isinstance(path, str | Path) and os.path.abspath(path).startswith(here):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def wrapped(original: Any, writes: Any) -> Any:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if writes(*args, **kwargs):
                refuse(path)
            return original(path, *args, **kwargs)

        return call

    always = lambda *_, **__: True  # noqa: E731
    monkeypatch.setattr(
        builtins, "open", wrapped(open, lambda mode="r", *_, **__: set(mode) & set("wax+"))
    )
    monkeypatch.setattr(os, "open", wrapped(os.open, lambda flags, *_, **__: flags & os.O_CREAT))
    monkeypatch.setattr(Path, "unlink", wrapped(Path.unlink, always))
    # Like the kernel, which sees first that a folder is there.
    mkdir = Path.mkdir
    monkeypatch.setattr(
        Path,
        "mkdir",
        lambda path, *args, **kwargs: (
            mkdir(path, *args, **kwargs) if path.exists() else refuse(path)
        ),
    )


@pytest.mark.parametrize(
    "words",
    [
        ["-q", "-o", "new"],
        ["-q", "-o", "there"],
        ["-q"],
        ["export", "--model", "tiny", "--to", "net.onnx"],
        ["export", "--model", "tiny", "--to", "new/net.onnx"],
        ["report", "run", "-q"],
        ["report", "run", "-q", "--format", "json,trace"],
        ["compare", "run", "run", "-q", "-o", "new"],
        ["compare", "run", "run", "-q", "-o", "there"],
        ["engines", "--engines", "chainer", "--model", "tiny", "--trials", "4", "-q"],
        ["sweep", "--models", "tiny", "--trials", "4", "-q"],
        ["train", "--model", "tiny", "-d", "synthetic", "--synthetic-size", "50", "-q"],
    ],
)
def test_a_folder_that_is_read_only_is_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    from chainer_profile.cli import main as cli
    from tests.command import Entry

    Path("there").mkdir()
    assert main("-q", "-o", "run") == 0
    capsys.readouterr()
    request.getfixturevalue("read_only")
    if words[0].startswith("-"):
        code = main(*words)
    else:
        entry: Any = Entry(input_shape=(3, 32, 32), classes=10) if words[0] == "train" else Entry()
        code = cli.main(words, {"tiny": entry})
    assert code == 1
    assert os.strerror(errno.EROFS) in one_line(capsys.readouterr().err)


def test_a_file_on_a_file_system_that_is_read_only(read_only: None) -> None:
    said = r"file: cannot be written \(Read-only file system\)"
    with pytest.raises(ProfileError, match=said), replacing(Path("file")) as file:
        file.write(b"x")


@pytest.mark.parametrize(
    ("closed", "files"),
    [(">&-", FILES), (">&- 2>&-", ["recording.npz"]), (">&- 2>&- <&-", ["recording.npz"])],
)
def test_a_closed_output_loses_nothing(closed: str, files: list[str]) -> None:
    Path("net.py").write_text(OWN)
    written = "" if files == FILES else "--format none"
    words = f"--model net.py:Net --input-shape 3 --trials 4 --no-machine {written} -o run"
    script = f"{sys.executable} {ROOT / 'profile.py'} {words} {closed}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=HANGS_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert names_in("run") == files
    assert load_run(Path("run")).n_trials == 4
