"""Start of profile.py, train.py and ``python -m chainer_profile`` from any folder."""

import os
from pathlib import Path

import pytest

from models.registry import REGISTRY
from tests import ROOT
from tests.scripts import python

#: A Python that finds no installed package.
BARE = ["-S", "-E"]
STDLIB = Path(os.__file__).parent
RUNPY = """
import runpy, sys
sys.argv[1:] = ["--help"]
runpy.run_path("profile.py", run_name="__main__")
"""
OLD = """
import runpy, sys
sys.version_info = (3, 9, 18, "final", 0)
sys.path.insert(0, {root!r})
sys.argv = [{program!r}]
runpy.run_path({root!r} + "/" + {program!r}, run_name="__main__")
"""


def start(*words, cwd=ROOT, **env):
    """Run Python in a folder, with the import path that a user would have."""
    return python(*words, cwd=cwd, env={"PYTHONPATH": "", "PYTHONSAFEPATH": "", **env})


def test_each_way_to_start_lists_the_same_networks_and_shows_its_name(tmp_path):
    # A package of the user with the same name as ours is not imported instead.
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("REGISTRY = {}\n")
    module = ["-m", "chainer_profile"]
    for words in ([ROOT / "profile.py"], module, [ROOT / "chainer_profile" / "__main__.py"]):
        result = start(*words, "--list-models", cwd=tmp_path, PYTHONPATH=str(ROOT))
        assert result.stderr == ""
        _, _, *rows = result.stdout.splitlines()
        assert [row.split()[0] for row in rows] == list(REGISTRY)
    installed = [
        "-c",
        "import sys; sys.argv[0] = '/somewhere/bin/chainer-profile'\n"
        "from chainer_profile.__main__ import main; sys.exit(main())",
    ]
    unknown = "error: unknown command 'comapre' (did you mean compare?)"
    for words, message in (
        ([ROOT / "profile.py", "comapre"], f"profile.py: {unknown}"),
        ([*module, "comapre"], f"python -m chainer_profile: {unknown}"),
        ([*installed, "train", "--epoch", "0"], "chainer-profile train: error: argument -e/--epo"),
    ):
        result = start(*words, cwd=tmp_path, PYTHONPATH=str(ROOT))
        assert result.returncode == 2
        assert result.stderr.startswith(message)


@pytest.mark.parametrize("program", ["profile.py", "train.py"])
def test_missing_packages_and_old_python_are_one_line_errors(program, tmp_path):
    result = start(*BARE, ROOT / program, cwd=tmp_path)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"{program}: error: the package ")
    assert result.stderr.endswith(" is not installed: python -m pip install -r requirements.txt\n")
    assert start(*BARE, ROOT / program, "--help", cwd=tmp_path).returncode == 0
    result = start("-c", OLD.format(root=str(ROOT), program=program), cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr == (
        f"{program}: error: chainer-profile needs Python 3.10 or newer; this is Python 3.9.18\n"
    )


def test_profile_module_of_the_standard_library_still_works(tmp_path):
    """``profile.py`` hides a module of the standard library."""
    script = tmp_path / "script.py"
    script.write_text("print('it ran')\n")
    ours = "from importlib.machinery import PathFinder as p; print(p.find_spec('profile').origin)"
    usage = "usage: profile.py "
    for words, begins, holds in (
        (["-c", ours], str(ROOT / "profile.py"), ""),  # ours is found first, and gives way
        (
            ["-c", "import profile; print(profile.__file__); profile.run('2 + 3')"],
            *(str(STDLIB / "profile.py"), "function calls in"),
        ),
        (["-m", "cProfile", "-s", "tottime", script], "it ran", "Ordered by: internal time"),
        # Our program runs, too.
        (["-c", RUNPY], usage, "layer by layer"),
        (["-m", "profile", "--help"], usage, "layer by layer"),
    ):
        result = start(*words)
        assert (result.returncode, result.stderr) == (0, ""), words
        assert result.stdout.startswith(begins), words
        assert holds in result.stdout, words
