"""profile.py, whose name hides a module of the standard library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import HANGS_S, ROOT

STDLIB = Path(os.__file__).parent
RUNPY = """
import runpy, sys
sys.argv[1:] = ["--help"]
runpy.run_path("profile.py", run_name="__main__")
"""


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's root, with the root on its path as a user would have it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANGS_S
    )


def test_importing_profile_gives_the_standard_library() -> None:
    result = python("-c", "import profile; print(profile.__file__); profile.run('2 + 3')")
    assert (result.returncode, result.stderr) == (0, "")
    assert Path(result.stdout.splitlines()[0]) == STDLIB / "profile.py"
    assert "function calls in" in result.stdout


@pytest.mark.parametrize(
    "statement", ["import cProfile", "from profile import Profile", "import pstats, profile"]
)
def test_imports_that_need_it(statement: str) -> None:
    result = python("-c", statement)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_our_file_is_what_the_import_finds_first() -> None:
    # Otherwise the tests above would hold without anybody giving way.
    code = (
        "from importlib.machinery import PathFinder; print(PathFinder.find_spec('profile').origin)"
    )
    assert Path(python("-c", code).stdout.strip()) == ROOT / "profile.py"


def test_cprofile_runs_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('it ran')\n")
    result = python("-m", "cProfile", "-s", "tottime", str(script))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("it ran")
    assert "Ordered by: internal time" in result.stdout


def test_pytest_starts() -> None:
    result = python("-m", "pytest", "--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("pytest ")


@pytest.mark.parametrize(
    "words",
    [
        ["profile.py", "--help"],
        ["-c", RUNPY],
        ["-m", "profile", "--help"],
    ],
    ids=["script", "runpy", "module"],
)
def test_help(words: list[str]) -> None:
    result = python(*words)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("usage: profile.py ")
    assert "layer by layer" in result.stdout
