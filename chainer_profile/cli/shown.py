"""Printing, as wide as the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from chainer_profile.cli.main import printing
from chainer_profile.report.document import Block, text
from chainer_profile.report.writers import terminal

#: Hints for the rest of a first screen, and of a table.
FULL, ALL_ROWS = "--full shows all", "--limit 0 shows all"
#: Files that are named when they are written.
_MAX_FILES_NAMED = 4


def show(blocks: Iterable[Block], quiet: bool = False, *, hint: str = "") -> None:
    """Print a document on the standard output, in colour on a terminal.

    With a ``hint`` only its first screen, and the hint.
    """
    if quiet:
        return
    console = terminal.standard_output()
    if hint:
        blocks = terminal.first_screen(blocks, console.width, hint)
    with printing():
        terminal.show(blocks, console)


def row_limit(args: argparse.Namespace) -> int | None:
    """Rows of the longest table by ``--limit`` and ``--full``; None for all."""
    if args.limit is not None:
        return args.limit or None
    return 20 if args.full else 10


def first_screen(args: argparse.Namespace) -> str:
    """The hint of :func:`show`; empty if options ask for a longer output."""
    return "" if args.full or getattr(args, "limit", None) is not None else FULL


def say_report(folder: Path, names: Sequence[str], quiet: bool = False) -> None:
    """``Report: reports/net/report.html    every layer: --limit 0``; other files without it."""
    if "report.html" not in names:
        say_written(folder, names, quiet)
        return
    show([text(f"Report: {folder / 'report.html'}    every layer: --limit 0")], quiet)


def say_written(folder: Path, names: Sequence[str], quiet: bool = False) -> None:
    """``Written to reports/net: report.html, report.md and 7 more files``."""
    # Files that --format names go before those of every run.
    usual = (".csv", ".png", ".svg", ".npz")
    pages = (".html", ".md")
    ordered = sorted(names, key=lambda name: (not name.endswith(pages), name.endswith(usual)))
    shown = ordered if len(ordered) <= _MAX_FILES_NAMED + 1 else ordered[:_MAX_FILES_NAMED]
    left = len(ordered) - len(shown)
    others = f" and {left} more files" if left else ""
    show([text(f"Written to {folder}: {', '.join(shown)}{others}")], quiet)
