"""What the command line takes: its options, and how their values are read."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.analyse.hotspots import DEFAULT_RULE, parse_rule
from chainer_profile.basics.choosing import split_names
from chainer_profile.basics.parsing import Parser, checked, folder, whole
from chainer_profile.basics.units import parse_nbytes, parse_percent
from chainer_profile.basics.words import (
    DEFAULT_DEPTH,
    DTYPES,
    GROUPS,
    LOSSES,
    PHASES,
    PROG,
    VERSION,
)
from chainer_profile.cli.options import (
    add_classes,
    add_input,
    add_machine,
    add_max_seconds,
    add_messages,
    add_model,
    add_seed,
    add_weights,
)
from chainer_profile.runs.formats import ALL, FILES, NONE, Wanted, parse_formats

SORT_KEYS = (
    *("time", "median", "p95", "std", "index", "path", "name"),
    *("flops", "memory", "reached"),
)


def _add_gpu(parser: argparse.ArgumentParser) -> None:
    """Options that only a GPU has; :func:`gpu_options` says which were given."""
    group = parser.add_argument_group("on a GPU")
    cudnn = group.add_mutually_exclusive_group()
    cudnn.add_argument("--no-cudnn", action="store_true", help="do not use cuDNN")
    cudnn.add_argument(
        "--cudnn-autotune",
        action="store_true",
        help="let cuDNN try its convolution algorithms, and take the fastest",
    )
    group.add_argument(
        "--workspace",
        metavar="SIZE",
        type=checked(parse_nbytes),
        help="memory that a convolution of cuDNN may work in, such as 64MiB (default: Chainer's, "
        "8 MiB)",
    )
    group.add_argument(
        "--tf32",
        action="store_true",
        help="let float32 matrix products round their inputs to TF32 (CUPY_TF32=1)",
    )
    group.add_argument(
        "--nvtx",
        action="store_true",
        help="make ten more trials with the layers as NVTX ranges, for nsys profile "
        "--capture-range=cudaProfilerApi",
    )


def gpu_options(args: argparse.Namespace) -> list[str]:
    """Those of the options that only a GPU has which were given."""
    given = {
        "--no-cudnn": args.no_cudnn,
        "--cudnn-autotune": args.cudnn_autotune,
        "--workspace": args.workspace is not None,
        "--tf32": args.tf32,
        "--nvtx": args.nvtx,
    }
    return [option for option, is_given in given.items() if is_given]


def _add_shown(parser: argparse.ArgumentParser) -> None:
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
        type=checked(layer_columns),
        help="columns of the layer table, such as path,mean,verdict,peak (an unknown one lists "
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
        "--limit",
        metavar="N",
        type=whole(0),
        default=20,
        help="rows of the layer table and of the groups on the terminal, 0 for all (default: 20)",
    )
    add_messages(group)
    group = parser.add_argument_group("reports")
    group.add_argument(
        "--format",
        metavar="A,B",
        dest="formats",
        type=checked(parse_formats),
        default=(),
        help=f"files beside CSV, plots, report.md and report.html: {', '.join(FILES)} or {ALL}; "
        f"with json, JSON is printed in place of the tables; {NONE} writes no report at all",
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


def wanted(args: argparse.Namespace) -> Wanted:
    """What the options ask for beside the usual reports."""
    from chainer_profile.report.content.coursework import ReportTitle

    title = ReportTitle(title=args.title, author=args.author, course=args.course)
    asked = tuple(name for name in args.formats if name != NONE)
    return Wanted(asked, title, args.trace_trial, usual=NONE not in args.formats)


def run_parser() -> argparse.ArgumentParser:
    """Options of a run."""
    parser = Parser(
        prog=PROG,
        description="Profiles a Chainer network layer by layer and writes tables, a plot and a "
        f"report. Other commands: {PROG} report DIR makes the reports of a run again; "
        f"{PROG} summary shows a network's layers without timing; {PROG} machine shows what this "
        f"machine can do at best; {PROG} compare compares runs; {PROG} sweep runs many cases; "
        f"{PROG} history lists the runs; {PROG} engines runs the network under faster engines; "
        f"{PROG} export writes it for them.",
    )
    parser.add_argument("--version", action="version", version=VERSION)

    group = parser.add_argument_group("network")
    add_model(group)
    group.add_argument("--list-models", action="store_true", help="list the networks and exit")
    add_classes(group)
    add_weights(group)

    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default=DTYPES[0],
        help="data type of parameters and input (Chainer's config.dtype; mixed16 is float16 with "
        "float32 where precision needs it; default: %(default)s)",
    )

    group = parser.add_argument_group("what a trial is")
    group.add_argument(
        "--phase",
        choices=PHASES,
        default=PHASES[0],
        help="forward: inference; forward-backward: with a loss and its backward; train: a whole "
        "step, with the update by momentum SGD (default: %(default)s)",
    )
    group.add_argument(
        "--loss",
        choices=LOSSES,
        default=LOSSES[0],
        help="loss to go back from, against random labels; output: the network gives its loss "
        "(default: %(default)s, softmax_cross_entropy unless the output is one number)",
    )
    group.add_argument(
        "--train-mode",
        action="store_true",
        help="run the forward phase with chainer.config.train on; inference is done in test mode, "
        "without it",
    )

    group = parser.add_argument_group("input")
    add_input(group)

    group = parser.add_argument_group("measuring")
    group.add_argument(
        "-n",
        "--trials",
        metavar="N",
        type=whole(1),
        default=1000,
        help="profiled trials (default: %(default)s)",
    )
    group.add_argument(
        "--clean-trials",
        metavar="N",
        type=whole(0),
        help="trials without hooks on top (default: a tenth of the trials, at least 5)",
    )
    group.add_argument(
        "-w",
        "--warmups",
        metavar="N",
        type=whole(0),
        default=50,
        help="warm-up trials (default: %(default)s)",
    )
    add_max_seconds(group)
    group.add_argument(
        "--until-ci",
        metavar="PCT",
        type=checked(parse_percent),
        help="end the trials when the 95%% interval of the mean trial is within PCT per cent",
    )
    add_machine(group, "-d")
    group.add_argument(
        "--no-memory",
        action="store_true",
        help="leave out the memory pass, two trials more after the timed ones",
    )
    group.add_argument(
        "--no-machine",
        action="store_true",
        help="leave out the machine's limits, which are measured after the trials of the first run "
        "and kept for later ones",
    )
    add_seed(group)

    _add_gpu(parser)

    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        type=folder,
        help="folder of the results (default: the next free reports/MODEL-DEVICE-bBATCH)",
    )
    group.add_argument("--force", action="store_true", help="replace a run in the --out folder")
    _add_shown(parser)
    return parser


def report_parser() -> argparse.ArgumentParser:
    """Options of making the reports again."""
    parser = Parser(
        prog=f"{PROG} report",
        description="Makes the table, the plot and the report of a run again, from its recording "
        "alone. Recovers the trials of a run that was killed.",
    )
    parser.add_argument("run", metavar="DIR", type=Path, help="folder of a run, or a recording")
    _add_shown(parser)
    return parser


def machine_parser() -> argparse.ArgumentParser:
    """Options of showing the machine's limits."""
    parser = Parser(
        prog=f"{PROG} machine",
        description="Shows what this machine can do at best: the rate of matrix products and of "
        "copies. They are measured once, which takes some seconds, and kept.",
    )
    group = parser.add_argument_group("measuring")
    add_machine(group, "-d")
    group.add_argument("--refresh", action="store_true", help="measure again, and keep that")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def layer_columns(text: str) -> tuple[str, ...]:
    """Names of columns of the layer table."""
    from chainer_profile.report.layer_columns import choose_layer_columns

    return choose_layer_columns(split_names(text))
