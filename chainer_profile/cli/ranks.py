"""``report`` of a ChainerMN training: merges the recordings of its ranks."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.basics.errors import ProfileError
from chainer_profile.cli.output import ALL_ROWS, first_screen_hint, row_limit, say_written, show
from chainer_profile.ranks.merging import merge
from chainer_profile.report import page
from chainer_profile.report.content import rank_tables
from chainer_profile.report.content import ranks as content
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from chainer_profile.runs.folder import read_ranks
from chainer_profile.runs.output_files import refuse_foreign, write

#: Rows of a page's table of ranks or collectives.
_MAX_ROWS = 64
FILES = ("ranks.md", "ranks.html", rank_tables.LAYERS, rank_tables.COLLECTIVES)


def report_ranks(folder: Path, args: argparse.Namespace) -> None:
    """Write the reports of the ranks in a folder, and print the tables."""
    out: Path = args.out or folder
    has_results = (out / rank_tables.LAYERS).exists() or out.resolve() == folder.resolve()
    refuse_foreign(out, FILES.__contains__, "report of ranks", has_results)
    recordings, problems, outcomes = read_ranks(folder)
    try:
        ranks = merge(recordings, problems, outcomes)
    except ProfileError as error:
        raise ProfileError(printable(f"{folder}: {error}")) from error
    show(
        content.overview(ranks, row_limit(args), ALL_ROWS), args.quiet, hint=first_screen_hint(args)
    )
    contents = {
        "ranks.md": markdown.write(content.report(ranks)),
        "ranks.html": page.page(content.page(ranks, _MAX_ROWS), "Ranks"),
        rank_tables.LAYERS: rank_tables.layers_csv(ranks),
        rank_tables.COLLECTIVES: rank_tables.collectives_csv(ranks),
    }
    files = write(out, contents)
    say_written(out, [path.name for path in files], args.quiet)
