"""What commands print, as wide as the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from chainer_profile.cli.main import printing
from chainer_profile.report.document import Block, text
from chainer_profile.report.writers import terminal

#: How to see what a first screen leaves out, and the rows that --limit leaves out.
FULL, ALL_ROWS = "--full shows all", "--limit 0 shows all"
#: Names of files that are told.
_MOST_NAMES = 4


def show(blocks: Iterable[Block], quiet: bool = False, *, hint: str = "") -> None:
    """Print a document on the standard output; in colour where that is a terminal.

    With a ``hint`` only a first screen of it.
    """
    if quiet:
        return
    console = terminal.standard_output()
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
    # What was asked for by its format goes before what every run writes.
    first = sorted(
        names,
        key=lambda name: (
            not name.endswith((".html", ".md")),
            name.endswith((".csv", ".png", ".svg", ".npz")),
        ),
    )
    shown = first if len(first) <= _MOST_NAMES + 1 else first[:_MOST_NAMES]
    more = len(first) - len(shown)
    others = f" and {more} more files" if more else ""
    show([text(f"Written to {folder}: {', '.join(shown)}{others}")], quiet)
