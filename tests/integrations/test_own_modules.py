"""A program imports its own modules, which the profiler never imports."""

import sys

import pytest

from chainer_profile.record.budget import read_budget
from chainer_profile.runs.folder import load_run
from tests.scripts import python

pytestmark = pytest.mark.process

#: Packages that Chainer or the profiler import, and modules of the standard library, without a few
#: that this test needs.
NAMES = "PIL cycler dateutil filelock h5py matplotlib msgspec packaging pandas psutil rich six yaml"
NAMES = sys.stdlib_module_names.union(NAMES.split(), ["scipy", "threadpoolctl"])
NAMES -= {*sys.builtin_module_names, "__future__", "distutils", "runpy"}
#: Modules that `python -m` itself imports from the current folder.
PYTHON_MODULES = (
    "collections contextlib functools importlib keyword operator reprlib types warnings"
)
#: A module that only the program may import, and only before its end.
MODULE = """
import sys
assert getattr(sys.modules["__main__"], "running", False), __name__
own = True
"""
PROGRAM = """
import sys
running = True
for name in sorted(open("names").read().split()):
    print(name, hasattr(__import__(name), "own"))
if sys.argv[1:]:
    import chainer
    import chainer.links as L
    model = L.Classifier(L.Linear(4, 3))
    optimizer = chainer.optimizers.SGD().setup(model)
    x, t = model.xp.ones((5, 4), "f"), model.xp.zeros(5, "i")
    for i in range(16):
        optimizer.update(model, x, t)
running = False
sys.exit(3)
"""
#: The command as pip installs it.
COMMAND = "import re, sys\nfrom chainer_profile.__main__ import main\nsys.exit(main())\n"


@pytest.mark.parametrize("way", ["command", "module"])
def test_program_but_not_the_profiler_imports_its_modules(way, tmp_path):
    names = NAMES if way == "command" else NAMES - set(PYTHON_MODULES.split())
    for name in names:
        (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "names").write_text(" ".join(names))
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "chainer-profile").write_text(COMMAND)

    ours = ["bin/chainer-profile"] if way == "command" else ["-m", "chainer_profile"]
    arguments = ("--format", "page" if way == "command" else "none", "-o", "out")
    as_it_is = python("program.py", cwd=tmp_path)
    profiled = python(*ours, "run", *arguments, "program.py", "and train", cwd=tmp_path)
    assert "csv True\n" in as_it_is.stdout
    assert profiled.stdout == as_it_is.stdout
    assert profiled.returncode == as_it_is.returncode == 3
    assert "Written to out\n" in profiled.stderr
    assert read_budget(tmp_path / "out").outcome == "exit code 3"
    assert load_run(tmp_path / "out").n_trials
    assert (tmp_path / "out/report.html").exists() == (way == "command")
