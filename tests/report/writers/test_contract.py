"""Every format of every document shows exactly its texts, unchanged."""

import csv
import io
import re
from collections.abc import Callable
from operator import itemgetter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report import unit
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
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable
from chainer_profile.report.writers.csv_files import layers_csv, links_csv
from tests.report.documents import LACKING, NAMES, documents, profiles
from tests.report.reading import column
from tests.report.seen import WRITERS, check, written

#: Texts that no reader should see.
_UNKNOWN = re.compile(r"(?<!\w)(nan|inf|None|<NA>)(?!\w)")


@pytest.mark.parametrize("name", documents())
def test_reader_sees_every_text_of_a_document(name: str) -> None:
    blocks = documents()[name]()
    for writer in WRITERS:
        check(writer, blocks)
        assert not _UNKNOWN.search(written(writer, blocks))


@pytest.mark.parametrize("name", documents(NAMES))
def test_hostile_names_in_a_document_are_shown_unchanged(name: str) -> None:
    blocks = documents(NAMES)[name]()
    for writer in WRITERS:
        check(writer, blocks)


@pytest.mark.parametrize("name", LACKING)
def test_unknown_values_are_left_out(name: str) -> None:
    recording = LACKING[name]()
    for rule in ("pareto:50%", "1s"):
        summary = summarise(recording, rule)
        shown = [*overview(summary, limit=20), *overview(summary, tree=True, limit=20)]
        for blocks in (report(summary), shown):
            for writer in WRITERS:
                check(writer, blocks)
            assert not _UNKNOWN.search(written("markdown", blocks))


def every_block(name: str) -> list[Block]:
    """Return blocks with a name in every place that allows one."""
    columns = [
        column(name, str, of=unit.TEXT, fold=8),
        column("n", lambda row: str(len(row)), note=f"n is {name}"),
        column("code", str, of=unit.CODE, fold=8),
        column("last", lambda row: f"({row}", name, of=unit.TEXT, fold=8, drop=1),
    ]
    pairs = Table([column("", itemgetter(0)), column("", itemgetter(1))], [(name, name)])
    table = Table(columns, [name, f"a {name}", name], f"of {name}", ["", HOT], [f"{name} is"])
    # Reports set the user's names in bold or as code only if other words separate them.
    words = (name, " is ", code(name), ", ", strong(f"a {name} b"), f": {name}", " ", name)
    return [
        Heading(1, name),
        text(*words),
        text(strong(f"a {name} b"), note=True),
        points([name, words]),
        text(strong("Author"), f": a {name}"),
        Code(f"run {name}\n{name}"),
        *(table, pairs, Figure("a b.png", f"a {name}", f"of {name}.")),
    ]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_name_is_shown_unchanged_in_every_place(name: str) -> None:
    for writer in WRITERS:
        check(writer, every_block(name))


SIGNS = st.text(st.sampled_from("ab1 |`*_[]()<>&\\$#~!-+.:/\n\x1b\u202e名\"'{}="), min_size=1)


@given(SIGNS.filter(str.strip), st.sampled_from(WRITERS))
@example(" 1 ", "markdown")
def test_any_text_is_shown_unchanged(name: str, writer: str | int) -> None:
    check(writer, every_block(name))


# -- files


@given(st.text() | st.from_regex(r"'{0,3} {0,2}[-=+@]?\w*", fullmatch=True))
def test_cell_of_a_file_keeps_its_text_and_is_not_a_formula(name: str) -> None:
    cell = unit.safe(name)
    bare = cell.removeprefix("'")
    assert (bare if unit.safe(bare) == cell else cell) == printable(name)
    assert not cell.lstrip(" ").startswith(tuple("=+-@"))
    assert cell.isprintable()


@pytest.mark.parametrize("make", [layers_csv, links_csv])
def test_files_hold_names_as_text(make: Callable[[Summary], str]) -> None:
    head, *rows = csv.reader(io.StringIO(make(profiles(NAMES)["forward"]()), newline=""))
    cells = {cell for row in rows for cell in row}
    assert {unit.safe(f"/{name}") for name in NAMES} <= cells
    # A spreadsheet reads a cell with such a beginning as a formula; numbers may be negative.
    assert not any(
        re.match(r"\s*([=+@\uff0b\uff0d\uff1d\uff20]|-(?![\d.e+-]+$))", x) for x in cells
    )
    assert {len(row) for row in rows} == {len(head)}
