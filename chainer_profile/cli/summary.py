"""``summary``: a network's layers, without timing."""

from __future__ import annotations

import argparse
from typing import Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.parsing import input_shape, split_names
from chainer_profile.cli import asked
from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.shown import ALL_ROWS, show
from chainer_profile.measure.network import summary
from chainer_profile.networks import loading
from chainer_profile.report.content import network as content
from chainer_profile.report.writers import markdown


def run(args: argparse.Namespace, context: Context) -> int:
    """Print the table of the layers, or of the links."""
    view = content.LAYERS if args.tree is None else content.LINKS
    columns = None
    if args.columns is not None:
        # Before the network is built: a name is soon mistyped.
        columns = content.choose_columns(view, split_names(args.columns))
    source = asked.find_source(args, context)
    args.input_shape, dtype = args.input_shape or (None, "float32")
    shape = args.batchsize, *input_shape(args, source.input_shape)
    model = loading.build_model(source, 0)
    try:
        network = summary(model, shape, dtype, name=source.name)
    except ProfileError as error:
        if "dtype.kind == i" in str(error):  # Chainer's words for a function that takes indices
            hint = "for whole numbers give --input-shape SHAPE:int32"
            raise ProfileError(f"{error}; {hint}") from error
        raise
    shown: dict[str, Any] = {"view": view, "depth": args.tree or 0, "columns": columns}
    if args.format == "table":
        show(content.overview(network, limit=args.limit or None, hint=ALL_ROWS, **shown))
        return 0
    with printing():
        if args.format == "csv":
            print(content.to_file(network, **shown), end="", flush=True)
        else:
            print(markdown.write(content.overview(network, **shown)), end="", flush=True)
    return 0
