"""Arguments of ``export``."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.basics.errors import UsageError
from chainer_profile.cli import options, output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Exports a network to an ONNX file, and compares its outputs under ONNX Runtime with "
        "Chainer's."
    )
    parser.add_argument("file", metavar="FILE.onnx", type=Path, help="the file to write")
    options.add_seed_option(options.add_network_options(parser))
    about = (
        "make a file for this batch size alone (default: for any, if the network allows it, else "
        "for 1)"
    )
    options.add_input_options(parser, about)
    output = parser.add_argument_group("output")
    output.add_argument("--force", action="store_true", help="replace an existing file")
    output_options.add_message_options(output)


def check(args: argparse.Namespace) -> None:
    options.check_input(args)
    if args.file.suffix != ".onnx":
        raise UsageError(f"{args.file}: name a file that ends with .onnx")
    if args.file.is_dir():
        raise UsageError(f"{args.file} is a folder; name a file")
    if args.file.exists() and not args.force:
        raise UsageError(f"{args.file} exists already; replace it with --force")
