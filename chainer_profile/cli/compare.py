"""``compare``: changes between runs, and whether they are noise."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.words import PROG
from chainer_profile.cli import FAILED
from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.output import ALL_ROWS, first_screen_hint, row_limit, say_written, show
from chainer_profile.comparison.compare import Comparison, compare
from chainer_profile.comparison.sides import Side
from chainer_profile.report import page
from chainer_profile.report.content import comparison as content
from chainer_profile.report.content.comparison_tables import COLUMNS, file_rows
from chainer_profile.report.content.gate import Gate, failure_lines, why_not_judged
from chainer_profile.report.document import Heading
from chainer_profile.report.tables import to_csv
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from chainer_profile.runs.folder import load_run
from chainer_profile.runs.output_files import refuse_foreign, remove, write
from chainer_profile.runs.write import program_of


def run(args: argparse.Namespace, context: Context) -> int:
    """Compare the runs; the exit code is 3 if the gate fails."""
    if args.out is not None:
        refuse_foreign(args.out, _is_ours, "comparison", (args.out / content.CSV).exists())
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
    gate = None if args.fail_above is None else Gate(args.fail_above, args.gate == "cpu")
    shown = {"sort": args.sort, "everything": args.full, "gate": gate}
    written = [] if args.out is None else _write(comparisons, args, shown)
    for index, comparison in enumerate([] if args.quiet else comparisons):
        if index:
            with printing():
                print()
        if len(comparisons) > 1:
            show([Heading(2, comparison.after.name)])
        blocks = content.comparison_blocks(
            comparison, hint=ALL_ROWS, limit=row_limit(args), **shown
        )
        show(blocks, hint=first_screen_hint(args))
    if written:
        say_written(args.out, [path.name for path in written], args.quiet)
    return 0 if gate is None else _check_gate(comparisons, gate)


def _side(text: str) -> Side:
    """Load the runs of a side: a folder or file, or several of them separated by commas."""
    # A folder may have a comma in its name.
    names = [text] if "," not in text or Path(text).exists() else text.split(",")
    if not all(names):
        raise UsageError(f"{text!r}: name a folder before and after each comma")
    paths = list(map(Path, names))
    runs = tuple(map(load_run, paths))
    programs = [program_of(path, run) for path, run in zip(paths, runs, strict=True)]
    budgets = tuple(program.budget for program in programs if program is not None)
    return Side(text, runs, budgets if len(budgets) == len(runs) else ())


def _write(
    comparisons: Sequence[Comparison], args: argparse.Namespace, shown: dict[str, Any]
) -> list[Path]:
    """Write tables, plots and page into the --out folder; returns the files."""
    from chainer_profile.report.pictures.comparison import pictures  # loads Matplotlib

    drawn, plots = pictures(comparisons), ["comparison.png"]
    if len(comparisons) > 1:
        plots = [f"comparison-{index}.png" for index in range(1, 1 + len(comparisons))]
    rows = 20 if args.limit is None else args.limit or None
    blocks = content.report(comparisons, plots, limit=rows, **shown)
    page_blocks = content.report(comparisons, [*drawn], everything=True)
    contents: dict[str, str | bytes] = {
        content.CSV: to_csv(COLUMNS, file_rows(comparisons)),
        **{name: plot.png() for name, plot in zip(plots, drawn.values(), strict=True)},
        "comparison.md": markdown.write(blocks),
        "comparison.html": page.page(page_blocks, "Comparison", drawn),
    }
    is_replaced = (args.out / content.CSV).exists()
    written = write(args.out, contents)
    if is_replaced:  # the old comparison may have had more runs, and so more plots
        remove(args.out, lambda name: _is_ours(name) and name not in contents)
    return written


def _is_ours(name: str) -> bool:
    """Whether a comparison may write a file of this name into its folder."""
    return re.fullmatch(r"comparison\.(csv|md|html)|comparison(-\d+)?\.png", name) is not None


def _check_gate(comparisons: Sequence[Comparison], gate: Gate) -> int:
    """Print each reason why the gate fails on standard error; returns the exit code.

    Raises ProfileError if nothing fails, but a comparison cannot be judged.
    """
    failed = False
    for comparison in comparisons:
        where = f"{printable(comparison.after.name)}: " if len(comparisons) > 1 else ""
        for line in failure_lines(comparison, gate):
            failed = True
            print(f"{PROG}: slower: {where}{line}", file=sys.stderr)
    if failed:
        return FAILED
    reasons = [why_not_judged(comparison, gate) for comparison in comparisons]
    if any(reasons):
        raise ProfileError(f"--fail-above cannot be judged: {next(filter(None, reasons))}")
    return 0
