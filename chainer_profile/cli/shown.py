"""What ``run`` and ``report`` share: the options of what is shown, and showing it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.analyse.hotspots import DEFAULT_RULE, parse_rule
from chainer_profile.basics.choosing import split_names
from chainer_profile.basics.parsing import checked, number, whole
from chainer_profile.basics.words import DEFAULT_DEPTH, GROUPS
from chainer_profile.cli.options import add_limit, add_messages
from chainer_profile.cli.running import ALL_ROWS, printing
from chainer_profile.cli.running import show as print_blocks
from chainer_profile.runs.wanted import ALL, FILES, NONE, Wanted, parse_formats

if TYPE_CHECKING:
    from chainer_profile.record.recording import Recording

SORT_KEYS = (
    *("time", "median", "mean", "p95", "std", "index", "path", "name"),
    *("flops", "memory", "reached"),
)


def add_shown(parser: argparse.ArgumentParser) -> None:
    """Options of what is shown, which running and reporting share."""
    group = parser.add_argument_group("what is shown")
    layers_or_tree = group.add_mutually_exclusive_group()
    layers_or_tree.add_argument(
        "--tree",
        action="store_true",
        help="show the tree of links, with inclusive and exclusive times, in place of the layers",
    )
    layers_or_tree.add_argument(
        "--columns",
        metavar="A,B,C",
        type=checked(_layer_columns),
        help="columns of the layer table, such as path,median,verdict,peak (an unknown one lists "
        "all)",
    )
    group.add_argument(
        "--depth",
        metavar="N",
        type=whole(0),
        help=f"levels of the tree below the network (default: {DEFAULT_DEPTH}; 99 for all)",
    )
    group.add_argument(
        "--group-by",
        choices=GROUPS,
        default="function",
        help="what the second table adds up by (default: %(default)s)",
    )
    group.add_argument(
        "--macs",
        action="store_true",
        help="show multiply-adds of convolutions and matrix products in place of operations",
    )
    group.add_argument(
        "--hotspots",
        metavar="RULE",
        type=checked(parse_rule),
        default=DEFAULT_RULE,
        help="which layers are hot: 0.36ms, 5%%, top:10 or pareto:50%% (default: %(default)s, the "
        "fewest layers that hold half of the layers' time)",
    )
    group.add_argument(
        "--sort",
        choices=SORT_KEYS,
        default="time",
        help="order of the layer table; memory is the peak (default: time)",
    )
    group.add_argument(
        "--target",
        metavar="Fx",
        type=number("a number above 1 such as 2x", above=1, unit="x"),
        help="say which layers must become how fast for a trial that is so many times as fast, "
        "such as 1.5x",
    )
    add_limit(
        group,
        "rows of the layer table and of the groups on the terminal, 0 for all (default: 20)",
    )
    add_messages(group)
    group = parser.add_argument_group("reports")
    add_format(group)
    group.add_argument(
        "--json",
        action="store_true",
        help="print report.json on the standard output in place of the tables",
    )
    group.add_argument("--title", default="", help="title of the report")
    group.add_argument("--author", default="", help="who wrote it")
    group.add_argument("--course", default="", help="what it was written for")
    group.add_argument(
        "--trace-trial",
        metavar="N",
        type=whole(0),
        help="a trial that the trace shows beside the median one, counted from 0",
    )


def add_format(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The option of the report files; :func:`formats` reads it."""
    parser.add_argument(
        "--format",
        metavar="A,B",
        dest="formats",
        type=checked(parse_formats),
        default=(),
        help=f"files beside CSV, plots, report.md and report.html: {', '.join(FILES)} or {ALL}; "
        f"{NONE} writes no report at all",
    )


def formats(args: argparse.Namespace) -> Wanted:
    """The report files that are asked for."""
    asked = tuple(name for name in args.formats if name != NONE)
    return Wanted(asked, usual=NONE not in args.formats)


def _layer_columns(text: str) -> tuple[str, ...]:
    """Names of columns of the layer table."""
    from chainer_profile.report.layer_columns import choose_layer_columns

    return choose_layer_columns(split_names(text))


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
    from chainer_profile.report.content.overview import overview
    from chainer_profile.report.content.result_section import target
    from chainer_profile.report.document import text
    from chainer_profile.report.writers import json_report
    from chainer_profile.runs.write import write_reports

    summary = summarise(recording, args.hotspots)
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
        blocks = overview(
            summary,
            sort=args.sort,
            limit=args.limit or None,
            group_by=args.group_by,
            tree=args.tree,
            depth=DEFAULT_DEPTH if args.depth is None else args.depth,
            macs=args.macs,
            columns=args.columns,
            hint=ALL_ROWS,
        )
        print_blocks(blocks, quiet)
        if args.target is not None:
            print_blocks(target(summary, args.target), quiet)
    names = ", ".join(filter(None, (written, *(file.name for file in files))))
    if folder is not None and names:
        print_blocks([text(f"Written to {folder}: {names}")], quiet)
