"""Runs a program as Python itself would, and watches it meanwhile."""

from __future__ import annotations

import builtins
import importlib
import io
import os
import runpy
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.machinery import SourceFileLoader
from math import inf
from pathlib import Path
from threading import get_ident
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.began import BEGAN_NS, process_age_ns
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.replacements import Replacements
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
    from chainer_profile.integrations.program import Watched
    from chainer_profile.record.journal import Journal
    from chainer_profile.record.recording import Recording

#: The budget of a program that runs is written this often, for the case that it is killed.
_SAVED_EVERY_NS = 10_000_000_000
#: The kind of trials whose folder is that of the whole program.
MAIN = "train"
#: What the profiler does before a program begins.
BEGIN = "importing itself"
_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Script:
    """A program to run.

    Attributes:
        name: Path of a file, or with ``module`` the name of a module.
        args: Its arguments.
        module: Whether it is a module, as of ``python -m``.
    """

    name: str
    args: tuple[str, ...] = ()
    module: bool = False

    @property
    def stem(self) -> str:
        """Its name for a folder."""
        return self.name.replace(".", "-") if self.module else Path(self.name).stem

    @property
    def words(self) -> tuple[str, ...]:
        """How it was called."""
        return (*(("-m",) if self.module else ()), self.name, *self.args)

    def prepare(self) -> Callable[[], None]:
        """What runs it, once ``sys.argv`` and ``sys.path`` are as the program expects them.

        Raises:
            UsageError: There is no such file.
        """
        sys.argv[:] = [self.name, *self.args]
        path = Path(os.path.abspath(self.name))
        if self.module or path.is_dir():
            sys.path[0] = os.getcwd() if self.module else str(path)
            return lambda: _run_module(self.name if self.module else "__main__", self.module)
        try:
            with io.open_code(str(path)) as file:
                content = file.read()
        except OSError as error:
            raise UsageError(f"{self.name}: cannot be read ({error.strerror})") from None
        sys.path[0] = str(path.resolve().parent)
        return lambda: _run_file(content, str(path))


def _main() -> ModuleType:
    """A new module, which stays what ``__main__`` is until the end."""
    sys.modules["__main__"] = ModuleType("__main__")
    return sys.modules["__main__"]


def _run_module(name: str, alter_argv: bool) -> None:
    _main()
    as_python: Any = runpy
    as_python._run_module_as_main(name, alter_argv)  # what Python itself calls


def _run_file(content: bytes, path: str) -> None:
    names = vars(_main())
    names.update(
        __file__=path,
        __loader__=SourceFileLoader("__main__", path),
        __builtins__=builtins,
        __cached__=None,
        __package__=None,
        __spec__=None,
    )
    exec(compile(content, path, "exec", dont_inherit=True), names)


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
                print(error.code, file=sys.stderr)
        elif error is not None:
            _as_python_shows(error)
            sys.excepthook(type(error), error, error.__traceback__)

    def leave(self) -> int:
        """The exit code; a program that an interrupt ended, Python ends by that signal."""
        if isinstance(self.error, KeyboardInterrupt) and os.name == "posix":
            _flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return self.exit_code


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def run(script: Script) -> Outcome:
    """Run a program, and give how it ended; what Python would say of that is said."""
    program = script.prepare()
    install_in_children()
    outcome = Outcome()
    try:
        program()
    except BaseException as error:
        outcome.error = error
        outcome.tell()
    _flush()
    return outcome


def _as_python_shows(error: BaseException) -> None:
    """An exception, and those before it, without the frames of ours that stand in between."""
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None:
            one.__traceback__ = _of_program(one.__traceback__)
            left += [one.__cause__, one.__context__]


def _of_program(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] != _PACKAGE:
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

            program = Program(
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
        return Budget(words, self._started, _now(), outcome, wall_ns, spent)

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
