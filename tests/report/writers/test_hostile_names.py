"""Names are data in files and pictures, too.

What people read of them is in :mod:`.test_contract`.
"""

from __future__ import annotations

import csv as csv_files
import io
import json
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summary import Summary
from chainer_profile.report.content import comparison, engines, history, network, ranks, sweep
from chainer_profile.report.tables import safe, to_csv
from chainer_profile.report.text import printable
from chainer_profile.report.writers import json_report
from tests.report.documents import (
    NAMES,
    a_network,
    cases,
    compared,
    engines_run,
    merged_ranks,
    profiles,
    runs,
)
from tests.report.reading import layers_csv, links_csv

SHOWN = [printable(name) for name in NAMES]


@cache
def hostile() -> Summary:
    """A run in which everything that has a name has one of these."""
    return profiles(NAMES)["forward"]()


def undone(cell: str) -> str:
    """A text from a cell, without the apostrophe that makes it one."""
    bare = cell.removeprefix("'")
    return bare if safe(bare) == cell else cell


TABLES = {
    "layers": lambda: layers_csv(hostile()),
    "links": lambda: links_csv(hostile()),
    "comparison": lambda: to_csv(comparison.COLUMNS, comparison.file_rows([compared(NAMES)])),
    "engines": lambda: engines.to_file(*engines_run(NAMES)),
    "ranks": lambda: ranks.layers_csv(merged_ranks(NAMES)),
    "collectives": lambda: ranks.collectives_csv(merged_ranks(NAMES)),
    "history": lambda: to_csv(history.COLUMNS, runs(NAMES)),
    "sweep": lambda: to_csv(sweep.COLUMNS, cases(NAMES)),
    "network": lambda: network.to_file(a_network(NAMES)),
}
#: A column of names, and how many other rows there are.
NAMED = {
    **dict.fromkeys(("layers", "network"), ("function", 0)),
    **{"comparison": ("function", 5), "history": ("command", 0), "sweep": ("network", 1)},
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_hold_names_as_text(name: str) -> None:
    text = TABLES[name]()
    assert all(line.isprintable() for line in text.split("\n"))
    head, *rows = csv_files.reader(io.StringIO(text, newline=""))
    for row in rows:
        assert len(row) == len(head)
        for cell in row:
            # A sheet takes a cell that begins so for a formula; a number may be below zero.
            assert not cell.lstrip().startswith(tuple("=+@\uff0b\uff0d\uff1d\uff20\t\r"))
            assert re.fullmatch(r"-[\d.e+-]+|(?!-).*", cell)
    if name in NAMED:
        column, others = NAMED[name]
        found = [undone(row[head.index(column)]) for row in rows]
        assert len(found) == len(NAMES) + others
        assert set(SHOWN) <= set(found)


@settings(max_examples=50)
@given(st.text() | st.from_regex(r"'{0,3} {0,2}[-=+@]?\w*", fullmatch=True))
def test_a_cell_gives_its_text_back(name: str) -> None:
    cell = safe(name)
    assert undone(cell) == printable(name)
    assert not cell.lstrip(" ").startswith(tuple("=+-@"))
    assert cell.isprintable()


def test_json() -> None:
    text = json_report.render(hostile())
    assert text.isascii()
    assert all(line.isprintable() for line in text.split("\n"))
    report = json.loads(text)
    # A recording escapes what is no text.
    names = [name.encode(errors="backslashreplace").decode() for name in NAMES]
    assert [layer["function"] for layer in report["layers"]] == names
    assert [layer["path"] for layer in report["layers"]] == [f"/{name}" for name in names]
    assert report["settings"]["model"] == "".join(names)
    assert {link["path"] for link in report["links"]} >= {f"/{name}" for name in names}
