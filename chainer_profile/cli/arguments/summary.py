"""Arguments of ``summary``."""

from __future__ import annotations

import argparse

from chainer_profile.basics.parsing import integer_at_least
from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.cli import options, output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Shows a network's layers, parameters, operations, bytes and memory. Nothing is timed."
    )
    network = options.add_network_options(parser)
    about = "inference, the only choice here"
    network.add_argument("--phase", choices=("forward",), default="forward", help=about)
    options.add_seed_option(network)
    options.add_input_options(parser, "inputs in the batch (default: 1)")
    shown = parser.add_argument_group("what is shown")
    tree = "one row per link down to this level, instead of one per layer"
    output_options.add_tree_option(shown, f"{tree} (default: {DEFAULT_DEPTH})")
    about = "columns of the table, such as path,output_shapes,macs (an unknown one lists all)"
    shown.add_argument("--columns", metavar="A,B,C", help=about)
    about = "rows of the table on the terminal, 0 for all (default: all)"
    shown.add_argument("--limit", metavar="N", type=integer_at_least(0), help=about)
    about = "form of the output (default: %(default)s)"
    forms = ("table", "csv", "markdown")
    shown.add_argument("--format", choices=forms, default="table", help=about)
    shown.add_argument("--debug", action="store_true", help="show the traceback of an error")


def check(args: argparse.Namespace) -> None:
    options.check_input(args)
