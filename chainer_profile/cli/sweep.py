"""``sweep``: many networks, inputs and devices, each case in a fresh process."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import Parser, checked
from chainer_profile.basics.words import COMMAND, DTYPES, PHASES, PROG
from chainer_profile.cli.interrupts import Interrupted
from chainer_profile.cli.options import add_messages, add_out
from chainer_profile.cli.running import Context, printing, show
from chainer_profile.runs.executors import open_workers, parse_executor
from chainer_profile.runs.sweep_cases import (
    FLAGS,
    LISTS,
    SINGLES,
    Case,
    cases_of,
    read_toml,
    spelled_lists,
    sweep_name,
    without_duplicates,
)

if TYPE_CHECKING:
    from chainer_profile.networks.loading import RegisteredModel
    from chainer_profile.record.digest import Run
    from chainer_profile.runs.sweep import SweepFolder

_HELP = {
    "models": ("A,B,C", "networks, as --model of profile.py takes them"),
    "input-sizes": ("HxW,...", "heights and widths of images, such as 1024x2048,500x334"),
    "input-shapes": ("CxHxW,...", "shapes of one input, in place of sizes"),
    "batchsizes": ("N,...", "inputs per trial (default: 1)"),
    "devices": ("D,...", "cpu, gpu:0 and so on (default: cpu)"),
    "phases": ("P,...", f"{', '.join(PHASES)} (default: {PHASES[0]})"),
    "trials": ("N", "profiled trials of a case (default: 1000)"),
    "warmups": ("N", "warm-up trials of a case (default: 50)"),
    "threads": ("N", "BLAS threads (default: as many as BLAS chooses)"),
    "seed": ("N", "seed of weights and input (default: 0)"),
    "dtype": ("T", f"{', '.join(DTYPES)} (default: {DTYPES[0]})"),
    "max-seconds": ("S", "end the trials of a case after so many seconds"),
    "no-machine": ("", "do not measure what the machine can do at best"),
}


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} sweep",
        description="Profiles many cases, a case for each combination of the lists, each in a "
        "fresh process, and writes one table and plots. The same command goes on with a sweep "
        "that was interrupted.",
    )
    parser.add_argument(
        "file", metavar="FILE.toml", nargs="?", type=Path, help="the cases, in place of the lists"
    )
    group = parser.add_argument_group("cases, a combination of lists")
    for name in LISTS:
        metavar, text = _HELP[name]
        group.add_argument(f"--{name}", metavar=metavar, help=text)
    group = parser.add_argument_group("every case, in place of what the file says")
    for name in SINGLES:
        metavar, text = _HELP[name]
        group.add_argument(f"--{name}", metavar=metavar, help=text)
    for name in FLAGS:
        group.add_argument(f"--{name}", action="store_true", help=_HELP[name][1])
    group = parser.add_argument_group("running")
    group.add_argument(
        "--executor",
        metavar="WHERE",
        type=checked(parse_executor),
        default="local",
        help="local (one case at a time), local:N, dask://HOST:PORT or mpi (default: local)",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="list the cases and their commands, and exit"
    )
    group = parser.add_argument_group("output")
    add_out(
        group,
        "folder of the results (default: reports/sweep-NAME, by the file or the networks)",
        "measure all again, and replace another sweep",
    )
    add_messages(group)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Run the command; returns the exit code, 1 where a case failed.

    Raises:
        ProfileError: The results cannot be written, or the workers not be reached.
        UsageError: The arguments say nothing that can be done.
    """
    name, cases = _cases(args, context.registry)
    cases, repeated = without_duplicates(cases)
    if repeated and not args.quiet:
        case = repeated[0]
        _say(
            f"{_plural(len(repeated), 'case is', 'cases are')} given more than once and run once, "
            f"such as {case.network} {case.input_text} batch {case.batchsize} {case.device}"
        )
    path = args.out or Path("reports") / f"sweep-{name}"
    if args.dry_run:
        return _list(cases, path, args.force)

    from chainer_profile.runs.sweep import take_sweep

    with take_sweep(path, cases, args.force) as taken:
        sweep = _Sweep(name, cases, taken, args, shlex.join([*COMMAND, "sweep", *context.argv]))
        try:
            sweep.run()
        except Interrupted as interrupt:
            done = f"{sweep.n_good} of {_plural(len(cases), 'case is', 'cases are')} done"
            interrupt.hint = f"; {done}: the same command goes on"
            raise
        return sweep.show()


def _cases(
    args: argparse.Namespace, registry: Mapping[str, RegisteredModel]
) -> tuple[str, list[Case]]:
    """The sweep's name and its cases, from the file or the lists."""
    from chainer_profile.networks.loading import find_model

    known: dict[str, tuple[str, tuple[int, ...] | None]] = {}

    def find(model: str) -> tuple[str, tuple[int, ...] | None]:
        if model not in known:
            source = find_model(model, registry)
            known[model] = source.name, source.input_shape
        return known[model]

    options = {
        option: value
        for option in (*LISTS, *SINGLES)
        if (value := getattr(args, option.replace("-", "_"))) is not None
    }
    options |= {option: True for option in FLAGS if getattr(args, option.replace("-", "_"))}
    if args.file is None:
        if "models" not in options:
            raise UsageError("give --models, or a TOML file with the cases")
        cases = cases_of(options, find)
        return sweep_name(without_duplicates(cases)[0]), cases
    if lists := list(spelled_lists(options)):
        raise UsageError(f"{lists[0]} and {args.file}: give the cases in one place")
    name, groups = read_toml(args.file)
    found: list[Case] = []
    for where, group in groups:
        found += cases_of({**group, **options}, find, where)
    return name, found


def _list(cases: Sequence[Case], path: Path, force: bool) -> int:
    from chainer_profile.runs.sweep import planned_names

    folder = planned_names(path, cases)
    with printing():
        for case in cases:
            done = not force and folder.finished(case) is not None
            words = [*COMMAND, *case.arguments, "--out", str(path / folder.names[case])]
            print(f"{folder.names[case]}{' (done)' if done else ''}\n  {shlex.join(words)}")
    return 0


class _Sweep:
    """One run of the command: what is done, and what is said about it."""

    def __init__(
        self,
        name: str,
        cases: Sequence[Case],
        folder: SweepFolder,
        args: argparse.Namespace,
        command: str,
    ) -> None:
        self._name, self._cases, self._folder = name, cases, folder
        self._args, self._command = args, command
        self._results: dict[Case, Run] = {}
        self._files: list[str] = []

    @property
    def results(self) -> list[Run]:
        """The results so far, in the order of the cases."""
        return [self._results[case] for case in self._cases if case in self._results]

    @property
    def n_good(self) -> int:
        """How many cases are done, and did not fail."""
        return sum(not result.error for result in self._results.values())

    def run(self) -> None:
        """Run the cases that are not done, and write the table and the plots."""
        from chainer_profile.cli.sweep_progress import SweepProgress
        from chainer_profile.runs.sweep import run_cases

        for case in self._cases:
            if result := self._folder.finished(case):
                self._results[case] = result
        todo = [case for case in self._cases if case not in self._results]
        try:
            if todo:
                kind, place = self._args.executor
                with (
                    open_workers(kind, place) as workers,
                    SweepProgress(len(self._cases), self.n_good, self._args.quiet) as progress,
                ):
                    self._folder.begin()
                    for note in workers.notes:
                        progress.say(note)
                    running = run_cases(todo, self._folder, workers, progress)
                    with closing(running):
                        for case, result in running:
                            self._results[case] = result
                            self._write_csv()
        finally:
            # Of a sweep that is interrupted, too.
            if self._results:
                self._write()

    def show(self) -> int:
        """Print the table; returns the exit code."""
        from chainer_profile.report.content import sweep as content
        from chainer_profile.report.document import text

        results = self.results
        written = f"Written to {self._folder.path}: {', '.join(self._files)}"
        show([*content.overview(results), text(written)], self._args.quiet)
        failed = [result for result in results if result.error]
        if failed:
            first = f"{failed[0].name}: {failed[0].error}"
            raise ProfileError(
                f"{len(failed)} of {_plural(len(results), 'case', 'cases')} failed, such as "
                f"{first}; the same command tries again"
            )
        return 0

    def _write_csv(self) -> None:
        from chainer_profile.report.content.sweep import render_csv
        from chainer_profile.runs.written import write_files

        write_files(self._folder.path, {"sweep.csv": render_csv(self.results).encode()})

    def _write(self) -> None:
        from chainer_profile.report.content import sweep as content
        from chainer_profile.report.pictures import sweep as sweep_plot
        from chainer_profile.report.writers import markdown
        from chainer_profile.runs.written import write_files

        self._write_csv()
        results = self.results
        plots: dict[str, bytes] = {}
        for form in ("png", "svg"):
            made = sweep_plot.render_all(results, form)
            plots |= {f"{name}.{form}": picture for name, picture in made.items()}
        shown = [name for name in plots if name.endswith(".png")]
        blocks = content.report(self._name, results, len(self._cases), self._command, shown)
        files: dict[str, bytes] = {"sweep.md": markdown.write(blocks).encode(), **plots}
        write_files(self._folder.path, files)
        self._files = ["sweep.csv", *files]


def _plural(count: int, one: str, several: str) -> str:
    return f"{count:,d} {one if count == 1 else several}"


def _say(text: Any) -> None:
    print(f"{PROG}: {text}", file=sys.stderr)
