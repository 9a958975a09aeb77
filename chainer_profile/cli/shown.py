"""What commands print, as wide as the terminal, and the reports of a run beside it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.cli.running import printing
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.profile import ReportTitle, brief, overview
from chainer_profile.report.content.result_section import target
from chainer_profile.report.document import Block, text
from chainer_profile.report.writers import terminal
from chainer_profile.runs.wanted import Wanted, named
from chainer_profile.runs.write import beside, in_folder, write_reports

#: Columns of what goes into a file or a pipe: all columns of tables fit; rich would take 80.
_WIDE = 160
#: How to see what a first screen leaves out, and the rows that --limit leaves out.
FULL, ALL_ROWS = "--full shows all", "--limit 0 shows all"
#: Names of files that are told.
_MOST_NAMES = 4


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes into a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show(blocks: Iterable[Block], quiet: bool = False, *, hint: str = "") -> None:
    """Print a document on the standard output; in colour where that is a terminal.

    With a ``hint`` only a first screen of it.
    """
    if quiet:
        return
    own = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if own else _WIDE)
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


def say_written(folder: Path, names: Sequence[str], quiet: bool = False) -> None:
    """``Written to reports/net: report.html, report.md and 7 more files``."""
    first = sorted(names, key=lambda name: not name.endswith((".html", ".md", ".pdf")))
    shown = first if len(first) <= _MOST_NAMES + 1 else first[:_MOST_NAMES]
    more = len(first) - len(shown)
    others = f" and {more} more files" if more else ""
    show([text(f"Written to {folder}: {', '.join(shown)}{others}")], quiet)


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
        if args.json and not args.quiet:
            # It makes types of all that the report holds.
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
            "advice": None if folder is None else beside(folder, recording).advice,
        }
        if args.full:
            by = args.group_by or "function"
            show(overview(summary, group_by=by, macs=args.macs, **asked), quiet)
        else:
            show(brief(summary, group_by=args.group_by or "", **asked), quiet)
        if args.target is not None:
            show(target(summary, args.target), quiet)
    names = [*filter(None, [written]), *(file.name for file in files)]
    if folder is not None and names:
        say_written(folder, names, quiet)
