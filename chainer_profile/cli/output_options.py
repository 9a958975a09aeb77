"""Options that several commands share: output on the terminal, and files."""

from __future__ import annotations

import argparse

from chainer_profile.analyse.hotspots import DEFAULT_RULE, parse_rule
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import folder, integer_at_least, split_names
from chainer_profile.basics.words import DEFAULT_DEPTH, GROUPS, SELF_TIME, TOTAL_TIME
from chainer_profile.cli.options import Group
from chainer_profile.runs.formats import ALL, FILES, NONE, PAGE, parse_formats

#: Orders of the layer table.
SORT_KEYS = (
    *("time", "median", "mean", "p95", "std", "index", "path", "name"),
    *("flops", "memory", "reached", SELF_TIME, TOTAL_TIME),
)


# -- the folder of the results


def add_output_options(
    parser: argparse.ArgumentParser,
    out_help: str,
    force_help: str = "replace a run in the --out folder, or write to a folder with other files",
) -> Group:
    """Add a group with ``--out`` and ``--force``; returns it for further options."""
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--out", metavar="DIR", type=folder, help=out_help)
    group.add_argument("--force", action="store_true", help=force_help)
    return group


def check_folder(args: argparse.Namespace) -> None:
    """Refuse ``--force`` without ``--out``: the default folder is always new."""
    if args.force and args.out is None:
        raise UsageError("--force replaces the run in a folder: name it with --out")


# -- the terminal


def add_message_options(group: Group) -> None:
    """Add ``--quiet`` and ``--debug``."""
    group.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_full_option(group: Group) -> None:
    about = "show everything, not only the first screen"
    group.add_argument("--full", action="store_true", help=about)


def add_tree_option(
    group: Group,
    help: str = "show the tree of links instead of the layers, down to this level below the "
    f"network (default: {DEFAULT_DEPTH}; 99 for all)",
) -> None:
    group.add_argument(
        "--tree",
        metavar="LEVELS",
        nargs="?",
        type=integer_at_least(0),
        const=DEFAULT_DEPTH,
        help=help,
    )


def add_hotspots_option(group: Group) -> None:
    about = (
        "which layers are hot: 0.36ms, 5%%, top:10 or pareto:50%% (default: %(default)s, the "
        "fewest that take half of the layers' time, down to the next gap)"
    )
    group.add_argument(
        "--hotspots", metavar="RULE", type=parse_rule, default=DEFAULT_RULE, help=about
    )


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add a group of the options of a run's tables on the terminal."""
    group = parser.add_argument_group("what is shown")
    views = group.add_mutually_exclusive_group()
    add_tree_option(views)
    about = (
        "columns of the layer table, such as path,median,verdict,peak (an unknown one lists all)"
    )
    views.add_argument("--columns", metavar="A,B,C", type=_layer_columns, help=about)
    add_full_option(group)
    about = "print only the times by function, link, block or shape (with --full: by function)"
    group.add_argument("--group-by", choices=GROUPS, help=about)
    add_hotspots_option(group)
    about = (
        "order of the layer table, or self or total for --group-by; memory is the peak (default: "
        "time)"
    )
    group.add_argument("--sort", choices=SORT_KEYS, default=SORT_KEYS[0], help=about)
    about = (
        "rows of the tables of layers and groups on the terminal, 0 for all (default: 10, or 20 "
        "with --full)"
    )
    group.add_argument("--limit", metavar="N", type=integer_at_least(0), help=about)
    add_message_options(group)


def _layer_columns(text: str) -> tuple[str, ...]:
    """Parse names of columns of the layer table; an unknown name is an error that lists all."""
    from chainer_profile.report.columns import LAYER_COLUMNS
    from chainer_profile.report.tables import choose

    return choose(split_names(text), LAYER_COLUMNS, "the layer table")


# -- reports


def add_format_option(group: Group) -> None:
    about = (
        f"more files: {', '.join(FILES)} or {ALL}, and trace:N for a trace that also shows trial "
        f"N, from 0; {PAGE}: also the page and pictures of a short program; {NONE}: no reports"
    )
    group.add_argument(
        "--format", dest="formats", metavar="A,B", type=parse_formats, default=(), help=about
    )


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add a group of the options of a run's reports."""
    group = parser.add_argument_group("reports")
    add_format_option(group)
    about = "print report.json and nothing else"
    group.add_argument("--json", action="store_true", help=about)
    group.add_argument("--title", default="", help="title of the report")
    group.add_argument("--author", default="", help="who wrote it")
    group.add_argument("--course", default="", help="the course it was written for")
