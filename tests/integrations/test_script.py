"""Running a program as Python runs it: what it sees, what it says, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from chainer_profile.integrations.script import counted_imports
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.budget import IMPORTS, PROFILER, REST, Spent
from tests import HANGS_S
from tests.command import folder  # noqa: F401
from tests.conftest import FakeClock
from tests.scripts import run_in_child

#: Programs that call nothing of Chainer, by what they try.
SCRIPTS = {
    "what it sees": "'''What it does.'''\n"
    "import sys, beside, __main__\nprint(sys.argv, sys.path[0], beside.__file__)\n"
    "print(__name__, __file__, __doc__, __package__, __spec__, __cached__)\n"
    "print(vars(__main__) is globals(), type(__builtins__))\n"
    "def f(x: int): pass\nprint(f.__annotations__)\nprint(sys.stdin.read().upper())",
    "an encoding": "# -*- coding: latin-1 -*-\nprint(ascii('\xe4'))",
    "exit None": "raise SystemExit(None)",
    "exit 3": "import sys; sys.exit(3)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit in words": "import sys; print('before'); sys.exit('no data')",
    "raises": "def f():\n    g()\ndef g():\n    1 / 0\nprint('before')\nf()",
    "raises from": "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError from error",
    "raises while": "def f():\n    {}['a']\ntry:\n    f()\nexcept KeyError:\n    assert 0, 'b'",
    "imports what raises": "import broken",
    "imports what imports what is not there": "try:\n    import imports_none\n"
    "except ImportError as error:\n    raise ValueError(1) from error",
    "imports what is no Python": "try:\n    import damaged\nfinally:\n    print('after')",
    "imports a name that is not there": "from beside import nothing",
    "is no Python": "print(\n",
    "a hook of its own": "import sys\n"
    "sys.excepthook = lambda kind, error, where: print(error, where.tb_frame.f_code.co_name)\n"
    "raise ValueError(1)",
    "goes elsewhere": "import os; os.mkdir('a'); os.chdir('a'); print(os.listdir('../old'))\n1 / 0",
    "forks": "import os, sys\nif os.fork() == 0:\n    sys.exit(5)\nprint(os.wait()[1])",
    "is interrupted": "print('before', flush=True)\nraise KeyboardInterrupt",
    "gets SIGINT": "import os, signal\nprint('before')\nos.kill(os.getpid(), signal.SIGINT)",
    "gets SIGTERM": "import os\nprint('before', flush=True)\nos.kill(os.getpid(), 15)",
    "handles SIGTERM": "import os, signal\nsignal.signal(15, lambda *_: print('heard'))\n"
    "os.kill(os.getpid(), 15)\nprint('goes on')",
}
MODULES = {
    "beside.py": "",
    "broken.py": "def f():\n    raise RuntimeError('broken')\nf()",
    "imports_none.py": "import no_such_module",
    "damaged.py": "def f(:\n",
    "package/__init__.py": "print('package', __name__)",
    "package/__main__.py": "import sys\nfrom . import inner\nprint(__name__, __package__)\n"
    "print(sys.argv, __file__, __spec__.name, inner.__name__, sys.path[0])",
    "package/inner.py": "",
    "package/fails.py": "from . import inner\n1 / 0",
    "app/__main__.py": "import sys; print(__name__, sys.argv, sys.path[0]); import part; part.f()",
    "app/part.py": "def f():\n    raise ValueError('part')",
    "plain.py": "import sys; print(__name__, __file__ == sys.argv[0])",
}
WAYS = {
    "a module": ("-m", "plain", "a"),
    "a package": ("-m", "package", "-x", "1"),
    "a module that is not there": ("-m", "package.missing"),
    "a module that fails": ("-m", "package.fails"),
    "a folder": ("app", "--out", "x"),
}


def both_ways(*words: str) -> None:
    """Python and ``run`` say the same, and end in the same way."""
    Path("input").write_text("some\nlines\n")
    with open("input") as stdin:
        python = subprocess.run(
            [sys.executable, *words], stdin=stdin, capture_output=True, text=True, timeout=HANGS_S
        )
    with suppress(FileNotFoundError):
        Path("a").rmdir()  # made by the one, and to be made by the other
    code = run_in_child("-q", "-o", "run", *words, stdin="input", path=os.getcwd())
    assert Path("err").read_text() == python.stderr
    assert sorted(Path("out").read_text().split("\n")) == sorted(python.stdout.split("\n"))
    assert code == python.returncode


@pytest.fixture
def modules(tmp_path: Path) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_as_python_runs_it(name: str, modules: None) -> None:
    Path("old").mkdir()
    encoding = "latin-1" if name == "an encoding" else "utf-8"
    for module in MODULES:
        if "/" not in module:
            Path(module).rename(Path("old") / module)
    Path("old/script.py").write_text(SCRIPTS[name] + "\n", encoding)
    both_ways("old/script.py", "--out", "a b", "-m", "--", "-o")


@pytest.mark.parametrize("name", WAYS)
def test_modules_and_folders_as_python_runs_them(name: str, modules: None) -> None:
    both_ways(*WAYS[name])


#: Modules that take as long as they say.
TAKES = {
    "outer.py": "import timed; timed.advance(5); import inner.part; timed.advance(7)",
    "inner/__init__.py": "import timed; timed.advance(11)",
    "inner/part.py": "import timed; timed.advance(13)",
    "fails.py": "import timed; timed.advance(17); import no_such_module",
    "elsewhere.py": "import timed; timed.advance(19)",
}


@pytest.fixture
def timed(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClock]:
    for name, text in TAKES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = ModuleType("timed")
    vars(module)["advance"] = clock.advance
    monkeypatch.setitem(sys.modules, "timed", module)
    yield clock
    for name in ("outer", "inner", "inner.part", "fails", "elsewhere"):
        sys.modules.pop(name, None)


def test_imports_by_package(timed: FakeClock) -> None:
    accounts = Accounts(timed.now_ns, timed.time_ns)
    with counted_imports(accounts):
        import outer  # type: ignore[import-not-found]  # noqa: F401

        __import__("outer")  # there already
        timed.advance(2)
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            import fails  # type: ignore[import-not-found]  # noqa: F401
    __import__("elsewhere")  # not within any more
    times = {(one.part, one.name): one.ns for one in accounts.spent()}
    assert times == {
        (IMPORTS, "outer"): 5 + 7,
        (IMPORTS, "inner"): 11 + 13,
        (IMPORTS, "fails"): 17,
        (IMPORTS, "no_such_module"): 0,
        (REST, ""): 2 + 19,
    }


def test_imports_of_the_profiler_and_of_other_threads_are_no_program_s(timed: FakeClock) -> None:
    accounts = Accounts(timed.now_ns, timed.time_ns)
    with counted_imports(accounts):
        accounts.open(PROFILER, "importing itself")
        __import__("outer")
        accounts.close(count=0)
        thread = Thread(target=__import__, args=("elsewhere",))
        thread.start()
        thread.join()
    assert accounts.spent() == (
        Spent(REST, "", 19, 0),
        Spent(PROFILER, "importing itself", 5 + 7 + 11 + 13, 0),
    )
