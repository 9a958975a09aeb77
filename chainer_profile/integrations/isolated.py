"""A fresh interpreter, because the program may have changed anything in this one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from json import dumps
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from chainer_profile.compat import IMPORT_PACKAGE

_STDERR = 2
#: The code that the interpreter runs. Its own ``sys.path`` comes first, then the folders that
#: only this process has. Messages name this program by its ``argv``.
_MAIN = f"""
import importlib, json, sys
start = json.load(sys.stdin)
sys.argv[:], sys.orig_argv[:] = start["argv"], start["orig_argv"]
sys.path += [folder for folder in start["path"] if folder not in sys.path]
{IMPORT_PACKAGE}
importlib.import_module(start["module"]).main(start["job"])
"""


def say(line: str) -> None:
    """Print a line to the standard error, even if the program has replaced ``sys.stderr``."""
    with suppress(OSError):
        os.write(_STDERR, f"{line}\n".encode(errors="backslashreplace"))


class Start:
    """The folder, environment and module path with which this process started."""

    def __init__(self) -> None:
        self._executable = sys.executable
        self._folder = os.getcwd()
        self._environment = dict(os.environ)
        self._argv, self._orig_argv = sys.argv[:1], list(sys.orig_argv)
        # The first entry belongs to the program.
        self._path = [os.path.abspath(folder) for folder in sys.path[1:]]

    def relative(self, path: Path) -> str:
        """Make a path relative to the folder in which this process started."""
        return os.path.relpath(path, self._folder)

    @contextmanager
    def original_path(self) -> Iterator[None]:
        """Undo the program's changes of ``sys.path`` within the context."""
        path, sys.path = sys.path, list(self._path)
        try:
            yield
        finally:
            sys.path = path

    def run(self, module: str, job: Mapping[str, Any]) -> str:
        """Run a module's ``main(job)`` in a fresh interpreter.

        Returns the reason if it fails, and otherwise an empty text.
        """
        start = {
            "argv": self._argv,
            "orig_argv": self._orig_argv,
            "path": self._path,
            "module": module,
            "job": job,
        }
        try:
            os.fstat(_STDERR)
            stdout = _STDERR
        except OSError:  # the program closed it
            stdout = DEVNULL
        try:
            with Popen(
                [self._executable, "-I", "-c", _MAIN],
                stdin=PIPE,
                stdout=stdout,
                stderr=PIPE,
                env=self._environment,
                cwd=self._folder,
            ) as process:
                try:
                    _, errors = process.communicate(dumps(start).encode())
                except BaseException:
                    process.kill()
                    raise
        except OSError as error:
            return error.strerror or type(error).__name__
        return _failure(process.returncode, errors.decode(errors="replace"))


def _failure(code: int, errors: str) -> str:
    """Describe an exit code by a signal or the last line of the errors; empty for 0."""
    if not code:
        return ""
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    last = next((line for line in reversed(errors.split("\n")) if line.strip()), "")
    return " ".join(last.split()) or f"exit code {code}"
