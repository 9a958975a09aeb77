"""Prints documents on the terminal, in its width."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from chainer_profile.cli.main import printing
from chainer_profile.report.document import Block, text
from chainer_profile.report.writers import terminal

#: Hints how to print the rest of a first screen, and of a table.
FULL, ALL_ROWS = "--full shows all", "--limit 0 shows all"
#: Most files that a message names.
_MAX_FILES_NAMED = 4


def show(blocks: Iterable[Block], quiet: bool = False, *, hint: str = "") -> None:
    """Print a document on the standard output, in colour on a terminal.

    With a ``hint``, print only the first screen, and the hint if something is left out.
    """
    if quiet:
        return
    console = terminal.standard_output()
    if hint:
        blocks = terminal.fit_on_screen(blocks, console.width, hint)
    with printing():
        terminal.show(blocks, console)


def row_limit(args: argparse.Namespace) -> int | None:
    """Most rows of a table, from ``--limit`` and ``--full``; None for all."""
    if args.limit is not None:
        return args.limit or None
    return 20 if args.full else 10


def first_screen_hint(args: argparse.Namespace) -> str:
    """The ``hint`` for :func:`show`; empty if the options ask for a longer output."""
    return "" if args.full or getattr(args, "limit", None) is not None else FULL


def say_report(folder: Path, names: Sequence[str], quiet: bool = False) -> None:
    """Print the path of report.html, or all ``names`` if it is not among them."""
    if "report.html" not in names:
        say_written(folder, names, quiet)
        return
    show([text(f"Report: {folder / 'report.html'}    every layer: --limit 0")], quiet)


def say_written(folder: Path, names: Sequence[str], quiet: bool = False) -> None:
    """Print ``Written to reports/net: report.html, report.md and 7 more files``."""
    # Pages come first, then files of --format, then files of every run.
    usual = (".csv", ".png", ".svg", ".npz")
    pages = (".html", ".md")
    ordered = sorted(names, key=lambda name: (not name.endswith(pages), name.endswith(usual)))
    shown = ordered if len(ordered) <= _MAX_FILES_NAMED + 1 else ordered[:_MAX_FILES_NAMED]
    left = len(ordered) - len(shown)
    others = f" and {left} more files" if left else ""
    show([text(f"Written to {folder}: {', '.join(shown)}{others}")], quiet)
