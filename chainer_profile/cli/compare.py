"""``compare``: what became faster or slower between runs, and whether it is noise."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import PROG
from chainer_profile.cli.options import MESSAGES, take
from chainer_profile.cli.running import (
    ALL_ROWS,
    FAILED,
    Context,
    first_screen,
    printing,
    row_limit,
    show,
    written_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainer_profile.comparison.compare import Comparison, Side

_SORTS = ("change", "time", "index", "path")


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} compare",
        description="Compares runs layer by layer, and says what is noise. The first run is the "
        "one that each of the others is compared with. Several runs of the same thing, separated "
        "by commas (A1,A2,A3 B1,B2,B3), are taken together, which measures how runs differ.",
    )
    parser.add_argument(
        "runs", metavar="DIR", nargs="+", help="folders of runs, or recordings, two at least"
    )
    take(parser.add_argument_group("judging"), "--min-effect", "--fail-above", "--gate")
    group = parser.add_argument_group("what is shown")
    about = (
        "order of the layers; change is by the time that a trial gains or loses (default: "
        "%(default)s)"
    )
    take(group, "--sort", help=about, choices=_SORTS, default=_SORTS[0])
    about = "rows of the layer table, 0 for all (default: 10, with --full 20)"
    take(group, "--limit", help=about)
    take(group, "--full", "--all")
    take(group, "--out", help="write comparison.csv, .md, .png and .html into this folder")
    take(group, *MESSAGES)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Compare the runs; the exit code is 3 where the gate fails."""
    if len(args.runs) < 2:
        raise UsageError(f"give two runs at least: {PROG} compare BEFORE AFTER")
    if args.fail_above is not None and args.fail_above < args.min_effect:
        raise UsageError("--fail-above is less than --min-effect, below which nothing is a change")
    if args.gate == "cpu" and args.fail_above is None:
        raise UsageError("--gate cpu goes with --fail-above")

    from chainer_profile.comparison.compare import compare
    from chainer_profile.report.text import printable

    before, *others = map(_side, args.runs)
    comparisons = []
    for other in others:
        try:
            comparisons.append(compare(before, other, args.min_effect))
            if args.gate == "cpu":
                comparisons[-1].check_cpu()
        except ProfileError as error:
            where = f"{other.name}: " if len(others) > 1 else ""
            raise ProfileError(printable(f"{where}{error}")) from error
    written = _write(comparisons, args) if args.out is not None else []
    if not args.quiet:
        _print(comparisons, args, written)
    return _gate(comparisons, args) if args.fail_above is not None else 0


def _side(text: str) -> Side:
    """The runs of one side; a folder whose name has a comma is taken as it is."""
    from chainer_profile.comparison.compare import Side
    from chainer_profile.runs.folder import load_run
    from chainer_profile.runs.history import resolve_run

    names = [text] if "," not in text or Path(text).exists() else text.split(",")
    if not all(names):
        raise UsageError(f"{text!r}: name a folder before and after each comma")
    return Side(text, tuple(load_run(resolve_run(name)) for name in names))


def _write(comparisons: Sequence[Comparison], args: argparse.Namespace) -> list[Path]:
    """Write everything into a folder; returns the files."""
    from chainer_profile.report import page
    from chainer_profile.report.content import comparison as content
    from chainer_profile.report.pictures.comparison import figure
    from chainer_profile.report.pictures.figures import Picture
    from chainer_profile.report.tables import to_csv
    from chainer_profile.report.writers import markdown
    from chainer_profile.runs.written import write_files

    several = len(comparisons) > 1
    plots = [
        f"comparison{f'-{at}' if several else ''}.png" for at in range(1, 1 + len(comparisons))
    ]
    contents = {"comparison.csv": to_csv(content.COLUMNS, content.file_rows(comparisons)).encode()}
    for name, comparison in zip(plots, comparisons, strict=True):
        contents[name] = Picture(partial(figure, comparison)).png()
    rows = 20 if args.limit is None else args.limit or None
    blocks = content.report(comparisons, plots, **{**_shown(args), "limit": rows})
    contents["comparison.md"] = markdown.write(blocks).encode()
    contents["comparison.html"] = page.render_comparison(comparisons).encode()
    return write_files(args.out, contents)


def _shown(args: argparse.Namespace) -> dict[str, Any]:
    """What the options ask for."""
    from chainer_profile.report.content.comparison import Gate

    gate = None if args.fail_above is None else Gate(args.fail_above, args.gate == "cpu")
    limit = row_limit(args)
    return {"sort": args.sort, "everything": args.all, "limit": limit, "gate": gate}


def _print(
    comparisons: Sequence[Comparison], args: argparse.Namespace, written: Sequence[Path]
) -> None:
    from chainer_profile.report.content.comparison import compared
    from chainer_profile.report.document import Heading, text

    for at, comparison in enumerate(comparisons):
        if at:
            with printing():
                print()
        if len(comparisons) > 1:
            show([Heading(2, comparison.after.name)])
        show(compared(comparison, hint=ALL_ROWS, **_shown(args)), hint=first_screen(args))
    if written:
        show([text(written_text(args.out, [path.name for path in written]))])


def _gate(comparisons: Sequence[Comparison], args: argparse.Namespace) -> int:
    """Say on the standard error what the gate fails for, a line each; returns the exit code."""
    from chainer_profile.report.content.comparison import failures, not_judged
    from chainer_profile.report.text import printable

    gate = _shown(args)["gate"]
    failed, unknown = False, ""
    for comparison in comparisons:
        unknown = unknown or not_judged(comparison, gate)
        for line in failures(comparison, gate):
            failed = True
            where = f"{printable(comparison.after.name)}: " if len(comparisons) > 1 else ""
            print(f"{PROG}: slower: {where}{line}", file=sys.stderr)
    if failed:
        return FAILED
    if unknown:
        raise ProfileError(f"--fail-above cannot be judged: {unknown}")
    return 0
