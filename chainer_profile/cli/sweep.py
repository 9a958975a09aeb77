"""``sweep``: many networks, inputs and devices, each case in a fresh process."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import Parser, checked
from chainer_profile.basics.units import (
    format_duration,
    format_significant,
    plural,
    roughly,
)
from chainer_profile.basics.words import COMMAND, PROG
from chainer_profile.cli.options import MESSAGES, take
from chainer_profile.cli.running import Context, Interrupted, printing, show
from chainer_profile.cli.sweep_cases import KNOWN, LISTS, SINGLES, cases_of, read_toml
from chainer_profile.runs.executors import check_executor, open_workers

if TYPE_CHECKING:
    from chainer_profile.networks.loading import RegisteredModel
    from chainer_profile.record.digest import Run
    from chainer_profile.runs.sweep import Case, SweepFolder


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
    for name, (metavar, about) in LISTS.items():
        group.add_argument(f"--{name}", metavar=metavar, help=about)
    group = parser.add_argument_group("every case, in place of what the file says")
    *values, flag = (f"--{name}" for name in SINGLES)
    take(group, *values, short=False, type=None, default=None)
    take(group, flag, action="store_true", default=None, dest="no_machine")
    group = parser.add_argument_group("running")
    group.add_argument(
        "--executor",
        metavar="WHERE",
        type=checked(check_executor),
        default="local",
        help="local (one case at a time), local:N, dask://HOST:PORT or mpi (default: local)",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="list the cases and their commands, and exit"
    )
    group = parser.add_argument_group("output")
    about = "folder of the results (default: reports/sweep-NAME, by the file or the networks)"
    take(group, "--out", help=about)
    take(group, "--force", help="measure all again, and replace another sweep")
    take(group, *MESSAGES)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Run the cases that are not done, or list them; the exit code is 1 where one failed."""
    from chainer_profile.runs.sweep import SweepFolder, take_sweep

    name, asked = _cases(args, context.registry)
    counts = Counter(asked)
    cases = [*counts]
    if repeated := len(asked) - len(cases):
        (case, _), *_ = counts.most_common(1)
        _Progress(args.quiet, 0, 0).say(
            f"{plural(repeated, 'case is', 'cases are')} given more than once and run once, such "
            f"as {case.name}"
        )
    path = args.out or Path("reports") / f"sweep-{name}"
    if args.dry_run:
        folder = SweepFolder(path, cases, args.force)
        with printing():
            for case in cases:
                place = folder.names[case]
                words = [*COMMAND, *case.words, "--out", str(path / place)]
                print(f"{place}{' (done)' if folder.finished(case) else ''}\n  {shlex.join(words)}")
        return 0
    command = shlex.join([*COMMAND, "sweep", *context.argv])
    results: dict[Case, Run] = {}
    with take_sweep(path, cases, args.force) as folder:
        try:
            _run(cases, folder, results, args)
        except Interrupted as interrupt:
            good = sum(not result.error for result in results.values())
            done = f"{good} of {plural(len(cases), 'case is', 'cases are')} done"
            interrupt.hint = f"; {done}: the same command goes on"
            raise
        finally:
            found = [results[case] for case in cases if case in results]
            files = _write(name, found, len(cases), command, path) if found else []
    return _show(found, files, path, args.quiet)


def _cases(
    args: argparse.Namespace, registry: Mapping[str, RegisteredModel]
) -> tuple[str, list[Case]]:
    """The sweep's name and its cases, from the file or the lists."""
    from chainer_profile.networks.loading import find_model

    @cache
    def find(model: str) -> tuple[str, tuple[int, ...] | None]:
        source = find_model(model, registry)
        return source.name, source.input_shape

    asked = {name: getattr(args, name.replace("-", "_")) for name in KNOWN}
    options = {name: value for name, value in asked.items() if value is not None}
    if args.file is None:
        if "models" not in options:
            raise UsageError("give --models, or a TOML file with the cases")
        cases = cases_of(options, find)
        networks = list(dict.fromkeys(case.settings.model for case in cases))
        more = f"-and-{len(networks) - 4}-more" if len(networks) > 4 else ""
        return "-".join(networks[:4]) + more, cases
    if lists := [name for name in LISTS if name in options]:
        raise UsageError(f"--{lists[0]} and {args.file}: give the cases in one place")
    name, groups = read_toml(args.file)
    return name, [
        case for where, group in groups for case in cases_of({**group, **options}, find, where)
    ]


def _run(
    cases: Sequence[Case], folder: SweepFolder, results: dict[Case, Run], args: argparse.Namespace
) -> None:
    """Run the cases that are not done; all results are added as they come."""
    from chainer_profile.report.content.sweep import COLUMNS
    from chainer_profile.report.tables import to_csv
    from chainer_profile.runs.sweep import run_cases
    from chainer_profile.runs.written import write_files

    results |= {case: done for case in cases if (done := folder.finished(case))}
    todo = [case for case in cases if case not in results]
    if not todo:
        return
    with (
        open_workers(args.executor) as workers,
        _Progress(args.quiet, len(cases), len(results)) as progress,
    ):
        folder.begin()
        with closing(run_cases(todo, folder, workers, progress.say)) as found:
            for case, result in found:
                results[case] = result
                in_order = [results[case] for case in cases if case in results]
                write_files(folder.path, {"sweep.csv": to_csv(COLUMNS, in_order).encode()})
                progress.ended(result)


def _write(
    name: str, results: Sequence[Run], planned: int, command: str, path: Path
) -> Iterable[str]:
    """Write the table and the plots; returns the names of the files."""
    from chainer_profile.report import page
    from chainer_profile.report.content import sweep as content
    from chainer_profile.report.pictures import sweep as sweep_plot
    from chainer_profile.report.tables import to_csv
    from chainer_profile.report.writers import markdown
    from chainer_profile.runs.written import write_files

    drawn = sweep_plot.pictures(results)
    blocks = content.report(name, results, planned, command, [f"{plot}.png" for plot in drawn])
    files = {"sweep.csv": to_csv(content.COLUMNS, results).encode()}
    files["sweep.md"] = markdown.write(blocks).encode()
    files["sweep.html"] = page.render_sweep(name, results, planned, command, drawn).encode()
    files |= {f"{plot}.png": picture.png() for plot, picture in drawn.items()}
    files |= {f"{plot}.svg": picture.svg() for plot, picture in drawn.items()}
    write_files(path, files)
    return files


def _show(results: Sequence[Run], files: Iterable[str], path: Path, quiet: bool) -> int:
    """Print the table; a case that failed is an error."""
    from chainer_profile.report.content import sweep as content
    from chainer_profile.report.document import text

    written = text(f"Written to {path}: {', '.join(files)}")
    show([*content.overview(results), written], quiet)
    failed = [f"{result.name} ({result.error})" for result in results if result.error]
    if failed:
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        raise ProfileError(
            f"{len(failed)} of {plural(len(results), 'case')} failed: {', '.join(failed[:3])}"
            f"{more}; the same command tries again"
        )
    return 0


class _Progress:
    """How far a sweep is, on standard error: a line for each case, and on a terminal a bar."""

    def __init__(self, quiet: bool, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress

        self._total, self._done, self._first, self._begin = total, done, done, monotonic()
        self._bar = Progress(
            *(BarColumn(), MofNCompleteColumn()),
            console=Console(stderr=True, quiet=quiet),
            auto_refresh=False,  # the thread that does it would disturb the cases
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=total, completed=done)

    def __enter__(self) -> _Progress:
        if self._done:
            self.say(f"{self._done} of {self._total} cases are done already")
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """A line of its own."""
        from chainer_profile.report.text import printable

        self._bar.console.out(f"{PROG}: {printable(text)}", highlight=False)

    def ended(self, result: Run) -> None:
        """Say how a case ended, and about how long the others will take."""
        self._done += 1
        self._bar.update(self._task, completed=self._done, refresh=True)
        said = f"failed: {result.error}"
        if not result.error:
            times = map(format_duration, (result.digest.median_s, result.digest.std_s))
            said = f"{', std '.join(times)}, {format_significant(result.digest.fps)} FPS"
        left = (monotonic() - self._begin) / (self._done - self._first) * (self._total - self._done)
        about = f" (about {roughly(left)} left)" if self._done < self._total else ""
        self.say(f"[{self._done}/{self._total}] {result.name}: {said}{about}")
