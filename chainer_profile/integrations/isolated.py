"""A fresh interpreter beside a program that may have changed all of this one."""

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

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_PACKAGE = __name__.partition(".")[0]
_STDERR = 2
#: What the interpreter runs. Its own modules come first, then ours, then what was only on our path.
#: What the program is called in messages depends on how this process was started.
_MAIN = f"""
import importlib, json, sys
given = json.load(sys.stdin)
sys.argv[:], sys.orig_argv[:] = given["argv"], given["orig_argv"]
sys.path.insert(0, given["home"])
import {_PACKAGE}
del sys.path[0]
sys.path += [place for place in given["path"] if place not in sys.path]
importlib.import_module(given["module"]).main(given["job"])
"""
#: What a program may lower for itself, and what comes after it needs.
_LIMITS = ("AS", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC")


def say(line: str) -> None:
    """Print a line on the standard error, whatever ``sys.stderr`` is now."""
    with suppress(OSError):
        os.write(_STDERR, f"{line}\n".encode(errors="backslashreplace"))


class Start:
    """How this process began: its folder, environment, limits, and where it finds modules."""

    def __init__(self) -> None:
        self._executable = sys.executable
        self._folder = os.getcwd()
        self._environment = dict(os.environ)
        self._argv, self._orig_argv = sys.argv[:1], list(sys.orig_argv)
        # The first one belongs to the program.
        self._path = [os.path.abspath(place) for place in sys.path[1:]]
        self._recursion_limit = sys.getrecursionlimit()
        self._limits = dict(_soft_limits())

    def relative(self, path: Path) -> str:
        """A path, from the folder of the start."""
        return os.path.relpath(path, self._folder)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Within this, limits and ``sys.path`` are those of the start, not those of the program."""
        recursion_limit, limits, path = sys.getrecursionlimit(), dict(_soft_limits()), sys.path
        sys.setrecursionlimit(max(recursion_limit, self._recursion_limit))
        _set_soft_limits(self._limits)
        sys.path = list(self._path)
        try:
            yield
        finally:
            sys.path = path
            _set_soft_limits(limits)
            with suppress(RecursionError):
                sys.setrecursionlimit(recursion_limit)

    def run(self, module: str, job: Mapping[str, Any]) -> str:
        """Run ``main(job)`` of a module in a fresh interpreter; gives why it failed, or nothing."""
        given = {
            "argv": self._argv,
            "orig_argv": self._orig_argv,
            "home": str(Path(__file__).parents[2]),
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
                    _, said = process.communicate(dumps(given).encode())
                except BaseException:
                    process.kill()
                    raise
        except OSError as error:
            return error.strerror or type(error).__name__
        return _failure(process.returncode, said.decode(errors="replace"))


def _failure(code: int, said: str) -> str:
    if not code:
        return ""
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    last = next((line for line in reversed(said.split("\n")) if line.strip()), "")
    return " ".join(last.split()) or f"exit code {code}"


def _soft_limits() -> Iterator[tuple[int, int]]:
    for name in _LIMITS:
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is not None:
            yield which, resource.getrlimit(which)[0]


def _set_soft_limits(limits: Mapping[int, int]) -> None:
    """Set limits, each as far as the hard limit lets it."""
    for which, wanted in limits.items():
        soft, hard = resource.getrlimit(which)
        for limit in (wanted, hard):
            with suppress(ValueError, OSError):
                if limit != soft:
                    resource.setrlimit(which, (limit, hard))
                break
