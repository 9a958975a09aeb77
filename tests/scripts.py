"""Run programs with Python, or with the command ``run`` in a fork of this process."""

import gc
import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

from chainer_profile.__main__ import main
from chainer_profile.integrations.isolated import Start
from chainer_profile.measure.environment import CpuWatch
from tests import HANGS_S, ROOT


def python(*args, before=(), env=None, stdout=subprocess.PIPE, **more):
    """Run Python with these arguments in a new process."""
    return subprocess.run(
        [*before, sys.executable, *args],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | (env or {}),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=HANGS_S,
        **more,
    )


def files(folder="here"):
    """Paths of files below a folder, without hidden files."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("[!.]*.*"))


def run_in_child(*words, path="", stdin=os.devnull, within=nullcontext, apart=False, other_cpu=0.0):
    """Run the command ``run`` in a fork of this process, which is faster than a new interpreter.

    The fork also makes the reports. Its output is in the files ``out`` and ``err``.

    Args:
        *words: Arguments after ``run``.
        path: Folder with modules of the program.
        stdin: File for the standard input.
        within: Context manager in which the command runs.
        apart: Make the reports in another interpreter, as usual.
        other_cpu: Number of cores that other programs keep busy.

    Returns:
        The exit code, which is negative after a signal.
    """
    sys.stdout.flush()
    child = os.fork()
    if not child:  # pragma: no cover
        code = 70
        new = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
        files = ((0, stdin, os.O_RDONLY), (1, "out", new), (2, "err", new))
        # Garbage of other tests, such as an engine's threads, cannot be destroyed in a child.
        gc.freeze()
        try:
            for number, name, mode in files:
                os.dup2(os.open(name, mode), number)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            sys.path.insert(1, path)
            # Another test may have loaded ChainerMN, and then first iterations are not timed.
            for name in [item for item in sys.modules if item.partition(".")[0] == "chainermn"]:
                del sys.modules[name]
            # These tests may run in a background job of a shell, which ignores Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with (
                within(),
                patch.object(Start, "run", Start.run if apart else _run_here),
                patch.object(CpuWatch, "other_cpu", lambda self: other_cpu),
            ):
                code = main(["run", *words])
        except KeyboardInterrupt:  # end like Python itself
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_here(start, module, job):
    """Replacement for :meth:`.Start.run` that runs the module in this process."""
    os.chdir(start._folder)
    with open(2, "w", closefd=False) as stderr, redirect_stdout(stderr):
        import_module(module).main(json.loads(json.dumps(job)))
    return ""
