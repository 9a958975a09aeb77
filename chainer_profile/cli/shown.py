"""What ``run`` and ``report`` share: the options of what is shown, and showing it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.cli.options import MESSAGES, take
from chainer_profile.cli.running import ALL_ROWS, printing, row_limit, written_text
from chainer_profile.cli.running import show as print_blocks
from chainer_profile.runs.wanted import NONE, Wanted

if TYPE_CHECKING:
    from chainer_profile.record.recording import Recording


def add_shown(parser: argparse.ArgumentParser) -> None:
    """Options of what is shown, which running and reporting share."""
    group = parser.add_argument_group("what is shown")
    take(group.add_mutually_exclusive_group(), "--tree", "--columns")
    take(
        group,
        "--full",
        "--depth",
        "--group-by",
        "--macs",
        "--hotspots",
        "--sort",
        "--target",
        "--limit",
    )
    take(group, *MESSAGES)
    group = parser.add_argument_group("reports")
    take(group, "--format", "--json", "--title", "--author", "--course", "--trace-trial")


def formats(args: argparse.Namespace) -> Wanted:
    """The report files that are asked for."""
    asked = tuple(name for name in args.formats if name != NONE)
    return Wanted(asked, usual=NONE not in args.formats)


def wanted(args: argparse.Namespace) -> Wanted:
    """What the options ask for beside the usual reports."""
    from chainer_profile.report.content.profile import ReportTitle

    title = ReportTitle(title=args.title, author=args.author, course=args.course)
    return replace(formats(args), title=title, trace_trial=args.trace_trial)


def show(
    recording: Recording, folder: Path | None, args: argparse.Namespace, written: str = ""
) -> None:
    """Write a recording's reports where there is a folder for them, and print its tables."""
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.report.content.profile import brief, overview
    from chainer_profile.report.content.result_section import target
    from chainer_profile.report.document import text
    from chainer_profile.report.writers import json_report
    from chainer_profile.runs.write import beside, in_folder, write_reports

    summary = summarise(recording, args.hotspots)
    if folder is not None:
        summary = in_folder(summary, folder)
    quiet = args.quiet or args.json
    files = []
    # Files come first: a reader of our output that goes away (`| head`) does not prevent them.
    try:
        if folder is not None:
            files = write_reports(folder, summary, wanted(args))
    finally:
        with printing():
            if args.json and not args.quiet:
                sys.stdout.write(json_report.render(summary))
        asked: dict[str, Any] = {
            "sort": args.sort,
            "limit": row_limit(args),
            "tree": args.tree,
            "depth": DEFAULT_DEPTH if args.depth is None else args.depth,
            "columns": args.columns,
            "hint": ALL_ROWS,
            "advice": None if folder is None else beside(folder, recording).advice,
        }
        if args.full:
            by = args.group_by or "function"
            blocks = overview(summary, group_by=by, macs=args.macs, **asked)
        else:
            blocks = brief(summary, group_by=args.group_by or "", **asked)
        print_blocks(blocks, quiet)
        if args.target is not None:
            print_blocks(target(summary, args.target), quiet)
    names = [*filter(None, [written]), *(file.name for file in files)]
    if folder is not None and names:
        print_blocks([text(written_text(folder, names))], quiet)
