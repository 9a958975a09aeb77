"""What every command does with an error, a signal, and a reader that goes away."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.words import REQUIREMENTS

if TYPE_CHECKING:
    from chainer_profile.networks.weights import WeightFormat
    from chainer_profile.report.document import Block


class Interrupted(BaseException):
    """A signal ended the program.

    Attributes:
        signum: The signal; the exit code is 128 + signum, as a shell would give it.
        hint: What the user can do now, to end a message with; or empty.
    """

    hint = ""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Interrupts:
    """Handles SIGINT and SIGTERM within its ``with``; then whoever did before does again.

    Attributes:
        signum: The signal that ended the trials; 0 if none did.
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
            # None is a handler that C set, which cannot be told to Python.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Within this, whoever handled signals before does so again."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        # The first signal waits for the end of the running trial; a second one does not.
        if not self._measuring or self.signum:
            raise Interrupted(signum)
        self.signum = signum

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Within this, a signal does not raise: :meth:`reason` tells of it."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def reason(self) -> str:
        """Why to stop the trials, or an empty text."""
        return f"interrupted by {signal.Signals(self.signum).name}" if self.signum else ""


#: Columns of what goes into a file or a pipe: all columns of tables fit; rich would take 80.
_WIDE = 160
#: Exit code of a gate that fails.
FAILED = 3
#: How to see what a first screen leaves out; names of files that are told.
FULL, _MOST_NAMES = "--full shows all", 4
#: How to see the rows that --limit leaves out.
ALL_ROWS = "--limit 0 shows all"


def run_command(prog: str, argv: list[str], command: Callable[[Interrupts], int]) -> int:
    """Run a command; returns the exit code. An error is one line, with --debug a traceback too."""
    _open_streams()
    with Interrupts() as interrupts:
        try:
            return command(interrupts)
        except ProfileError as error:
            if "--debug" in argv:
                traceback.print_exc()
            print(f"{prog}: error: {error}", file=sys.stderr)
            return error.exit_code
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in ("", "chainer_profile"):
                raise
            if "--debug" in argv:
                traceback.print_exc()
            said = f"the package {package} is not installed: python -m pip install {REQUIREMENTS}"
            print(f"{prog}: error: {said}", file=sys.stderr)
            return 1
        except Interrupted as interrupt:
            print(f"{prog}: interrupted{interrupt.hint}", file=sys.stderr)
            return 128 + interrupt.signum
        except BrokenPipeError:
            # The reader of our output went away (`| head`): nothing is left to say to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except OSError as error:  # of a file that nobody else answers for
            if "--debug" in argv:
                traceback.print_exc()
            where = f"{error.filename}: " if error.filename else ""
            print(f"{prog}: error: {where}{error.strerror or one_line(error)}", file=sys.stderr)
            return 1


def _open_streams() -> None:
    """Give closed standard streams (``>&-``) somewhere to go; else files get their numbers."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115


@dataclass(frozen=True)
class Context:
    """What a command is given beside its options.

    Attributes:
        argv: The arguments behind the command's word.
        interrupts: Handles signals: the first one ends the trials in good order.
        registry: The networks that ``--model`` knows by name.
        formats: Forms of weights that ``--weights`` reads beside Chainer's own.
    """

    argv: list[str]
    interrupts: Interrupts
    registry: Mapping[str, Any] = field(default_factory=dict)
    formats: Sequence[WeightFormat] = ()


@contextmanager
def printing() -> Iterator[None]:
    """Within this, a standard output that cannot be written is one clear line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ProfileError(f"standard output cannot be written ({error.strerror})") from error


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes into a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show(blocks: Iterable[Block], quiet: bool = False, *, hint: str = "") -> None:
    """Print a document on the standard output; in colour where that is a terminal."""
    from rich.console import Console

    from chainer_profile.report.writers import terminal

    if not quiet:
        console = Console(width=console_width())
        if hint:
            blocks = terminal.first_screen(blocks, console.width, hint)
        with printing():
            terminal.show(blocks, console)


def row_limit(args: argparse.Namespace) -> int | None:
    """Rows of the longest table: as ``--limit`` says, 0 being all; else few, or more by --full."""
    if args.limit is not None:
        return args.limit or None
    return 20 if args.full else 10


def first_screen(args: argparse.Namespace) -> str:
    """The hint of :func:`show`; nothing where options ask for what is longer."""
    asked = args.full or getattr(args, "limit", None) is not None or getattr(args, "all", False)
    return "" if asked else FULL


def written_text(folder: Path, names: Sequence[str]) -> str:
    """``Written to reports/net: report.html, report.md and 7 more files``."""
    first = sorted(names, key=lambda name: not name.endswith((".html", ".md", ".pdf")))
    shown = first if len(first) <= _MOST_NAMES + 1 else first[:_MOST_NAMES]
    more = len(first) - len(shown)
    others = f" and {more} more files" if more else ""
    return f"Written to {folder}: {', '.join(shown)}{others}"


def console_width() -> int | None:
    """The same for a console of rich: None where it is to find out by itself."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE
