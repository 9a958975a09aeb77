"""A program runs as under Python: same environment, same output, same end."""

import os
import shutil
import signal
import sys
import zipapp
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from chainer_profile.integrations.script_run import counted_imports
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.budget import IMPORTS, PROFILER, REST
from tests import ROOT
from tests.command import folder  # noqa: F401
from tests.scripts import files, python, run_in_child

pytestmark = pytest.mark.process

#: Programs that do not use Chainer.
SCRIPTS = {
    "what it sees": "'''What it does.'''\n"
    "import sys, beside, __main__\nprint(sys.argv, sys.path[0], beside.__file__)\n"
    "print(__name__, __file__, __doc__, __package__, __spec__)\n"
    "print(vars(__main__) is globals(), type(__builtins__), type(__loader__))\n"
    "print(sys.stdin.read().upper())",
    "exit in words": "import sys; print('before'); sys.exit('no data')",
    "raises from": "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError from error",
    "an excepthook": "import sys\n"
    "sys.excepthook = lambda kind, error, where: print(error, where.tb_frame.f_code.co_name)\n"
    "raise ValueError(1)",
    "changes folder": "import os; os.mkdir('a'); os.chdir('a'); print(os.listdir('../old'))\n1 / 0",
    "forks": "import os, sys\nif os.fork() == 0:\n    sys.exit(5)\nprint(os.wait()[1])",
    "waits in C": "import ctypes, os, signal, time\n"
    "c = ctypes.CDLL(None, use_errno=True)\n"
    "def timed(wait):\n"
    "    began = time.monotonic()\n"
    "    print(wait(), ctypes.get_errno(), time.monotonic() - began >= 0.1)\n"
    "timed(lambda: c.usleep(100_000))\n"
    "timed(lambda: c.poll(None, 0, 100))\n"
    "signal.signal(signal.SIGALRM, lambda *_: None)\n"
    "timed(lambda: signal.setitimer(signal.ITIMER_REAL, 0.1) and signal.pause())",
    "sees its threads and signals": "import os, signal, threading, warnings\n"
    "print(threading.active_count(), len(threading.enumerate()), signal.getsignal(signal.SIGURG))\n"
    "print(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}))\n"
    "os.kill(os.getpid(), signal.SIGUSR1)\n"  # pending: no other thread receives it
    "print(signal.sigwait({signal.SIGUSR1}))\n"
    "warnings.simplefilter('error')\n"  # Python 3.12 warns about threads in a process that forks
    "if os.fork() == 0:\n    os._exit(os.fork() and 3)\n"
    "print(os.wait()[1])",
    "is interrupted": "print('before', flush=True)\nraise KeyboardInterrupt",
    "handles SIGTERM": "import os, signal\nsignal.signal(15, lambda *_: print('handled'))\n"
    "os.kill(os.getpid(), 15)\nprint('continues')",
}
#: Prints what identifies a program.
IDENTITY = (
    "import sys, __main__\n"
    "print(ascii([sys.argv, sys.path[0], getattr(__main__, '__file__', None), __name__]))"
)
MODULES = {
    "package/__init__.py": "print('package', __name__)",
    "package/__main__.py": "import sys\nfrom . import inner\nprint(__name__, __package__)\n"
    "print(sys.argv, __file__, __spec__.name, inner.__name__, sys.path[0])",
    "package/inner.py": "",
    "package/fails.py": "from . import inner\n1 / 0",
    "app/__main__.py": "import sys; print(__name__, sys.argv, sys.path[0]); import part; part.f()",
    "app/part.py": "def f():\n    raise ValueError('part')",
}
INVOCATIONS = {
    "a package": ("-m", "package", "-x", "1"),
    "a module that fails": ("-m", "package.fails"),
    "a folder": ("app", "--out", "x"),
    "an archive": ("app.zip", "a"),
    "text": ("-c", f"{IDENTITY}\n1 / 0", "-x"),
    "the standard input": ("-", "-x"),
}
#: Programs with functions, threads and children that run at the end of the process.
ENDS = {
    "interrupted": "import atexit, multiprocessing, os, signal, threading\n"
    "def wait():\n    threading.main_thread().join()\n    print('the thread')\n"
    "atexit.register(print, 'at exit')\n"
    "threading.Thread(target=wait).start()\n"
    "context = multiprocessing.get_context('fork')\n"
    "context.Process(target=signal.pause, daemon=True).start()\n"
    "os.kill(os.getpid(), signal.SIGINT)\n",
    "__main__ at exit": "import atexit, multiprocessing, pickle, threading\n"
    "class Own: pass\n"
    "def double(x):\n    return 2 * x\n"
    "def later():\n"
    "    print(pickle.loads(pickle.dumps(Own())).__class__ is Own, __name__)\n"
    "if __name__ == '__main__':\n"
    "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
    "        print(pool.map(double, [1, 2]))\n"
    "    atexit.register(later)\n"
    "    wait = threading.main_thread().join\n"
    "    threading.Thread(target=lambda: (wait(), later())).start()\n",
}


def interruptible():
    # These tests may run in a background job of a shell, which ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run_python(arguments, stdin=os.devnull, before=()):
    """Run a program in a new process; return errors, sorted lines of output, and exit code."""
    with open(stdin) as file:
        done = python(*arguments, before=before, stdin=file, preexec_fn=interruptible)
    return done.stderr, sorted(done.stdout.split("\n")), done.returncode


RUN = ("-m", "chainer_profile", "run", "-q")
COMPAT_ONLY = (*RUN, "--compat-only")


def check_same(*arguments, stdin=""):
    """Check that ``run`` has the output and exit code of Python, also without measuring."""
    Path("input").write_text(stdin or "some\nlines\n")
    expected = run_python(arguments, "input")
    shutil.rmtree("a", ignore_errors=True)  # a folder that the program makes
    assert run_python([*COMPAT_ONLY, *arguments], "input") == expected
    shutil.rmtree("a", ignore_errors=True)
    code = run_in_child("-q", "-o", "run", *arguments, stdin="input", path=os.getcwd())
    out = sorted(Path("out").read_text().split("\n"))
    assert (Path("err").read_text(), out, code) == expected


def write(path, modules):
    for name, text in modules.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs_as_under_python(name, tmp_path):
    write(tmp_path / "old", {"script.py": SCRIPTS[name] + "\n", "beside.py": ""})
    check_same("old/script.py", "--out", "a b", "-m", "--", "-o")


@pytest.mark.parametrize("name", INVOCATIONS)
def test_modules_folders_and_text_run_as_under_python(name, tmp_path):
    write(tmp_path, MODULES)
    zipapp.create_archive("app", "app.zip")
    check_same(*INVOCATIONS[name], stdin=f"{IDENTITY}\n1 / 0" if "-" in INVOCATIONS[name] else "")


@pytest.mark.parametrize("name", ENDS)
def test_process_ends_as_under_python(name):
    Path("script.py").write_text(ENDS[name])
    expected = run_python(["script.py"])
    assert run_python([*COMPAT_ONLY, "script.py"]) == expected
    assert run_python([*RUN, "script.py"]) == expected


#: A console script of a package in site-packages, which follows the standard library in sys.path.
INSTALLED = """
import sys
sys.path.append({site!r})
from chainer_profile.__main__ import main
if __name__ == "__main__":
    sys.exit(main())
"""
SPAWNS = """
import multiprocessing
def double(x):
    return 2 * x
if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.apply_async(double, (3,)).get(timeout=60))
"""
CALLS = "import numpy, chainer.links as L; L.Linear(3, 2)(numpy.ones((2, 3), 'f'))"


def test_backports_of_standard_modules_in_site_packages_are_not_imported(tmp_path):
    """Reports, spawned children and sweeps import the standard library first."""
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "chainer_profile", site / "chainer_profile")
    shutil.copytree(ROOT / "models", site / "chainer_profile" / "models")  # like setup.py
    for name in ("typing", "dataclasses", "contextlib", "configparser"):
        (site / f"{name}.py").write_text("raise ImportError(f'the backport {__name__}')")
    programs = {"installed.py": INSTALLED.format(site=str(site)), "calls.py": CALLS}
    write(tmp_path, programs | {"spawns.py": SPAWNS})
    bare = {"PYTHONPATH": ""}
    run = ("installed.py", "run", "-q")
    done = python(*run, "-o", "here", "calls.py", env=bare)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"budget.json", "recording.npz", "report.md"} <= set(files())
    done = python(*run, "--compat-only", "spawns.py", env=bare)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "6\n6\n")
    sweeps = (str(site / "chainer_profile" / "__main__.py"), "--list-models")
    done = python(*sweeps, env=bare)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_to_a_full_disk_fails_as_under_python():
    Path("script.py").write_text("print('lost')")
    full = ["sh", "-c", 'exec "$@" >/dev/full', "sh"]
    expected = run_python(["script.py"], before=full)
    assert "No space left on device" in expected[0]
    assert run_python([*COMPAT_ONLY, "script.py"], before=full) == expected


#: Modules with imports that take known times on a fake clock.
TIMED_MODULES = {
    "outer.py": "import timed; timed.advance(5); import inner.part; timed.advance(7)",
    "inner/__init__.py": "import timed; timed.advance(11)",
    "inner/part.py": "import timed; timed.advance(13)",
    "fails.py": "import timed; timed.advance(17); import no_such_module",
    "elsewhere.py": "import timed; timed.advance(19)",
    "ours.py": "import timed; timed.advance(23)",
}


def test_import_times_are_counted_by_package(tmp_path, clock, monkeypatch):
    write(tmp_path, TIMED_MODULES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "timed", SimpleNamespace(advance=clock.advance))
    accounts = Accounts(clock.now_ns, clock.time_ns)
    with counted_imports(accounts):
        __import__("outer")
        __import__("outer")  # imported already
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            __import__("fails")
        # Imports of the profiler and in other threads do not count.
        with accounts.within(PROFILER, "importing itself"):
            __import__("ours")
        thread = Thread(target=__import__, args=("elsewhere",))
        thread.start()
        thread.join()
    assert {(each.part, each.name): each.ns for each in accounts.spent()} == {
        (IMPORTS, "outer"): 5 + 7,
        (IMPORTS, "outer > inner"): 11 + 13,
        (IMPORTS, "fails"): 17,
        (IMPORTS, "fails > no_such_module"): 0,
        (PROFILER, "importing itself"): 23,
        (REST, ""): 19,
    }
