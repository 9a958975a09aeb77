"""``report``: makes the reports of a run from its recording. ``profile`` uses it, too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.words import DEFAULT_DEPTH, profile_arguments
from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.output import ALL_ROWS, FULL, row_limit, say_report, say_written, show
from chainer_profile.cli.output_options import SORT_KEYS
from chainer_profile.engines.results import RESULTS, EnginesRun
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.first_screen import first_screen
from chainer_profile.report.content.layer_section import TableOptions
from chainer_profile.report.content.profile import ReportTitle, overview
from chainer_profile.report.content.related import RelatedResults
from chainer_profile.report.content.result_section import groups
from chainer_profile.runs import engines as engines_folder
from chainer_profile.runs.folder import RECORDING, has_ranks, load_run
from chainer_profile.runs.formats import is_report, trace_trial
from chainer_profile.runs.write import related_results, with_folder_name, write_reports


def run(args: argparse.Namespace, context: Context) -> int:
    """Write the reports of a run, of several engines or of ranks, and print the tables."""
    run: Path = args.run
    of_ranks, of_engines = has_ranks(run), (run / RESULTS).exists()
    if args.formats and (of_ranks or of_engines):
        content = "the ranks of a training" if of_ranks else "a run of several engines"
        raise UsageError(f"{run} contains {content}; use --format with one of its folders")
    if of_ranks:
        from chainer_profile.cli.ranks import report_ranks  # not at the top: it loads SciPy

        report_ranks(run, args)
        return 0
    if args.out is not None:
        raise UsageError("--out is for the ranks of a training: a run's reports are in its folder")
    if of_engines:
        results, recordings = engines_folder.read_run(run)
        files = engines_folder.write_reports(run, results, recordings)
        show_engines(results, recordings, args)
        say_written(run, files, args.quiet)
        return 0
    if not run.is_dir():
        _refuse_other_reports(run)
    recording = load_run(run)
    prints = not _asks_for_title_alone(args)
    _restore_title(args, recording.settings.command)
    trace_trial(args.formats, recording.n_trials)  # refuse a trial that does not exist
    show_run(recording, run if run.is_dir() else run.parent, args, prints=prints)
    return 0


def _asks_for_title_alone(args: argparse.Namespace) -> bool:
    """Whether options set only the title, author or course, so that no tables are printed."""
    table_options = (args.columns, args.full, args.group_by, args.tree, args.limit)
    is_asked = any(value not in (None, False) for value in table_options)
    return any((args.title, args.author, args.course)) and not is_asked


def _refuse_other_reports(file: Path) -> None:
    """Raise UsageError if the reports in the folder of a recording may be from another run."""
    reports = sorted(path.name for path in file.parent.iterdir() if is_report(path.name))
    if file.name != RECORDING and reports and "layers.csv" not in reports:
        raise UsageError(
            f"{file.parent / reports[0]} would be replaced; move it away, or move {file.name} "
            "into a folder of its own"
        )


def _restore_title(args: argparse.Namespace, command: str) -> None:
    """Set title, author and course from the run's command line unless ``args`` has them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("title", "author", "course"):
        parser.add_argument(f"--{name}", nargs="?")
    for name, value in vars(parser.parse_known_args(profile_arguments(command) or [])[0]).items():
        setattr(args, name, getattr(args, name) or value or "")


def show_run(
    recording: Recording,
    folder: Path | None,
    args: argparse.Namespace,
    written: str = "",
    *,
    prints: bool = True,
) -> None:
    """Write a recording's reports if there is a folder for them, and print its tables.

    ``written`` is a file that the caller has written into the folder, to be named with the others.
    """
    summary = summarise(recording, args.hotspots)
    if folder is not None:
        summary = with_folder_name(summary, folder)
    files = []
    # Files are written first, because printing fails if the reader of the output ends (`| head`).
    try:
        if folder is not None:
            title = ReportTitle(args.title, args.author, args.course)
            files = write_reports(folder, summary, args.formats, title)
    finally:
        if args.json:
            from chainer_profile.report.writers import json_report

            with printing():
                sys.stdout.write(json_report.render(summary))
        quiet = args.quiet or args.json
        if prints:
            _print(
                summary, None if folder is None else related_results(folder, recording), args, quiet
            )
    names = [*filter(None, [written]), *(file.name for file in files)]
    if folder is not None and names:
        say = say_written if args.full or args.formats or not prints else say_report
        say(folder, names, quiet)


def _print(
    summary: Summary, related: RelatedResults | None, args: argparse.Namespace, quiet: bool
) -> None:
    """Print the tables that the options ask for."""
    options: dict[str, Any] = {
        "sort": args.sort,
        "limit": row_limit(args),
        "tree": args.tree is not None,
        "depth": DEFAULT_DEPTH if args.tree is None else args.tree,
        "columns": args.columns,
        "hint": ALL_ROWS,
        **({"group_by": args.group_by} if args.group_by else {}),
    }
    if args.full:
        show(overview(summary, related, **options), quiet)
    elif args.group_by:
        show(groups(summary, TableOptions(**options)), quiet)
    else:
        show(first_screen(summary, related, TableOptions(**options), tables=_tables(args)), quiet)


def _tables(args: argparse.Namespace) -> tuple[str, ...]:
    """Names of the tables on the first screen, as the options ask for them."""
    asks_for_layers = args.limit is not None or args.columns or args.sort != SORT_KEYS[0]
    tables: tuple[str, ...] = ("functions", "slowest")
    if args.tree is not None or asks_for_layers:
        tables = ("tree" if args.tree is not None else "layers",)
    return (*tables, "inside") if getattr(args, "why", False) else tables


def show_engines(
    run: EnginesRun, recordings: Mapping[str, Recording], args: argparse.Namespace
) -> None:
    """Print the tables of a run of several engines."""
    # Not at the top: it loads SciPy, for comparisons.
    from chainer_profile.report.content import engines

    show(engines.overview(run, recordings), args.quiet, hint="" if args.full else FULL)
