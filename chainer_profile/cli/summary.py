"""``summary``: what a network consists of, without timing."""

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
    view = content.LAYERS if args.depth is None else content.LINKS
    columns = None
    if args.columns is not None:
        # Before the network is built: a name is soon mistyped.
        columns = content.choose_columns(view, split_names(args.columns))
    source = asked.find_source(args, context)
    shape = args.batchsize, *input_shape(args, source.input_shape)
    model = loading.build_model(source, 0)
    try:
        found = summary(model, shape, args.input_dtype, name=source.name)
    except ProfileError as error:
        if "dtype.kind == i" in str(error):  # Chainer's words for a function that takes indices
            raise ProfileError(f"{error}; for whole numbers give --input-dtype int32") from error
        raise
    how: dict[str, Any] = {"view": view, "depth": args.depth or 0, "columns": columns}
    if args.format == "table":
        show(content.overview(found, limit=args.limit or None, hint=ALL_ROWS, **how))
        return 0
    with printing():
        if args.format == "csv":
            print(content.to_file(found, **how), end="", flush=True)
        else:
            print(markdown.write(content.overview(found, **how)), end="", flush=True)
    return 0
