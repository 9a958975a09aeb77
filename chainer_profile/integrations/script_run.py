"""Watches a program that is run: the budget of its time, and the layers of its trials."""

from __future__ import annotations

import functools
import importlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from threading import get_ident
from typing import Any

from chainer_profile.basics.began import BEGAN_NS, process_age_ns
from chainer_profile.basics.errors import UsageError, one_line
from chainer_profile.basics.parsing import usable_cores
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import PROG
from chainer_profile.integrations.isolated import Start, say
from chainer_profile.integrations.script import Outcome, Script, run, shadowed_modules_loaded
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
    Trials,
)
from chainer_profile.runs.formats import NONE

#: The budget so far is written this often, in case the program is killed.
_SAVED_EVERY_NS = 5_000_000_000
#: Name of the profiler's work before a program begins.
BEGIN = "importing itself"
_PACKAGE = __name__.partition(".")[0]


@contextmanager
def counted_imports(
    accounts: Accounts, pause: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[None]:
    """Count the time of imports within the context by package; each runs in ``pause()``."""
    thread, process = get_ident(), os.getpid()

    def counting(find_and_load: Any) -> Any:
        def find_and_load_in_account(name: str, import_: Any) -> Any:
            if accounts.part == PROFILER or get_ident() != thread or os.getpid() != process:
                return find_and_load(name, import_)
            package = name.partition(".")[0]
            outer = ""
            if accounts.part == IMPORTS:  # another package imports this one
                outer = accounts.account[1].partition(BENEATH)[0]
            path = package if outer in ("", package) else outer + BENEATH + package
            accounts.open((PROFILER, BEGIN) if package == _PACKAGE else (IMPORTS, path))
            try:
                with pause():
                    return find_and_load(name, import_)
            finally:
                accounts.close()

        # Python leaves files of this name out of the tracebacks of failed imports.
        code = find_and_load_in_account.__code__
        find_and_load_in_account.__code__ = code.replace(
            co_filename="<frozen importlib._bootstrap>"
        )
        return find_and_load_in_account

    with Replacements() as replacements:
        bootstrap: Any = importlib._bootstrap
        replacements.wrap(bootstrap, "_find_and_load", counting)
        yield


@dataclass(eq=False)
class ScriptRun:
    """Runs a program, and writes its time budget and the layers of its trials to a folder."""

    # Whatever the program leaves behind, its measurements are saved and its exit code stays: all
    # code that saves is imported before it runs, and another interpreter makes the reports.

    script: Script
    # The arguments of take_folder.
    out: Path | None
    default: Path
    force: bool = False
    command: str = ""  #: The whole command line, for recordings.
    layers: bool = True  #: Measure trials by row.
    memory: bool = False  #: Count allocations in two trials.
    samples: bool = True  #: Sample the Python functions of the main thread.
    tries: bool = False  #: Try changes in the trials.

    def __post_init__(self) -> None:
        self._problems: dict[str, None] = {}  # each is reported once
        self._process = os.getpid()
        self._rank = _launched_rank()
        self._start = Start()
        self._started = _now()
        began_ns = time.perf_counter_ns()
        self._accounts = Accounts(time.perf_counter_ns, began_ns)
        self._accounts.add((START, ""), process_age_ns())
        self._accounts.add((PROFILER, BEGIN), began_ns - BEGAN_NS)
        # The time at which the budget is written next.
        self._due_ns = 0

    def __enter__(self) -> ScriptRun:
        with counted_imports(self._accounts):
            # Before any module of ours imports NumPy, whose import belongs to the program.
            import chainer  # noqa: F401

            with self._accounts.within(PROFILER, BEGIN, count=0):
                from chainer_profile.integrations.program import Program
                from chainer_profile.integrations.results import Results
                from chainer_profile.integrations.sampler import Sampler
                from chainer_profile.measure.environment import CpuWatch
        # The program may change its directory.
        out = None if self.out is None else self.out.absolute()
        default = self.default.absolute()
        self._results = Results(
            *(out, default, self.force, self._rank, self._warn),
            say=lambda problem: say(f"{PROG}: {problem}"),
        )
        self._program = Program(
            self._accounts,
            self._results.journal,
            command=self.command,
            warn=lambda name, problem: self._warn(f"{name}: {problem}"),
            save=self._save_now_and_then,
            is_save_due=self._is_save_due,
            layers=self.layers,
            memory=self.memory,
            # Ranks wait for one another, so that each would time the others' changes.
            tries=self.tries and self._rank is None,
        )
        # Other ranks are other processes, and no other programs.
        self._watch = CpuWatch() if self._rank is None else None
        if self._program.live is not None and self._watch is not None:
            self._program.live.is_busy = self._watch.is_busy
        self._sampler = Sampler(self._accounts, self._program.what_runs)
        self._sampler.undecided_since = self._program.trials.undecided_since
        self._program.trials.on_decided = self._sampler.decide
        if self.out is not None:
            with self._accounts.within(PROFILER, BEGIN, count=0):
                self._results.take()  # so that it is refused before the program runs
        return self

    def __exit__(self, *_: object) -> None:
        with self._excused():
            self._results.close()

    @property
    def forked(self) -> bool:
        """Whether this is a child that the program forked; the profile is its parent's."""
        return os.getpid() != self._process

    def run(self) -> Outcome:
        accounts = self._accounts
        with counted_imports(accounts, self._program.pause_in_unit), Replacements() as replacements:
            replacements.wrap(os, "_exit", self._save_before)
            with accounts.within(PROFILER, BEGIN, count=0):
                self._program.__enter__()
                if self.samples:
                    self._sampler.start()
            try:
                outcome = run(self.script)
            except UsageError:  # the program does not exist
                self._program.__exit__(None, None, None)
                raise
            except BaseException as error:  # the program may have replaced parts of Python
                outcome = Outcome(error)
            finally:
                self._sampler.stop()
            with accounts.within(PROFILER, SAVING, count=0), self._excused():
                self._program.__exit__(None, None, None)
        return outcome

    def finish(self, outcome: Outcome, formats: Sequence[str], quiet: bool) -> None:
        """Save what was measured, then make the reports and say where the time went."""
        if not self._program.called_chainer:
            if not quiet:
                say(f"{PROG}: the program called nothing in Chainer")
            return
        ended = _now()
        with self._excused():
            with self._accounts.within(PROFILER, SAVING, count=0):
                other_cpu = self._other_cpu()
                recordings = {
                    name: replace(
                        recording, conditions=replace(recording.conditions, other_cpu=other_cpu)
                    )
                    for name, recording in self._program.recordings().items()
                }
                saved = list(self._results.save(recordings))
                if self.tries and not self._save_advice():
                    why = "were no iterations" if self._rank is None else "are several ranks"
                    self._warn(f"nothing was tried: there {why}")
                budget = self._budget(str(outcome), ended)
                if self._sampler.problem:
                    self._warn(f"functions are not sampled: {self._sampler.problem}")
            self._results.save_budget(budget)
            self._report(budget, saved, formats, quiet)

    def _save_advice(self) -> bool:
        """Write the results of the changes tried so far; returns whether there are any."""
        live = self._program.live
        trying = None if live is None else live.trying
        advice = None if trying is None else trying.advice(self.script.words)
        if trying is not None and advice is not None:
            self._results.save_advice(trying.kind.name, advice)
        return advice is not None

    def _warn(self, problem: str) -> None:
        self._problems[problem] = None

    def _report(
        self, budget: Budget, saved: list[Path], formats: Sequence[str], quiet: bool
    ) -> None:
        quiet = quiet or bool(self._rank)  # only the first of several ranks prints
        main = self._results.main
        if quiet and (not saved or NONE in formats):
            return
        ended = Ended(
            budget,
            at_ns=time.perf_counter_ns(),
            folder=None if main is None else str(main),
            saved=tuple(map(str, saved)),
            problems=tuple(self._problems),
            formats=tuple(formats),
            quiet=quiet,
            first_rank=self._rank == 0,
        )
        failure = self._start.run(REPORTING, asdict(ended))
        if failure:
            say(f"{PROG}: the reports could not be made ({failure}): {self._where_saved}")

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """Print a line if the block fails, and undo the program's changes of imports within it."""
        try:
            with self._start.original_path(), shadowed_modules_loaded():
                yield
        except BaseException as error:
            if not self.forked:
                why = "interrupted" if isinstance(error, KeyboardInterrupt) else one_line(error)
                say(f"{PROG}: {why}: {self._where_saved}")

    @property
    def _where_saved(self) -> str:
        main = self._results.main
        message = "the measurements are kept"
        return message if main is None else f"{message} in {self._start.relative(main)}"

    def _budget(self, outcome: str, ended: str) -> Budget:
        spent = self._accounts.spent()
        program, folders = self._program, self._results.folders()
        return Budget(
            script=shlex.join(self.script.words),
            started=self._started,
            ended=ended,
            outcome=outcome,
            wall_ns=sum(account.ns for account in spent),
            spent=spent,
            untimed=program.untimed,
            sampled=self._sampler.sampled_functions(),
            trials=tuple(
                Trials(
                    *(*kind.account, folders[kind.name]),
                    loaded=kind.batch.size,
                    loaded_nbytes=kind.batch.loaded_nbytes,
                )
                for kind in program.kinds
                if kind.name in folders
            ),
            extensions=program.extensions,
            unmeasured=program.trials.kinds.unmeasured(),
            other_cpu=self._other_cpu(),
            cores=usable_cores(),
        )

    def _other_cpu(self) -> float | None:
        """Cores that other programs kept busy while the program ran; None if that is not known."""
        return None if self._watch is None else self._watch.other_cpu()

    def _is_save_due(self) -> bool:
        return time.perf_counter_ns() >= self._due_ns

    def _save_now_and_then(self, outcome: str = RUNNING) -> None:
        """Write the budget and the advice so far, at most every few seconds.

        They are written at once if the program has another outcome than :data:`.RUNNING`.
        """
        if outcome == RUNNING and not self._is_save_due():
            return
        with self._accounts.within(PROFILER, SAVING, count=0), suppress(Exception):
            self._results.save_budget(self._budget(outcome, _now()))
            self._save_advice()
        self._due_ns = time.perf_counter_ns() + _SAVED_EVERY_NS

    def _save_before(self, leave: Any) -> Any:
        """Wrap ``os._exit``, which ends the process at once, to save the results before."""

        @functools.wraps(leave)
        def leave_saved(status: int) -> None:
            if self._program.called_chainer and not self.forked:
                with suppress(BaseException):
                    self._program.read(is_last=True)
                    self._save_now_and_then(str(Outcome(SystemExit(status))))
            leave(status)

        return leave_saved


def _launched_rank() -> int | None:
    """The rank of the process, by the variables of MPI's launchers; None if it is alone."""
    for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        number, count = (os.environ.get(name, "") for name in (rank, size))
        if number.isdecimal() and count.isdecimal() and int(count) > 1:
            return int(number)
    return None


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
