"""``history``: the runs so far, to search and to compare by name."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import (
    Parser,
    folder,
    named_device,
    parse_device,
)
from chainer_profile.basics.words import PROG
from chainer_profile.cli.options import FORM, take
from chainer_profile.cli.running import Context, printing, show
from chainer_profile.runs.history import REPORTS, SORTS, Query, history, parse_since

_TABLE_ROWS = 20


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} history",
        description="Lists the runs under reports/, with those of sweeps. A run's name is its "
        "folder below that.",
    )
    group = parser.add_argument_group("which runs")
    group.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        help="words that must all be in a run's name, network, input, machine, layer or command",
    )
    group.add_argument("--model", metavar="NAME", default="", help="network, such as 'resnet*'")
    group.add_argument("--device", metavar="D", default="", type=_device, help="cpu, gpu:0, or gpu")
    group.add_argument(
        "--since",
        metavar="DATE",
        type=parse_since,
        help="begun on this day or later, such as 2026-11-21 (UTC)",
    )
    group.add_argument("--commit", metavar="C", default="", help="commit, or its beginning")
    group = parser.add_argument_group("what is shown")
    group.add_argument(
        "--sort", choices=tuple(SORTS), default="when", help="order (default: when, newest first)"
    )
    about = f"so many runs at most, 0 for all (default: {_TABLE_ROWS} in a table, else all)"
    take(group, "--limit", help=about, default=None)
    take(group, "--format", **{**FORM, "help": "form (default: %(default)s)"})
    group.add_argument(
        "--names", action="store_true", help="names only, one a line, for other commands"
    )
    group.add_argument(
        "--reports",
        metavar="DIR",
        type=folder,
        default=REPORTS,
        help="folder of the runs (default: %(default)s)",
    )
    take(group, "--debug")
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Print the runs that are asked for."""
    reports: Path = args.reports
    if reports.exists() and not reports.is_dir():
        raise UsageError(f"--reports {reports}: is a file; name a folder")
    if not reports.exists() and reports != REPORTS:
        raise UsageError(f"--reports {reports}: there is no such folder")
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
    by_default = _TABLE_ROWS if args.format == "table" and not args.names else 0
    limit = by_default if args.limit is None else args.limit
    shown = found.runs[:limit] if limit else found.runs
    if args.names:
        text = "\n".join(run.name for run in shown)
    elif not shown and args.format == "table":
        text = (
            f"none of {found.total:,d} runs under {reports}/ is such a run"
            if found.total
            else f"no runs under {reports}/"
        )
    else:
        from chainer_profile.report.content import history as content
        from chainer_profile.report.tables import to_csv
        from chainer_profile.report.writers import markdown

        blocks = content.overview(shown, len(found.runs) - len(shown))
        if args.format == "table":
            show(blocks)
            return 0
        csv = args.format == "csv"
        made = to_csv(content.COLUMNS, shown) if csv else markdown.write(blocks)
        text = made.rstrip("\n")
    if text:
        with printing():
            print(text, flush=True)
    return 0


def _device(text: str) -> str:
    """A pattern from a device as Chainer or the profiler names it."""
    if text in ("", "gpu", "cupy", "@cupy", "cuda"):
        return "gpu*" if text else ""
    if "*" in text or "?" in text:
        return text
    return named_device(parse_device(text))
