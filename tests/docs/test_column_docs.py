"""docs/columns.md lists just the columns that there are: its tables are made from the code.

``python -m tests.docs.test_column_docs`` makes them again; the words around them stay.
"""

import re

from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, USUAL
from chainer_profile.report.content import comparison, network, ranks
from tests import ROOT
from tests.report.reading import meanings as meanings_of

DOCS = ROOT / "docs" / "columns.md"


def table(head, rows):
    lines = [head, ("---",) * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def meanings(columns):
    rows = [(f"`{name}`", meaning) for name, meaning in meanings_of(columns).items()]
    return table(("column", "meaning"), rows)


def layer_table():
    rows = [
        (
            f"`{name}`",
            described.name,
            "yes" if name in USUAL else "",
            f"`{described.csv}`" if described.csv else "",
            described.meaning,
        )
        for name, described in LAYER_COLUMNS.items()
    ]
    return table(("name", "heading", "usual", "in layers.csv", "meaning"), rows)


def summary_table(view):
    usual = network.DEFAULTS[view]
    rows = [
        (f"`{name}`", "yes" if name in usual else "", column.meaning)
        for name, column in network.COLUMNS[view].items()
    ]
    return table(("column", "usual", "meaning"), rows)


def documentation():
    """The page with the tables below its headings made again."""
    text = DOCS.read_text()
    for heading, made in {
        "The layer table on the terminal": layer_table(),
        "links.csv": meanings(LINK_COLUMNS),
        "By layer": summary_table(network.LAYERS),
        "By link, with `--depth`": summary_table(network.LINKS),
        "comparison.csv": meanings(comparison.COLUMNS),
        "ranks.csv": meanings(ranks.LAYER_COLUMNS),
        "collectives.csv": meanings(ranks.COLLECTIVE_COLUMNS),
    }.items():
        first, heading, rest = text.partition(f"# {heading}\n")
        words, last = re.fullmatch(r"([^#|]*)(?:\|.*\n)+((?s:.*))", rest).groups()
        text = f"{first}{heading}{words}{made}\n{last}"
    return text


def test_the_documentation_is_that_of_the_code():
    assert DOCS.read_text() == documentation()
    assert set(network.COLUMNS) == {network.LAYERS, network.LINKS}


if __name__ == "__main__":
    DOCS.write_text(documentation())
