"""Each writer, each document: all that it says is there to be read as it is, and nothing else."""

import csv
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

#: What no reader is to see.
_UNKNOWN = re.compile(r"(?<!\w)(nan|inf|None|<NA>)(?!\w)")


@pytest.mark.parametrize("hostile", [False, True], ids=["plain", "hostile"])
@pytest.mark.parametrize("name", documents())
def test_all_of_a_document_can_be_read(name: str, hostile: bool) -> None:
    blocks = document(name, hostile=hostile)
    for writer in WRITERS:
        check(writer, blocks)
        assert hostile or not _UNKNOWN.search(written(writer, blocks))


@pytest.mark.parametrize("name", LACKING)
def test_what_is_not_known_is_left_out(name: str) -> None:
    recording = LACKING[name]()
    for rule in ("pareto:50%", "1s"):
        summary = summarise(recording, rule)
        shown = [*overview(summary, limit=20), *overview(summary, tree=True, limit=20)]
        for blocks in (report(summary), shown):
            for writer in WRITERS:
                check(writer, blocks)
            assert not _UNKNOWN.search(written("markdown", blocks))


def every_block(name: str) -> list[Block]:
    """A name wherever it may stand."""
    columns = [
        column(name, str, of=unit.TEXT, fold=8),
        column("n", lambda row: str(len(row))),
        column("code", str, of=unit.CODE, fold=8),
        column("last", lambda row: f"({row}", name, of=unit.TEXT, fold=8, drop=1),
    ]
    pairs = Table([column("", itemgetter(0)), column("", itemgetter(1))], [(name, name)])
    legend = [("", f"{name} is"), ("n", f"n is {name}")]
    table = Table(columns, [name, f"a {name}", name], f"of {name}", ["", HOT], legend)
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


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_shown_as_it_is_wherever_it_stands(name: str) -> None:
    for writer in WRITERS:
        check(writer, every_block(name))


SIGNS = st.text(st.sampled_from("ab1 |`*_[]()<>&\\$#~!-+.:/\n\x1b\u202e名\"'{}="), min_size=1)


@given(SIGNS.filter(str.strip), st.sampled_from(WRITERS))
@example(" 1 ", "markdown")
def test_any_text_is_shown_as_it_is(name: str, writer: str | int) -> None:
    check(writer, every_block(name))


# -- files


@given(st.text() | st.from_regex(r"'{0,3} {0,2}[-=+@]?\w*", fullmatch=True))
def test_a_cell_gives_its_text_back(name: str) -> None:
    cell = unit.safe(name)
    assert undone(cell) == printable(name)
    assert not cell.lstrip(" ").startswith(tuple("=+-@"))
    assert cell.isprintable()


def undone(cell: str) -> str:
    """A text from a cell, without the apostrophe that makes it one."""
    bare = cell.removeprefix("'")
    return bare if unit.safe(bare) == cell else cell


#: What makes each file with hostile names, and its column of names.
TABLES = {
    "layers": (lambda: layers_csv(profiles(NAMES)["forward"]()), "function"),
    "links": (lambda: links_csv(profiles(NAMES)["forward"]()), ""),
    "comparison": (
        lambda: to_csv(comparison.COLUMNS, comparison.file_rows([compared(NAMES)])),
        "function",
    ),
    "engines": (lambda: engines.to_file(*engines_run(NAMES)), ""),
    "ranks": (lambda: ranks.layers_csv(merged_ranks(NAMES)), ""),
    "collectives": (lambda: ranks.collectives_csv(merged_ranks(NAMES)), ""),
    "sweep": (lambda: to_csv(sweep.COLUMNS, cases(NAMES)), "network"),
    "network": (lambda: network.to_file(a_network(NAMES)), "function"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_hold_names_as_text(name: str) -> None:
    make, names = TABLES[name]
    head, *rows = csv.reader(io.StringIO(make(), newline=""))
    for row in rows:
        assert len(row) == len(head)
        for cell in row:
            # A sheet takes a cell that begins so for a formula; a number may be below zero.
            assert not cell.lstrip().startswith(tuple("=+@\uff0b\uff0d\uff1d\uff20\t\r"))
            assert re.fullmatch(r"-[\d.e+-]+|(?!-).*", cell)
            assert cell.isprintable()
    if names:
        cells = {undone(row[head.index(names)]) for row in rows}
        assert cells >= set(map(printable, NAMES))
