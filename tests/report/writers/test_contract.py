"""Each writer, each document: all that it says is there to be read as it is, and nothing else.

:mod:`tests.report.seen` says what a reader sees of each form: cells in their rows and below their
heads, numbers whole and to the right, marks, notes, names of the columns that a narrow terminal
leaves out. Hostile names are shown as they are, too.
"""

import csv as csv_files
import io
import re
from operator import itemgetter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.report import unit
from chainer_profile.report.content import comparison, engines, network, ranks, sweep
from chainer_profile.report.content.profile import overview, report
from chainer_profile.report.document import (
    HOT,
    Block,
    Code,
    Figure,
    Heading,
    code,
    points,
    strong,
    text,
)
from chainer_profile.report.tables import Table, to_csv
from chainer_profile.report.text import printable
from tests.report.documents import (
    LACKING,
    NAMES,
    a_network,
    cases,
    compared,
    document,
    documents,
    engines_run,
    merged_ranks,
    profiles,
)
from tests.report.reading import column, layers_csv, links_csv
from tests.report.seen import WRITERS, check, written


@pytest.mark.parametrize("hostile", [False, True], ids=["plain", "hostile"])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", documents())
def test_all_of_a_document_can_be_read(name: str, writer: str | int, hostile: bool) -> None:
    check(writer, document(name, hostile=hostile))


@pytest.mark.parametrize("name", documents())
def test_a_plain_document_is_complete_fits_and_is_the_same_when_made_twice(name: str) -> None:
    blocks = document(name)
    again = documents()[name]()
    for writer in WRITERS:
        shown = written(writer, blocks)
        assert written(writer, again) == shown
        for word in ("nan", "None", "<NA>", "inf"):
            assert word not in shown.split()
        if isinstance(writer, int):
            # Of a table the reader sees to it; a path or a command is not broken.
            rest = [block for block in blocks if not isinstance(block, Table | Code)]
            lines = [line for line in written(writer, rest).split("\n") if " " in line.strip()]
            assert all(len(line) <= writer for line in lines)
    assert "Not shown at this width" not in written(200, blocks)


def every_block(name: str) -> list[Block]:
    """A name wherever a name can stand."""
    columns = [
        column(name, str, of=unit.TEXT, fold=8),
        column("n", lambda row: str(len(row)), note=f"n is {name}"),
        column("code", str, of=unit.CODE, fold=8),
        column("last", lambda row: f"({row}", name, of=unit.TEXT, fold=8, drop=1),
    ]
    pairs = Table([column("", itemgetter(0)), column("", itemgetter(1))], [(name, name)])
    table = Table(columns, [name, f"a {name}", name], f"of {name}", ["", HOT], [f"{name} is"])
    # In a report no names of the user's are in bold or code but where a sentence parts them.
    words = (name, " is ", code(name), ", ", strong(f"a {name} b"), f": {name}", " ", name)
    return [
        Heading(1, name),
        text(*words),
        text(strong(f"a {name} b"), note=True),
        points([name, words]),
        text(strong("Author"), f": a {name}"),
        Code(f"run {name}\n{name}"),
        *(table, pairs, Figure("a b.png", f"a {name}", f"of {name}")),
    ]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_shown_as_it_is_wherever_it_stands(name: str, writer: str | int) -> None:
    check(writer, every_block(name))


SIGNS = st.text(st.sampled_from("ab1 |`*_[]()<>&\\$#~!-+.:/\n\x1b\u202e名\"'{}="), min_size=1)


@given(SIGNS.filter(str.strip), st.sampled_from(WRITERS))
@example(" 1 ", "markdown")
def test_any_text_is_shown_as_it_is(name: str, writer: str | int) -> None:
    check(writer, every_block(name))


# -- runs that lack something


@pytest.mark.parametrize("name", LACKING)
def test_what_is_not_known_is_left_out(name: str) -> None:
    recording = LACKING[name]()
    for rule in ("pareto:50%", "1s"):
        summary = summarise(recording, rule)
        shown = [*overview(summary, limit=20), *overview(summary, tree=True, limit=20)]
        for blocks in (report(summary), shown):
            text = written("markdown", blocks)
            assert not re.search(r"\b(nan|inf|None)\b|<NA>|&lt;NA", text)
            for writer in WRITERS if rule == "1s" and len(recording.layers) < 99 else ():
                check(writer, blocks)


# -- files


def undone(cell: str) -> str:
    """A text from a cell, without the apostrophe that makes it one."""
    bare = cell.removeprefix("'")
    return bare if unit.safe(bare) == cell else cell


TABLES = {
    "layers": lambda: layers_csv(profiles(NAMES)["forward"]()),
    "links": lambda: links_csv(profiles(NAMES)["forward"]()),
    "comparison": lambda: to_csv(comparison.COLUMNS, comparison.file_rows([compared(NAMES)])),
    "engines": lambda: engines.to_file(*engines_run(NAMES)),
    "ranks": lambda: ranks.layers_csv(merged_ranks(NAMES)),
    "collectives": lambda: ranks.collectives_csv(merged_ranks(NAMES)),
    "sweep": lambda: to_csv(sweep.COLUMNS, cases(NAMES)),
    "network": lambda: network.to_file(a_network(NAMES)),
}
#: Columns of names.
NAMED = dict.fromkeys(("layers", "network", "comparison"), "function")
NAMED |= {"sweep": "network"}


@pytest.mark.parametrize("name", TABLES)
def test_tables_hold_names_as_text(name: str) -> None:
    written = TABLES[name]()
    assert all(line.isprintable() for line in written.split("\n"))
    head, *rows = csv_files.reader(io.StringIO(written, newline=""))
    for row in rows:
        assert len(row) == len(head)
        for cell in row:
            # A sheet takes a cell that begins so for a formula; a number may be below zero.
            assert not cell.lstrip().startswith(tuple("=+@\uff0b\uff0d\uff1d\uff20\t\r"))
            assert re.fullmatch(r"-[\d.e+-]+|(?!-).*", cell)
    if name in NAMED:
        cells = [undone(row[head.index(NAMED[name])]) for row in rows]
        assert set(map(printable, NAMES)) <= set(cells)
        others = {"comparison": 5, "sweep": 1}
        assert len(cells) == len(NAMES) + others.get(name, 0)


@given(st.text() | st.from_regex(r"'{0,3} {0,2}[-=+@]?\w*", fullmatch=True))
def test_a_cell_gives_its_text_back(name: str) -> None:
    cell = unit.safe(name)
    assert undone(cell) == printable(name)
    assert not cell.lstrip(" ").startswith(tuple("=+-@"))
    assert cell.isprintable()
