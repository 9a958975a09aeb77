"""docs/columns.md lists exactly the columns of the code: its lists are generated.

``python -m tests.docs.test_column_docs`` updates the lists and keeps the other text.
"""

import re

from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, TABLE_COLUMNS
from chainer_profile.report.content import comparison_tables, network, rank_tables, sweep
from tests import ROOT
from tests.report.reading import meanings

DOCS = ROOT / "docs" / "columns.md"


def layer_lines():
    """List the columns of layers: name, name in layers.csv and heading if different, meaning."""
    lines = []
    for name, column in LAYER_COLUMNS.items():
        file = f", `{column.csv}`" if column.csv not in ("", name) else ""
        heading = f" ({column.heading})" if column.heading not in ("", name) else ""
        shown = marked(name, TABLE_COLUMNS["terminal"])
        lines.append(f"- {shown}{file}{heading}: {column.meaning}")
    return lines


def marked(name, usual):
    """Format the name of a column, in bold if it is a default column."""
    return f"**`{name}`**" if name in usual else f"`{name}`"


def file_lines(columns):
    return [f"- `{name}`: {meaning}" for name, meaning in meanings(columns).items()]


def link_lines():
    """List the columns of links; columns of several phases with one meaning share a line."""
    names = {}
    for name, meaning in meanings(LINK_COLUMNS).items():
        names.setdefault(meaning, []).append(f"`{name}`")
    return [f"- {', '.join(several)}: {meaning}" for meaning, several in names.items()]


def network_lines(view):
    usual, columns = network.DEFAULTS[view], network.COLUMNS[view]
    return [f"- {marked(name, usual)}: {column.meaning}" for name, column in columns.items()]


def documentation():
    """Return the page with its lists generated again."""
    text, by_layer = DOCS.read_text(), network_lines(network.LAYERS)
    for heading, lines in {
        "The layer table on the terminal": layer_lines(),
        "links.csv": link_lines(),
        "By layer": by_layer,
        "By link, with `--tree`": [x for x in network_lines(network.LINKS) if x not in by_layer],
        "comparison.csv": file_lines(comparison_tables.COLUMNS),
        "ranks.csv": file_lines(rank_tables.LAYER_COLUMNS),
        "collectives.csv": file_lines(rank_tables.COLLECTIVE_COLUMNS),
    }.items():
        first, heading, rest = text.partition(f"# {heading}\n")
        words, last = re.fullmatch(r"((?:(?!-).*\n)*)(?:-.*\n)+((?s:.*))", rest).groups()
        text = first + heading + words + "\n".join(lines) + "\n" + last
    return text


def test_documentation_matches_the_code():
    assert DOCS.read_text() == documentation()
    assert set(network.COLUMNS) == {network.LAYERS, network.LINKS}
    of_sweeps = (ROOT / "docs" / "sweep.md").read_text()
    assert [name for name in meanings(sweep.COLUMNS) if f"`{name}`" not in of_sweeps] == []


if __name__ == "__main__":
    DOCS.write_text(documentation())
