"""Finds a command and runs it; turns errors and signals into messages and exit codes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.parsing import with_nearest
from chainer_profile.basics.words import COMMAND, PROG, REQUIREMENTS, TRAIN_PROG, TYPED
from chainer_profile.cli import COMMANDS, INSTEAD, PROFILE
from chainer_profile.integrations.numpy_changes import OldNames


class Interrupted(BaseException):
    """A signal ended the program. ``hint`` is the end of the message, with advice for the user."""

    hint = ""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Interrupts:
    """Handles SIGINT and SIGTERM within its ``with`` block, and then restores the handlers.

    ``signum`` is the signal that ended the trials; 0 if there was none.
    """

    def __init__(self) -> None:
        self.signum = 0
        self._measuring = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(self, *raised: object) -> None:
        for signum, handler in self._before.items():
            # None is a handler set by C, which Python cannot set again.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def with_previous_handlers(self) -> Iterator[None]:
        """Restore the previous handlers within the context."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        # After the first signal the running trial still ends; a second signal ends it at once.
        if not self._measuring or self.signum:
            raise Interrupted(signum)
        self.signum = signum

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Let a first signal set :meth:`reason` instead of raising, within the context."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def reason(self) -> str:
        """The reason to stop the trials; empty if there is none."""
        return f"interrupted by {signal.Signals(self.signum).name}" if self.signum else ""

    @property
    def code(self) -> int:
        """The exit code after the trials, as a shell would give it."""
        return 128 + self.signum if self.signum else 0


@dataclass(frozen=True)
class Context:
    """Everything that a command needs, except its options."""

    argv: list[str]  #: The arguments after the command's word.
    command: str  #: The whole command line, for recordings.
    interrupts: Interrupts  #: Handles signals: after the first, trials end and are saved.
    #: Networks by the names that ``--model`` takes.
    registry: Mapping[str, Any] = field(default_factory=dict)


def main(argv: list[str], registry: Mapping[str, Any]) -> int:
    """Run a command; returns the exit code."""

    def command(interrupts: Interrupts) -> int:
        # Not at the top, so that its errors become messages.
        from chainer_profile.cli.parsers import parser_of

        word, words = _split(argv)
        args = parser_of(word).parse_args(words)
        line = shlex.join([*COMMAND, *argv])
        context = Context(words, line, interrupts, registry)
        instead = (module for option, module in INSTEAD.items() if getattr(args, option, None))
        module = import_module(f"{__package__}.{next(instead, word)}")
        if "model" not in args:
            return int(module.run(args, context))
        with _old_names(quiet=getattr(args, "quiet", False)):
            return int(module.run(args, context))

    return run_command(TRAIN_PROG if argv[:1] == ["train"] else PROG, argv, command)


@contextmanager
def _old_names(quiet: bool) -> Iterator[None]:
    """Restore names that NumPy has removed, within the context; print which the network used."""
    with OldNames() as names:
        try:
            yield
        finally:
            if names.note and not quiet:
                print(f"{PROG}: {names.note}", file=sys.stderr)


def _split(argv: list[str]) -> tuple[str, list[str]]:
    """Split arguments into the command and its own arguments; without a word it is ``profile``."""
    first = argv[0] if argv else "-"
    if first in COMMANDS:
        return first, argv[1:]
    if not first.startswith("-"):
        if Path(first).is_file():
            raise UsageError(f"to profile a program: {TYPED} run {shlex.join(argv)}")
        raise UsageError(
            f"unknown command {with_nearest(first, COMMANDS)}; {TYPED} --help lists the commands"
        )
    return PROFILE, argv


def run_command(prog: str, argv: list[str], command: Callable[[Interrupts], int]) -> int:
    """Run a command; returns the exit code. An error is one line, with --debug a traceback too."""
    _open_streams()
    with Interrupts() as interrupts:
        try:
            code = command(interrupts)
            with printing():  # Python's own flush at exit would print a traceback
                sys.stdout.flush()
            return code
        except Interrupted as interrupt:
            print(f"{prog}: interrupted{interrupt.hint}", file=sys.stderr)
            return 128 + interrupt.signum
        except BrokenPipeError:
            # The reader of the output is gone (`| head`).
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (ProfileError, ModuleNotFoundError, OSError) as error:
            message = _message(error)
            if "--debug" in argv:
                traceback.print_exc()
            print(f"{prog}: error: {message}", file=sys.stderr)
            return error.exit_code if isinstance(error, ProfileError) else 1


def _message(error: Exception) -> str:
    """Describe an error in one line; raise it again if a module of this package is missing."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in ("", "chainer_profile"):
            raise error
        return f"the package {package} is not installed: python -m pip install {REQUIREMENTS}"
    if isinstance(error, OSError):  # from a file, and handled nowhere else
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or one_line(error)}"
    return str(error)


def _open_streams() -> None:
    """Open the null device for closed standard streams (``>&-``), so no file gets their number."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115


@contextmanager
def printing() -> Iterator[None]:
    """Turn errors of writing to the standard output into ProfileErrors, except a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ProfileError(f"standard output cannot be written ({error.strerror})") from error
