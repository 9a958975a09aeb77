"""``history``: the runs so far, to search and to compare by name."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.words import PROG
from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.options import HISTORY_ROWS
from chainer_profile.cli.shown import show
from chainer_profile.report.content import history as content
from chainer_profile.report.tables import to_csv
from chainer_profile.report.writers import markdown
from chainer_profile.runs.history import REPORTS, Query, history


def run(args: argparse.Namespace, context: Context) -> int:
    reports: Path = args.reports
    if reports.exists() and not reports.is_dir():
        raise UsageError(f"--reports {reports} is a file; name a folder")
    if not reports.exists() and reports != REPORTS:
        raise UsageError(f"--reports {reports}: no such folder")
    query = Query(
        words=tuple(args.words),
        model=args.model,
        device=args.device,
        commit=args.commit,
        since=args.since or "",
        sort=args.sort,
    )
    found = history(reports, query)
    if found.unread:
        count = len(found.unread)
        what = "recording cannot be read" if count == 1 else "recordings cannot be read, such as"
        said = f"{count:,d} {what}{':' if count == 1 else ''} {found.unread[0]}"
        print(f"{PROG}: {said}", file=sys.stderr)
    is_table = args.format == "table" and not args.names
    limit = args.limit if args.limit is not None else HISTORY_ROWS if is_table else 0
    shown = found.runs[:limit] if limit else found.runs
    if is_table and shown:
        show(content.overview(shown, len(found.runs) - len(shown)))
        return 0
    if args.names:
        text = "\n".join(run.name for run in shown)
    elif is_table:
        text = f"no runs under {reports}/"
        if found.total:
            text = f"none of the {found.total:,d} runs under {reports}/ matches"
    elif args.format == "csv":
        text = to_csv(content.COLUMNS, shown).rstrip("\n")
    else:
        left_out = len(found.runs) - len(shown)
        text = markdown.write(content.overview(shown, left_out)).rstrip("\n")
    if text:
        with printing():
            print(text, flush=True)
    return 0
