"""Arguments of ``engines``."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import fraction, integer_at_least, positive_seconds, split_names
from chainer_profile.cli import options, output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a network under several engines, compares their outputs with Chainer's, and shows "
        "how fast each engine is and what became of each layer."
    )
    options.add_network_options(parser)
    options.add_input_options(parser)
    _add_engines(parser.add_argument_group("engines"))
    measuring = parser.add_argument_group("measuring")
    about = "trials of each engine, in turn; then up to 200 for its layers (default: %(default)s)"
    measuring.add_argument(
        "-n", "--trials", metavar="N", type=integer_at_least(1), default=1000, help=about
    )
    about = "warm-up runs of each engine, for at most 10 s (default: %(default)s)"
    measuring.add_argument(
        "-w", "--warmups", metavar="N", type=integer_at_least(0), default=10, help=about
    )
    about = "time limit for the trials"
    measuring.add_argument("--max-seconds", metavar="S", type=positive_seconds, help=about)
    options.add_device_options(measuring)
    options.add_seed_option(measuring)
    results = "folder of the results (default: the next free reports/engines-MODEL-DEVICE-bBATCH)"
    output = output_options.add_output_options(parser, results)
    output_options.add_full_option(output)
    output_options.add_message_options(output)


def _add_engines(group: options.Group) -> None:
    about = (
        "names from --list-engines, onnxruntime:PROVIDER for another execution provider, or "
        "module:Class of your own; chainer always runs (default: chainer, chainer-fast, "
        "onnxruntime)"
    )
    group.add_argument("--engines", metavar="A,B", type=split_names, help=about)
    group.add_argument("--list-engines", action="store_true", help="list the engines and exit")
    about = "accepted difference, as a fraction of the largest output (default: 1e-4)"
    group.add_argument("--tolerance", metavar="F", type=fraction, help=about)
    about = "run an engine from this file (export writes one), with the file's weights"
    group.add_argument("--load-engine", metavar="FILE", type=Path, help=about)


def check(args: argparse.Namespace) -> None:
    if args.list_engines:
        return
    output_options.check_folder(args)
    options.check_input(args)
    if args.load_engine is not None and not args.load_engine.is_file():
        raise UsageError(f"--load-engine {args.load_engine}: there is no such file")
