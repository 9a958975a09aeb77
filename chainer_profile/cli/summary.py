"""``summary``: what a network consists of, without timing."""

from __future__ import annotations

import argparse
from typing import Any

from chainer_profile.basics.choosing import split_names
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.parsing import Parser, input_shape
from chainer_profile.basics.words import PROG
from chainer_profile.cli.options import FORM, ONE_SHAPE, take
from chainer_profile.cli.running import ALL_ROWS, Context, printing, show


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} summary",
        description="Shows a network's layers with output shapes, parameters, operations and "
        "bytes, its totals and the memory of its arrays. Nothing is timed.",
    )
    group = parser.add_argument_group("network")
    take(group, "--model", "--classes")
    take(group, "--phase", choices=("forward",), help="inference, the only one here")
    group = parser.add_argument_group("input")
    take(group, "--input-shape", **ONE_SHAPE)
    take(group, "--input-size", "--input-dtype")
    take(group, "--batchsize", help="inputs in the batch (default: 1)", default=1)
    group = parser.add_argument_group("what is shown")
    about = "one row a link, to so many levels below the network, in place of one a layer"
    take(group, "--depth", help=about)
    about = "columns of the table, such as path,output_shapes,macs (an unknown one lists all)"
    take(group, "--columns", help=about, type=str)
    about = "rows of the table on the terminal, 0 for all (default: all)"
    take(group, "--limit", help=about, default=None)
    take(group, "--format", **FORM)
    take(group, "--debug")
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Run the command; returns the exit code."""
    from chainer_profile.report.content import network as content

    view = content.LAYERS if args.depth is None else content.LINKS
    columns = None
    if args.columns is not None:
        # Before the network is built: a name is soon mistyped.
        columns = content.choose_columns(view, split_names(args.columns))

    from chainer_profile.networks import loading

    source = loading.find_model(args.model, context.registry, args.classes)
    shape = input_shape(args, source.input_shape)

    from chainer_profile.measure.network import summary

    model = loading.build_model(source, 0)
    try:
        found = summary(model, (args.batchsize, *shape), args.input_dtype, name=source.name)
    except ProfileError as error:
        if "dtype.kind == i" in str(error):  # Chainer's words for a function that takes indices
            raise ProfileError(f"{error}; for whole numbers give --input-dtype int32") from error
        raise
    asked: dict[str, Any] = {"view": view, "depth": args.depth or 0, "columns": columns}
    if args.format == "table":
        show(content.overview(found, limit=args.limit or None, hint=ALL_ROWS, **asked))
        return 0

    from chainer_profile.report.writers import markdown

    with printing():
        if args.format == "csv":
            print(content.to_file(found, **asked), end="", flush=True)
        else:
            print(markdown.write(content.overview(found, **asked)), end="", flush=True)
    return 0
