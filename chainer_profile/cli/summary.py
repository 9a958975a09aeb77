"""``summary``: a network's layers, without timing."""

from __future__ import annotations

import argparse
from typing import Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.parsing import split_names
from chainer_profile.cli import from_options
from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.output import ALL_ROWS, show
from chainer_profile.measure.network import summary_of
from chainer_profile.networks import loading
from chainer_profile.report.content import network as content
from chainer_profile.report.writers import markdown


def run(args: argparse.Namespace, context: Context) -> int:
    """Print the table of the layers, or of the links."""
    view = content.LAYERS if args.tree is None else content.LINKS
    columns = None
    if args.columns is not None:
        # Before the network is built, so that a mistyped name is an error at once.
        columns = content.choose_columns(view, split_names(args.columns))
    source = from_options.find_source(args, context)
    given = from_options.arguments_of(from_options.read_input(args, source))
    model = from_options.build(source, args)
    loading.check_arguments(model, given.args, given.kwargs)
    try:
        network = summary_of(model, given, source.name)
    except ProfileError as error:
        if "dtype.kind == i" in str(error):  # from a function of Chainer that takes indices
            hint = "for whole numbers give --input-shape SHAPE:int32"
            raise ProfileError(f"{error}; {hint}") from error
        raise
    shown: dict[str, Any] = {"view": view, "depth": args.tree or 0, "columns": columns}
    if args.format == "table":
        show(content.overview(network, limit=args.limit or None, hint=ALL_ROWS, **shown))
        return 0
    with printing():
        if args.format == "csv":
            print(content.table_csv(network, **shown), end="", flush=True)
        else:
            print(markdown.write(content.overview(network, **shown)), end="", flush=True)
    return 0
