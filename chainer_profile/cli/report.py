"""``report``: the reports of a run again, from its recording alone; a run itself shows the same."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.words import DEFAULT_DEPTH, run_words
from chainer_profile.cli.instead import report_engines
from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.shown import ALL_ROWS, row_limit, say_written, show
from chainer_profile.engines.results import RESULTS
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.layer_section import Shown, target
from chainer_profile.report.content.profile import ReportTitle, brief, overview
from chainer_profile.report.content.result_section import groups
from chainer_profile.runs.folder import RECORDING, load_run
from chainer_profile.runs.wanted import Wanted, is_report, named
from chainer_profile.runs.wanted import check as check_formats
from chainer_profile.runs.write import beside, in_folder, write_reports


def run(args: argparse.Namespace, context: Context) -> int:
    """Write the reports of a run, or of a run of several engines, and print its tables."""
    run: Path = args.run
    if (run / RESULTS).exists():
        if args.formats:
            raise UsageError(
                f"{run} contains a run of several engines; use --format with the folder of one"
            )
        report_engines(run, args)
        return 0
    if not run.is_dir():
        _refuse_reports(run)
    recording = load_run(run)
    _keep_title(args, recording.settings.command)
    check_formats(wanted(args), recording.n_trials)
    show_run(recording, run if run.is_dir() else run.parent, args)
    return 0


def _refuse_reports(file: Path) -> None:
    """Refuse to replace reports beside a recording in no run's folder: they may be the user's."""
    beside_it = sorted(path.name for path in file.parent.iterdir() if is_report(path.name))
    if file.name != RECORDING and beside_it and "layers.csv" not in beside_it:
        raise UsageError(
            f"{file.parent / beside_it[0]} would be replaced; move it away, or move {file.name} "
            "into a folder of its own"
        )


def _keep_title(args: argparse.Namespace, command: str) -> None:
    """Take title, author and course from the run's command line, where they are not given."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("title", "author", "course"):
        parser.add_argument(f"--{name}", nargs="?")
    for name, value in vars(parser.parse_known_args(run_words(command) or [])[0]).items():
        setattr(args, name, getattr(args, name) or value or "")


def wanted(args: argparse.Namespace) -> Wanted:
    """What the options ask for beside the usual reports."""
    title = ReportTitle(title=args.title, author=args.author, course=args.course)
    return replace(named(args.formats), title=title, trace_trial=args.trace_trial)


def show_run(
    recording: Recording, folder: Path | None, args: argparse.Namespace, written: str = ""
) -> None:
    """Write a recording's reports where there is a folder for them, and print its tables."""
    summary = summarise(recording, args.hotspots)
    if folder is not None:
        summary = in_folder(summary, folder)
    files = []
    # Files come first: a reader of our output that goes away (`| head`) does not prevent them.
    try:
        if folder is not None:
            files = write_reports(folder, summary, wanted(args))
    finally:
        if args.json:
            from chainer_profile.report.writers import json_report

            with printing():
                sys.stdout.write(json_report.render(summary))
        quiet = args.quiet or args.json
        asked: dict[str, Any] = {
            "sort": args.sort,
            "limit": row_limit(args),
            "tree": args.tree,
            "depth": DEFAULT_DEPTH if args.depth is None else args.depth,
            "columns": args.columns,
            "hint": ALL_ROWS,
            "beside": None if folder is None else beside(folder, recording),
        }
        if args.full:
            by = args.group_by or "function"
            show(overview(summary, group_by=by, macs=args.macs, **asked), quiet)
        elif args.group_by:
            shown = Shown(args.sort, row_limit(args), args.group_by, hint=ALL_ROWS)
            show(groups(summary, shown), quiet)
        else:
            show(brief(summary, **asked), quiet)
        if args.target is not None:
            show(target(summary, args.target), quiet)
    names = [*filter(None, [written]), *(file.name for file in files)]
    if folder is not None and names:
        say_written(folder, names, quiet)
