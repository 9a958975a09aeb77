"""``summary``: what a network consists of, without timing."""

from __future__ import annotations

import argparse
from typing import Any

from chainer_profile.basics.choosing import split_names
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.parsing import Parser, input_shape, whole
from chainer_profile.basics.words import PROG
from chainer_profile.cli.options import (
    add_batchsize,
    add_classes,
    add_debug,
    add_input_shape,
    add_limit,
    add_model,
)
from chainer_profile.cli.running import ALL_ROWS, Context, printing, show

_FORMATS = ("table", "csv", "markdown")
_DTYPES = ("float32", "float16", "float64", "int32", "int64")


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} summary",
        description="Shows a network's layers with output shapes, parameters, operations and "
        "bytes, its totals and the memory of its arrays. Nothing is timed.",
    )
    group = parser.add_argument_group("network")
    add_model(group)
    add_classes(group)
    group.add_argument(
        "--phase", choices=("forward",), default="forward", help="inference, the only one here"
    )
    group = parser.add_argument_group("input")
    add_input_shape(group)
    group.add_argument(
        "--input-dtype",
        choices=_DTYPES,
        default=_DTYPES[0],
        help="data type of the input; integers are 0, for a network of indices (default: "
        "%(default)s)",
    )
    add_batchsize(group, "inputs in the batch")
    group = parser.add_argument_group("what is shown")
    group.add_argument(
        "--depth",
        metavar="N",
        type=whole(0),
        help="one row a link, to so many levels below the network, in place of one a layer",
    )
    group.add_argument(
        "--columns",
        metavar="A,B,C",
        help="columns of the table, such as path,output_shapes,macs (an unknown one lists all)",
    )
    add_limit(group, "rows of the table on the terminal, 0 for all (default: all)", None)
    group.add_argument(
        "--format",
        choices=_FORMATS,
        default=_FORMATS[0],
        help="form of the output (default: %(default)s)",
    )
    add_debug(group)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Print the network's table."""
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
            print(content.render_csv(found, **asked), end="", flush=True)
        else:
            print(markdown.write(content.overview(found, **asked)), end="", flush=True)
    return 0
