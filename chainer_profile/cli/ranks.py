"""``ranks``: the recordings of the ranks of one training, put together."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.parsing import Parser, folder
from chainer_profile.basics.words import PROG
from chainer_profile.cli.options import MESSAGES, take
from chainer_profile.cli.running import (
    ALL_ROWS,
    Context,
    first_screen,
    row_limit,
    show,
    written_text,
)

if TYPE_CHECKING:
    from pathlib import Path

    from chainer_profile.ranks.merging import Ranks


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} ranks",
        description="Puts the recordings of the ranks of a ChainerMN training together: which "
        "rank or layer the others wait for, how long, and what the communication takes. It needs "
        "no MPI.",
    )
    parser.add_argument(
        "folder", metavar="DIR", type=folder, help="folder with rank-0, rank-1, ... in it"
    )
    group = parser.add_argument_group("what is shown")
    take(group, "--limit", help="rows of a table, 0 for all (default: 10, with --full 20)")
    take(group, "--full")
    take(group, "--out", help="write the files into this folder (default: DIR)")
    take(group, *MESSAGES)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Merge the ranks, print the result and write it."""
    from chainer_profile.ranks.merging import merge
    from chainer_profile.report.content.ranks import merged
    from chainer_profile.report.document import text
    from chainer_profile.report.text import printable
    from chainer_profile.runs.folder import read_ranks

    recordings, problems, outcomes = read_ranks(args.folder)
    try:
        ranks = merge(recordings, problems, outcomes)
    except ProfileError as error:
        raise ProfileError(printable(f"{args.folder}: {error}")) from error
    show(merged(ranks, row_limit(args), ALL_ROWS), args.quiet, hint=first_screen(args))
    out = args.out or args.folder
    show([text(written_text(out, _write(ranks, out)))], args.quiet)
    return 0


def _write(ranks: Ranks, out: Path) -> list[str]:
    """Write the files; returns their names."""
    from chainer_profile.report import page
    from chainer_profile.report.content import ranks as content
    from chainer_profile.report.pictures import ranks_trace
    from chainer_profile.report.writers import markdown
    from chainer_profile.runs.written import write_files

    contents = {
        "ranks.md": markdown.write(content.report(ranks)),
        "ranks.html": page.render_ranks(ranks),
        content.LAYERS: content.layers_csv(ranks),
        content.COLLECTIVES: content.collectives_csv(ranks),
        content.TRACE: ranks_trace.render(ranks),
    }
    files = write_files(out, {name: made.encode() for name, made in contents.items()})
    return [path.name for path in files]
