"""docs/columns.md lists just the columns that there are: its tables are made from the code.

``python -m tests.docs.test_column_docs`` makes them again; the words around them stay.
"""

import re

from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, SHOWN
from chainer_profile.report.content import comparison, network, ranks
from tests import ROOT
from tests.report.reading import meanings as meanings_of

DOCS = ROOT / "docs" / "columns.md"


def table(head, rows):
    lines = [head, ("---",) * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def listing(meanings):
    return "\n".join(f"- {name}: {meaning}" for name, meaning in meanings)


def meanings(columns):
    return listing((f"`{name}`", meaning) for name, meaning in meanings_of(columns).items())


def marked(name, usual):
    """A column's name, bold if it is one of the usual ones."""
    return f"**`{name}`**" if name in usual else f"`{name}`"


def layer_table():
    rows = [
        (
            marked(name, SHOWN["terminal"]),
            described.heading,
            f"`{described.csv}`" if described.csv not in ("", name) else "",
            described.meaning,
        )
        for name, described in LAYER_COLUMNS.items()
    ]
    return table(("name", "heading", "in layers.csv, if different", "meaning"), rows)


def summary_rows(view):
    usual = network.DEFAULTS[view]
    return [(marked(name, usual), column.meaning) for name, column in network.COLUMNS[view].items()]


def summary_columns(view, others=()):
    """The columns of a view, without those that another one has too."""
    return listing(row for row in summary_rows(view) if row not in others)


def documentation():
    """The page with the tables below its headings made again."""
    text = DOCS.read_text()
    for heading, made in {
        "The layer table on the terminal": layer_table(),
        "links.csv": meanings(LINK_COLUMNS),
        "By layer": summary_columns(network.LAYERS),
        "By link, with `--tree`": summary_columns(network.LINKS, summary_rows(network.LAYERS)),
        "comparison.csv": meanings(comparison.COLUMNS),
        "ranks.csv": meanings(ranks.LAYER_COLUMNS),
        "collectives.csv": meanings(ranks.COLLECTIVE_COLUMNS),
    }.items():
        first, heading, rest = text.partition(f"# {heading}\n")
        words, last = re.fullmatch(r"((?:(?![|-]).*\n)*)(?:[|-].*\n)+((?s:.*))", rest).groups()
        text = f"{first}{heading}{words}{made}\n{last}"
    return text


def test_the_documentation_is_that_of_the_code():
    assert DOCS.read_text() == documentation()
    assert set(network.COLUMNS) == {network.LAYERS, network.LINKS}


if __name__ == "__main__":
    DOCS.write_text(documentation())
