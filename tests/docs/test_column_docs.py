"""docs/columns.md lists just the columns that there are."""

from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, USUAL
from chainer_profile.report.content import comparison, network, ranks
from tests import ROOT
from tests.report.reading import meanings as meanings_of

DOCS = ROOT / "docs" / "columns.md"

HEAD = """# Columns of all tables

This file is made from the code (`python -m tests.docs.test_column_docs`), and a test holds it.

- [The layer table on the terminal](#the-layer-table-on-the-terminal)
- [layers.csv](#layerscsv)
- [links.csv](#linkscsv)
- [profile.py summary](#profilepy-summary)
- [comparison.csv](#comparisoncsv)
- [ranks.csv](#rankscsv)
- [collectives.csv](#collectivescsv)
"""

TERMINAL = """## The layer table on the terminal

`profile.py --columns path,mean,verdict,peak` and `profile.py report DIR --columns ...` choose its
columns, by the names here or those of `layers.csv`. Without that the usual ones are shown, of which
a narrow console leaves some out and names them below the table. Times are in ms; MFLOP, MMAC and MB
are millions, GFLOP/s and GB/s billions; sizes of memory have their unit, in powers of 1024. What is
not known is `-`. The tables by layer of `report.md` have the same columns, with units in their
headings.
"""

LAYERS = """## layers.csv

One row per layer, with all digits, in the columns that the table above names. Times are self times
in milliseconds over the profiled trials. On a GPU they are those of the device, except `host_ms`
([gpu.md](gpu.md)).
"""

LINKS = """## links.csv

One row a link, with all digits. Times are means in milliseconds over the profiled trials.
"""

SUMMARY = """## profile.py summary

`profile.py summary --columns path,output_shapes,macs` chooses its columns. The usual ones are
marked; a narrow terminal leaves some out and names them below the table.
"""

COMPARISON = """## comparison.csv

`profile.py compare A B --out DIR` writes it: a row for each total, each layer that both runs have,
and each layer that only one of them has, with all digits. [compare.md](compare.md) explains them.
"""

RANKS = """## ranks.csv

`profile.py ranks DIR` writes it: a row for each layer of each rank, with all digits, times in
milliseconds. [ranks.md](ranks.md) explains them.
"""

COLLECTIVES = """## collectives.csv

The same command writes it: a row for each collective of each rank.
"""

_VIEWS = {
    network.LAYERS: "### By layer",
    network.LINKS: "### By link, with `--depth`",
}


def table(head, rows):
    lines = [head, ("---",) * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def meanings(columns):
    return table(("column", "meaning"), [(f"`{k}`", meaning) for k, meaning in columns.items()])


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
    parts = [
        *(HEAD, TERMINAL, layer_table(), LAYERS),
        *(LINKS, meanings(meanings_of(LINK_COLUMNS)), SUMMARY),
    ]
    for view, heading in _VIEWS.items():
        parts += [heading, summary_table(view)]
    parts += [COMPARISON, meanings(meanings_of(comparison.COLUMNS))]
    parts += [RANKS, meanings(meanings_of(ranks.LAYER_COLUMNS))]
    parts += [COLLECTIVES, meanings(meanings_of(ranks.COLLECTIVE_COLUMNS))]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def test_the_documentation_is_that_of_the_code():
    assert DOCS.read_text() == documentation()


def test_every_view_of_the_summary_is_there():
    assert set(_VIEWS) == set(network.COLUMNS)


if __name__ == "__main__":
    DOCS.write_text(documentation())
