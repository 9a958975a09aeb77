"""``ranks``: the recordings of the ranks of one training, put together."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.basics.errors import ProfileError
from chainer_profile.cli.main import Context
from chainer_profile.cli.shown import ALL_ROWS, first_screen, row_limit, say_written, show
from chainer_profile.ranks.merging import merge
from chainer_profile.report import page
from chainer_profile.report.content import ranks as content
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from chainer_profile.runs.folder import read_ranks
from chainer_profile.runs.written import refuse_foreign, write

#: Rows of a page's table of ranks or collectives.
_MAX_ROWS = 64
#: What is written.
FILES = ("ranks.md", "ranks.html", content.LAYERS, content.COLLECTIVES)


def run(args: argparse.Namespace, context: Context) -> int:
    out: Path = args.out or args.folder
    if args.out is not None:
        is_known = (out / content.LAYERS).exists() or out.resolve() == args.folder.resolve()
        refuse_foreign(out, FILES.__contains__, "report of ranks", is_known)
    recordings, problems, outcomes = read_ranks(args.folder)
    try:
        ranks = merge(recordings, problems, outcomes)
    except ProfileError as error:
        raise ProfileError(printable(f"{args.folder}: {error}")) from error
    show(content.merged(ranks, row_limit(args), ALL_ROWS), args.quiet, hint=first_screen(args))
    contents = {
        "ranks.md": markdown.write(content.report(ranks)),
        "ranks.html": page.page(content.page(ranks, _MAX_ROWS), "Ranks"),
        content.LAYERS: content.layers_csv(ranks),
        content.COLLECTIVES: content.collectives_csv(ranks),
    }
    files = write(out, {name: made.encode() for name, made in contents.items()})
    say_written(out, [path.name for path in files], args.quiet)
    return 0
