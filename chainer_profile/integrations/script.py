"""Runs a program as Python itself would, and watches it meanwhile."""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import linecache
import os
import pkgutil
import runpy
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from threading import get_ident
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.began import BEGAN_NS, process_age_ns
from chainer_profile.basics.errors import UsageError, one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import PROG
from chainer_profile.compat import install_in_children
from chainer_profile.integrations.isolated import Start, say
from chainer_profile.integrations.numpy_changes import advice
from chainer_profile.integrations.own_modules import give_way, put_back
from chainer_profile.integrations.script_report import REPORTING, Ended
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.budget import (
    BENEATH,
    IMPORTS,
    PROFILER,
    RUNNING,
    SAVING,
    START,
    Budget,
    Looked,
)

if TYPE_CHECKING:
    from chainer_profile.integrations.looks import Looks
    from chainer_profile.runs.wanted import Wanted

#: The budget of a program that runs is written this often, for the case that it is killed.
_SAVED_EVERY_NS = 10_000_000_000
#: What the profiler does before a program begins.
BEGIN = "importing itself"
_PACKAGE = __name__.partition(".")[0]


#: What names a program: its file, its module (``python -m``), or its own text (``python -c``).
FILE, MODULE, TEXT = "file", "module", "text"


@dataclass(frozen=True)
class Script:
    """A program to run.

    Attributes:
        name: Path of a file, a folder or an archive, or ``-`` for the standard input; or the name
            of a module, or the program's own text.
        args: Its arguments.
        kind: Which of these the name is.
    """

    name: str
    args: tuple[str, ...] = ()
    kind: str = FILE

    @property
    def stem(self) -> str:
        """Its name for a folder: one name, which can be printed."""
        path = Path(self.name)
        if self.kind == TEXT or self.name == "-":
            name = "text" if self.kind == TEXT else "stdin"
        elif self.kind == MODULE:
            name = self.name.replace(".", "-")
        elif path.name.strip("."):
            name = path.stem
        else:  # ``.`` and ``..`` have a name elsewhere
            name = Path(os.path.realpath(path)).name
        signs = (c if c.isprintable() and c not in "/\\" else "_" for c in name)
        return "".join(signs).strip(". ") or "program"

    @property
    def words(self) -> tuple[str, ...]:
        """How it was called."""
        option = {FILE: (), MODULE: ("-m",), TEXT: ("-c",)}[self.kind]
        return (*option, self.name, *self.args)

    def prepare(self) -> Callable[[], None]:
        """What runs it, once ``sys.argv`` and ``sys.path`` are as the program expects them.

        Raises:
            UsageError: There is no such file.
        """
        sys.argv[:] = ["-c" if self.kind == TEXT else self.name, *self.args]
        if self.kind == MODULE:
            sys.path[0] = os.getcwd()
            return lambda: _run_module(self.name, True)
        if self.kind == TEXT:
            sys.path[0] = ""
            return lambda: _run_text(self.name)
        if self.name == "-":
            sys.path[0] = ""
            content = sys.stdin.buffer.read()
            return lambda: _run_file(content, "<stdin>", BuiltinImporter)
        path = _absolute(self.name)
        if pkgutil.get_importer(path) is not None:  # a folder or an archive
            sys.path[0] = path
            return lambda: _run_module("__main__", False)
        content = self._read(path)
        compiled = content.startswith(MAGIC_NUMBER)
        loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", path)
        sys.path[0] = os.path.dirname(os.path.realpath(path))
        return lambda: _run_file(content, path, loader)

    def _read(self, path: str) -> bytes:
        try:
            with io.open_code(path) as file:
                content = file.read()
        except OSError as error:
            raise UsageError(f"{self.name}: cannot be read ({error.strerror})") from None
        if path.endswith(".pyc") and not content.startswith(MAGIC_NUMBER):
            raise UsageError(f"{self.name}: is not compiled by this Python; run its source")
        return content


def _absolute(name: str) -> str:
    """The path as Python has it: whole, with each ``..`` left to the links before it."""
    if name in ("", ".") and sys.version_info >= (3, 11):
        return os.getcwd()
    return name if os.path.isabs(name) else os.path.join(os.getcwd(), name)


def _main(**names: object) -> dict[str, Any]:
    """The names of a new module, which stays what ``__main__`` is until the end."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    vars(module).update(__builtins__=builtins, __loader__=BuiltinImporter)
    vars(module).update(names)
    return vars(module)


def _run_module(name: str, alter_argv: bool) -> None:
    _main()
    as_python: Any = runpy
    as_python._run_module_as_main(name, alter_argv)  # what Python itself calls


def _run_text(text: str) -> None:
    names = _main()
    if sys.version_info >= (3, 13):  # its tracebacks show the lines
        linecache.cache["<string>"] = (len(text), None, text.splitlines(True), "<string>")
    exec(compile(text, "<string>", "exec", dont_inherit=True), names)


def _run_file(content: bytes, path: str, loader: object) -> None:
    names = _main(__file__=path, __loader__=loader, __cached__=None)
    if isinstance(loader, SourcelessFileLoader):
        as_python: Any = pkgutil
        code = as_python.read_code(io.BytesIO(content))
    else:
        code = compile(content, path, "exec", dont_inherit=True)
    exec(code, names)


@dataclass
class Outcome:
    """How a program ended.

    Attributes:
        error: What ended it; None where its last line did.
    """

    error: BaseException | None = None

    def __str__(self) -> str:
        if isinstance(self.error, SystemExit):
            return f"exit code {self.exit_code}"
        if isinstance(self.error, KeyboardInterrupt):
            return "interrupted"
        return "complete" if self.error is None else one_line(self.error)

    @property
    def exit_code(self) -> int:
        """The exit code that Python would give it."""
        if not isinstance(self.error, SystemExit):
            return int(self.error is not None)
        code = self.error.code
        return code if isinstance(code, int) else int(code is not None)

    def tell(self) -> None:
        """Say what Python would say."""
        error = self.error
        if isinstance(error, SystemExit):
            if not isinstance(error.code, int | None):
                _say(error.code)
        elif error is not None:
            self._show(error)

    def _show(self, error: BaseException) -> None:
        _as_python_shows(error)
        try:
            sys.excepthook(type(error), error, error.__traceback__)
            return
        except SystemExit as left:
            self.error = left
        except BaseException as failed:
            _as_python_shows(failed)
            _say("Error in sys.excepthook:")
            sys.__excepthook__(type(failed), failed, failed.__traceback__)
            _say("\nOriginal exception was:")
            sys.__excepthook__(type(error), error, error.__traceback__)
            return
        self.tell()

    def explain(self) -> None:
        """Say what NumPy changed and what to write, where that ended the program."""
        with suppress(Exception):  # an exception of the program's may have no text
            said = advice(self.error)
            if said:
                _say(f"{PROG}: {said}")

    def leave(self) -> int:
        """The exit code; an interrupt is raised again, so that Python ends in its own way."""
        if type(self.error) is KeyboardInterrupt:
            sys.excepthook = lambda *_: None  # it is told already
            raise KeyboardInterrupt
        return self.exit_code


def _say(what: object) -> None:
    """A line on the standard error, as Python writes it: whether or not ``sys.stderr`` is there."""
    with suppress(Exception):
        if sys.stderr is None:
            os.write(2, f"{what}\n".encode(errors="backslashreplace"))
        else:
            sys.stderr.write(f"{what}\n")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def run(script: Script) -> Outcome:
    """Run a program, and give how it ended; what Python would say of that is said."""
    install_in_children()
    program = script.prepare()
    give_way(sys.path[0])
    outcome = Outcome()
    with _closed_streams():
        try:
            with _tuples_given_to_exit():
                program()
        except BaseException as error:
            outcome.error = error
        outcome.tell()
        _flush()
    return outcome


@contextmanager
def _closed_streams() -> Iterator[None]:
    """Within this, streams that were closed when Python started are None, as Python has them."""
    ours = {
        name: getattr(sys, name)
        for name in ("stdin", "stdout", "stderr")
        if getattr(sys, f"__{name}__") is None
    }
    for name in ours:
        setattr(sys, name, None)
    try:
        yield
    finally:
        for name, stream in ours.items():
            if getattr(sys, name) is None:
                setattr(sys, name, stream)


@contextmanager
def _tuples_given_to_exit() -> Iterator[None]:
    """Within this, an uncaught ``sys.exit((3,))`` has the code ``(3,)``.

    Before 3.12 Python sees the tuple, but whoever catches the exception sees the code 3.
    """
    last: object = None

    def noting(leave: Callable[[object], Any]) -> Callable[..., Any]:
        @functools.wraps(leave)
        def exit(status: object = None, /) -> Any:
            nonlocal last
            last = status
            return leave(status)

        return exit

    with Replacements() as replacements:
        if sys.version_info < (3, 12):
            replacements.wrap(sys, "exit", noting)
        try:
            yield
        except SystemExit as error:
            if error.args is last:
                error.code = last  # type: ignore[assignment]
            raise


def _as_python_shows(error: BaseException) -> None:
    """An exception, and those in and before it, without the frames of ours in between."""
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = _of_program(one.__traceback__)
            left += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def _of_program(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    ours = False
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        # Our context managers are entered and left by the standard library's code.
        ours = name.partition(".")[0] == _PACKAGE or (ours and name == "contextlib")
        if not ours:
            frames.append((traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    for frame, at, line in reversed(frames):
        traceback = TracebackType(traceback, frame, at, line)
    return traceback


@contextmanager
def counted_imports(accounts: Accounts) -> Iterator[None]:
    """Within this, the time of imports has accounts of its own, by package."""
    thread, process = get_ident(), os.getpid()

    def counting(find_and_load: Any) -> Any:
        def find_and_load_in_account(name: str, import_: Any) -> Any:
            if accounts.part == PROFILER or get_ident() != thread or os.getpid() != process:
                return find_and_load(name, import_)
            package = name.partition(".")[0]
            part, around = accounts.account
            if part == IMPORTS:  # of the package whose import is open
                outer = around.partition(BENEATH)[0]
                named = outer if outer == package else outer + BENEATH + package
            else:
                named = package
            accounts.open((PROFILER, BEGIN) if package == _PACKAGE else (IMPORTS, named))
            try:
                return find_and_load(name, import_)
            finally:
                accounts.close()

        # By this name Python leaves it out of the tracebacks of imports that fail.
        code = find_and_load_in_account.__code__
        find_and_load_in_account.__code__ = code.replace(
            co_filename="<frozen importlib._bootstrap>"
        )
        return find_and_load_in_account

    with Replacements() as replacements:
        bootstrap: Any = importlib._bootstrap
        replacements.wrap(bootstrap, "_find_and_load", counting)
        yield


class ScriptRun:
    """A program that is watched: its budget, and the layers of its trials, in a run's folder.

    ``train`` trials have the folder itself, others folders in it by their names; those that are
    most of the time where none trains.

    Whatever the program leaves behind, what was measured is saved and the exit code is its own:
    all that saves is imported before it, and reports are made by another interpreter.

    Args:
        script: The program.
        out: The folder that the user named, if any.
        default: The default folder.
        force: Whether a named folder that holds a run may be used.
        command: The command line.
        layers: Measure trials by layer.
        memory: Make the memory pass.
        samples: Look at the main thread, to tell where its time goes beside Chainer.
    """

    def __init__(
        self,
        script: Script,
        out: Path | None,
        default: Path,
        *,
        force: bool = False,
        command: str = "",
        layers: bool = True,
        memory: bool = True,
        samples: bool = True,
    ) -> None:
        self._script, self._command = script, command
        self._samples = samples
        self._looks: Looks | None = None
        self._out, self._default, self._force = out, default, force
        self._layers, self._memory = layers, memory
        self._process = os.getpid()
        self._rank = _launched_rank()
        self._start = Start()
        self._started = _now()
        began_ns = time.perf_counter_ns()
        self._accounts = Accounts(time.perf_counter_ns, began_ns)
        self._accounts.add((START, ""), process_age_ns())
        self._accounts.add((PROFILER, BEGIN), began_ns - BEGAN_NS)
        # When the budget is written the next time.
        self._due_ns = 0

    def __enter__(self) -> ScriptRun:
        with counted_imports(self._accounts):
            # Before what of ours imports NumPy: it is an import of a program that uses Chainer.
            import chainer  # noqa: F401

            with self._accounts.within(PROFILER, BEGIN, count=0):
                from chainer_profile.integrations.looks import Looks
                from chainer_profile.integrations.program import Program
                from chainer_profile.integrations.results import Results
        # Looking takes time of a core that another rank may need: it would be told as a straggler.
        if self._samples and self._rank is None:
            self._looks = Looks()
        self._results = Results(self._out, self._default, self._force, self._rank)
        self._program = Program(
            self._accounts,
            self._results.journal,
            command=self._command,
            warn=lambda name, problem: self._results.warn(f"{name}: {problem}"),
            saved=self._save_now_and_then,
            layers=self._layers,
            memory=self._memory,
        )
        if self._out is not None:
            with self._accounts.within(PROFILER, BEGIN, count=0):
                self._results.take()  # what is wrong with it is said before the program runs
        return self

    def __exit__(self, *_: object) -> None:
        with self._excused():
            self._results.close()

    @property
    def forked(self) -> bool:
        """Whether this is a child that the program forked; the profile is its parent's."""
        return os.getpid() != self._process

    def run(self) -> Outcome:
        """Run the program; gives how it ended."""
        accounts = self._accounts
        with counted_imports(accounts), Replacements() as replacements:
            replacements.wrap(os, "_exit", self._saving_first)
            with accounts.within(PROFILER, BEGIN, count=0):
                self._program.__enter__()
                if self._looks is not None:
                    self._looks.start()
            try:
                outcome = run(self._script)
            except UsageError:  # there is no such program
                raise
            except BaseException as error:  # of what the program left in place of Python's own
                outcome = Outcome(error)
            with accounts.within(PROFILER, SAVING, count=0), self._excused():
                self._program.__exit__(None, None, None)
        return outcome

    def finish(self, outcome: Outcome, wanted: Wanted, quiet: bool) -> None:
        """Save what was measured, then make the reports and say where the time went.

        Args:
            outcome: How the program ended.
            wanted: The reports.
            quiet: Say nothing.
        """
        if not self._program.called_chainer:
            if not quiet:
                say(f"{PROG}: the program called nothing of Chainer's")
            return
        ended = _now()
        with self._excused():
            with self._accounts.within(PROFILER, SAVING, count=0):
                saved = self._results.save(self._program.watched)
                looked = self._looked()
            budget = replace(self._budget(str(outcome), ended), looked=looked)
            self._results.save_budget(budget)
            self._report(budget, saved, wanted, quiet)

    def _report(self, budget: Budget, saved: list[Path], wanted: Wanted, quiet: bool) -> None:
        quiet = quiet or bool(self._rank)  # of several ranks the first one tells
        main = self._results.main
        if quiet and not (saved and wanted.any):
            return
        ended = Ended(
            budget,
            time.perf_counter_ns(),
            None if main is None else str(main),
            tuple(map(str, saved)),
            tuple(self._results.problems),
            wanted.formats,
            wanted.usual,
            quiet,
            self._rank == 0,
        )
        failure = self._start.run(REPORTING, asdict(ended))
        if failure:
            say(f"{PROG}: the reports are not made ({failure}): {self._kept}")

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """What goes wrong behind the program is a line; it has the limits of the start for it."""
        try:
            with self._start.again(), put_back():
                yield
        except BaseException as error:
            if not self.forked:
                why = "interrupted" if isinstance(error, KeyboardInterrupt) else one_line(error)
                say(f"{PROG}: {why}: {self._kept}")

    @property
    def _kept(self) -> str:
        main = self._results.main
        kept = "the measurements are kept"
        return kept if main is None else f"{kept} in {self._start.relative(main)}"

    def _budget(self, outcome: str, ended: str) -> Budget:
        spent = self._accounts.spent()
        words = shlex.join(self._script.words)
        wall_ns = sum(one.ns for one in spent)
        untimed = self._program.untimed
        return Budget(words, self._started, ended, outcome, wall_ns, spent, untimed)

    def _looked(self) -> tuple[Looked, ...]:
        """Where the main thread was seen beside Chainer."""
        if self._looks is None:
            return ()
        own_ns = sum(one.ns for one in self._accounts.spent() if one.part not in (PROFILER, START))
        found = self._looks.end(own_ns)
        if self._looks.problem:
            self._results.warn(f"functions beside Chainer are not told: {self._looks.problem}")
        return found

    def _save_now_and_then(self, outcome: str = RUNNING) -> None:
        """Write the budget so far, for the case that the program is killed."""
        if outcome == RUNNING and time.perf_counter_ns() < self._due_ns:
            return
        with self._accounts.within(PROFILER, SAVING, count=0), suppress(Exception):
            self._results.save_budget(self._budget(outcome, _now()))
        self._due_ns = time.perf_counter_ns() + _SAVED_EVERY_NS

    def _saving_first(self, leave: Any) -> Any:
        """``os._exit``, behind which nothing of ours runs any more."""

        @functools.wraps(leave)
        def leave_saved(status: int) -> None:
            if self._program.called_chainer and not self.forked:
                with suppress(BaseException):
                    self._save_now_and_then(str(Outcome(SystemExit(status))))
            leave(status)

        return leave_saved


def _launched_rank() -> int | None:
    """Rank of the process, by what MPI's launchers tell it; None where it is the only one."""
    for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        number, count = (os.environ.get(name, "") for name in (rank, size))
        if number.isdecimal() and count.isdecimal() and int(count) > 1:
            return int(number)
    return None


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
