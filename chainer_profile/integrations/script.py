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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER
from math import inf
from pathlib import Path
from threading import get_ident
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.began import BEGAN_NS, process_age_ns
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import PROG
from chainer_profile.compat import install_in_children
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.budget import (
    BUDGET,
    IMPORTS,
    PROFILER,
    RUNNING,
    START,
    Budget,
    write_json,
)
from chainer_profile.runs.folder import RunFolder, take_folder
from chainer_profile.runs.written import write_files

if TYPE_CHECKING:
    from chainer_profile.integrations.program import Program, Watched
    from chainer_profile.record.journal import Journal
    from chainer_profile.record.recording import Recording

#: The budget of a program that runs is written this often, for the case that it is killed.
_SAVED_EVERY_NS = 10_000_000_000
#: The kind of trials whose folder is that of the whole program.
MAIN = "train"
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
        from chainer_profile.integrations.numpy_changes import advice

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
    program = script.prepare()
    install_in_children()
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
            accounts.open(*((PROFILER, BEGIN) if package == _PACKAGE else (IMPORTS, package)))
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

    Args:
        script: The program.
        out: The folder that the user named, if any.
        default: The default folder.
        force: Whether a named folder that holds a run may be used.
        command: The command line.
        layers: Measure trials by layer.
        memory: Make the memory pass.

    Attributes:
        budget: Where the time went, once it has run.
        watched: The kinds of its trials.
        problems: What went wrong with the profile.
        rank: Which of several ranks this process is; None where it is the only one.
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
    ) -> None:
        self.budget: Budget | None = None
        self.watched: list[Watched] = []
        self.problems: list[str] = []
        self._script, self._force, self._command = script, force, command
        self._process = os.getpid()
        # The program may change its directory.
        self._out = None if out is None else out.absolute()
        self._default = default.absolute()
        self._program: Program | None = None
        self._layers, self._memory = layers, memory
        self._folders: dict[str, RunFolder] = {}
        self._files = ExitStack()
        self.rank = _launched_rank()
        self._started = _now()
        self._age_ns = process_age_ns()
        self._saved_ns = time.perf_counter_ns()
        self._accounts = Accounts(time.perf_counter_ns, self._saved_ns)
        self._accounts.add((START, ""), self._age_ns)
        self._accounts.add((PROFILER, BEGIN), self._saved_ns - BEGAN_NS)

    def __enter__(self) -> ScriptRun:
        with counted_imports(self._accounts):
            # Before what of ours imports NumPy: it is an import of a program that uses Chainer.
            import chainer  # noqa: F401
        if self._out is not None:
            with self._accounts.within(PROFILER, BEGIN, count=0):
                self._take(MAIN)  # what is wrong with it is said before the program runs
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def forked(self) -> bool:
        """Whether this is a child that the program forked; the profile is its parent's."""
        return os.getpid() != self._process

    @property
    def folders(self) -> list[Path]:
        """Where the results are, if there are any; the main folder first."""
        return [folder.path for folder in self._folders.values()]

    def run(self) -> Outcome:
        """Run the program; gives how it ended."""
        accounts = self._accounts
        with counted_imports(accounts):
            accounts.open(PROFILER, BEGIN)
            from chainer_profile.integrations.program import FOLDING, Program

            program = self._program = Program(
                accounts,
                self._journal,
                command=self._command,
                warn=lambda name, problem: self.problems.append(f"{name}: {problem}"),
                saved=self._save_now_and_then,
                layers=self._layers,
                memory=self._memory,
            )
            program.__enter__()
            accounts.close(count=0)
            outcome = run(self._script)
            accounts.open(PROFILER, FOLDING)
            program.__exit__(None, None, None)
            accounts.close(count=0)
        self.watched = program.watched
        if program.called_chainer:
            self.budget = self._budget(str(outcome))
        return outcome

    def _take(self, name: str) -> RunFolder:
        """The folder of a kind of trials; the one of all comes first."""
        if name not in self._folders:
            if name == MAIN:
                take = take_folder(self._out, self._default, self._force, self.rank)
                self._folders[name] = self._files.enter_context(take)
            else:
                self._folders[name] = self._take_below(self._take(MAIN).path / name)
        return self._folders[name]

    def _take_below(self, place: Path) -> RunFolder:
        """A folder in that of all; the next free one where files of the user's are in the way."""
        try:
            return self._files.enter_context(take_folder(place, place, self._force))
        except UsageError:
            return self._files.enter_context(take_folder(None, place, False))

    def _journal(self, name: str) -> Journal:
        from chainer_profile.record.journal import Journal

        try:
            return Journal(self._take(name).journal)
        except ProfileError as error:
            self.problems.append(str(error))
            return Journal()

    def _budget(self, outcome: str) -> Budget:
        spent = self._accounts.spent()
        words = shlex.join(self._script.words)
        wall_ns = sum(one.ns for one in spent)
        untimed = self._program.untimed if self._program else {}
        return Budget(words, self._started, _now(), outcome, wall_ns, spent, untimed)

    def _save_now_and_then(self) -> None:
        """Write the budget so far, for the case that the program is killed."""
        now_ns = time.perf_counter_ns()
        if now_ns - self._saved_ns > _SAVED_EVERY_NS and MAIN in self._folders:
            self._saved_ns = now_ns
            self._save_budget(self._budget(RUNNING))

    def _save_budget(self, budget: Budget) -> None:
        try:
            write_files(self._take(MAIN).path, {BUDGET: write_json(budget).encode()})
        except ProfileError as error:
            self.problems.append(str(error))

    def save(self) -> list[Path]:
        """Write the budget and the recordings; gives the folders that hold one, the main first."""
        if self.budget is None:
            return []
        found = {one.name: one for one in self.watched if one.recording is not None}
        if found and MAIN not in found:
            most = max(found.values(), key=lambda one: one.own_ns)
            found[MAIN] = found.pop(most.name)
        saved = []
        for name in sorted(found, key=lambda name: (name != MAIN, name)):
            recording = found[name].recording
            if recording is None or not recording.n_trials:
                continue
            try:
                folder = self._take(name)
                folder.save(self._limited(recording))
                saved.append(folder.path)
            except ProfileError as error:
                self.problems.append(str(error))
        self._save_budget(self.budget)
        return saved

    def _limited(self, recording: Recording) -> Recording:
        """The recording with the machine's limits, where they can be measured."""
        from chainer_profile.measure import machine
        from chainer_profile.record.recording import COMPLETE

        # Nobody waits for it behind an interrupt, and ranks would measure beside one another.
        hurried = self.rank is not None or self.budget is None or self.budget.outcome != COMPLETE
        try:
            return machine.with_limits(recording, 0 if hurried else inf)
        except Exception as error:
            self.problems.append(f"the machine's limits are left out: {one_line(error)}")
            return recording


def _launched_rank() -> int | None:
    """Rank of the process, by what MPI's launchers tell it; None where it is the only one."""
    for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        number, count = (os.environ.get(name, "") for name in (rank, size))
        if number.isdecimal() and count.isdecimal() and int(count) > 1:
            return int(number)
    return None


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
