"""Running programs: by Python, and by the command ``run`` in a process that has all imported."""

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


def python(*words, before=(), env=None, stdout=subprocess.PIPE, **more):
    """Output, errors and exit code of Python with these words, in a process of its own."""
    return subprocess.run(
        [*before, sys.executable, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | (env or {}),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=HANGS_S,
        **more,
    )


def files(place="here"):
    """Files below a folder, but for hidden ones."""
    return sorted(str(path.relative_to(place)) for path in Path(place).rglob("[!.]*.*"))


def run_in_child(*words, path="", stdin=os.devnull, within=nullcontext, apart=False, other_cpu=0.0):
    """Run the command in a process of its own, which has imported everything already.

    It makes the reports itself: another interpreter would have to import everything. What it
    says is in the files ``out`` and ``err``; the code is negative where a signal ended it.

    Args:
        *words: What follows ``run``.
        path: A folder of modules.
        stdin: A file.
        within: What it runs in.
        apart: Let another interpreter make the reports all the same.
        other_cpu: Cores that other programs keep busy.
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
            # Another test may have loaded it; the first iteration of its optimizers is not timed.
            for name in [item for item in sys.modules if item.partition(".")[0] == "chainermn"]:
                del sys.modules[name]
            # A shell's background job, such as these tests may be, passes over Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with (
                within(),
                patch.object(Start, "run", Start.run if apart else _run_here),
                patch.object(CpuWatch, "other_cpu", lambda self: other_cpu),
            ):
                code = main(["run", *words])
        except KeyboardInterrupt:  # as Python itself ends
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_here(start, module, job):
    """In place of :meth:`.Start.run`."""
    os.chdir(start._folder)
    with open(2, "w", closefd=False) as stderr, redirect_stdout(stderr):
        import_module(module).main(json.loads(json.dumps(job)))
    return ""
