"""The doors: profile.py, train.py, ``python -m chainer_profile``, from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.registry import REGISTRY
from tests import HANGS_S, ROOT

#: A Python that finds no installed package.
BARE = ["-S", "-E"]
OLD = """
import runpy, sys
sys.version_info = (3, 9, 18, "final", 0)
sys.path.insert(0, {root!r})
sys.argv = [{program!r}]
runpy.run_path({root!r} + "/" + {program!r}, run_name="__main__")
"""


def python(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )


@pytest.mark.parametrize(
    "words",
    [
        [str(ROOT / "profile.py")],
        ["-m", "chainer_profile"],
        [str(ROOT / "chainer_profile" / "__main__.py")],
    ],
    ids=["script", "module", "file"],
)
def test_every_door_lists_the_same_networks(words: list[str], tmp_path: Path) -> None:
    # A package of the user's own with the name of ours is not taken for it.
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("REGISTRY = {}\n")
    result = python(*words, "--list-models", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert result.stderr == ""
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(REGISTRY)


def test_messages_name_the_program_as_it_was_started(tmp_path: Path) -> None:
    for words, name in (
        ([str(ROOT / "profile.py")], "profile.py"),
        (["-m", "chainer_profile"], "python -m chainer_profile"),
    ):
        result = python(*words, "comapre", cwd=tmp_path, PYTHONPATH=str(ROOT))
        assert result.returncode == 2
        assert result.stderr == (
            f"{name}: error: unknown command 'comapre' (did you mean compare?); {name} --help "
            "lists the commands\n"
        )


def test_the_installed_command_names_itself(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['/somewhere/bin/chainer-profile', 'train', '--epoch', '0']\n"
        "from chainer_profile.__main__ import main; sys.exit(main())"
    )
    result = python("-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert result.returncode == 2
    assert result.stderr.startswith("chainer-profile train: error: argument -e/--epoch: ")
    assert result.stderr.endswith("(see chainer-profile train --help)\n")


@pytest.mark.parametrize("program", ["profile.py", "train.py"])
def test_without_the_requirements_it_says_what_to_install(program: str, tmp_path: Path) -> None:
    result = python(*BARE, str(ROOT / program), cwd=tmp_path)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"{program}: error: the package ")
    assert result.stderr.endswith(" is not installed: python -m pip install -r requirements.txt\n")
    assert python(*BARE, str(ROOT / program), "--help", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("program", ["profile.py", "train.py"])
def test_an_old_python_is_one_line(program: str, tmp_path: Path) -> None:
    result = python("-c", OLD.format(root=str(ROOT), program=program), cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr == (
        f"{program}: error: chainer-profile needs Python 3.10 or newer; this is Python 3.9.18\n"
    )
