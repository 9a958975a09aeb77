"""What the terminal alone does: folding, leaving out columns, breaking lines, styles."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.document import (
    FASTER,
    HOT,
    TOTAL,
    Figure,
    Heading,
    Lines,
    points,
    strong,
    text,
)
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.writers.terminal import show, wrapped, written
from tests.report.documents import profiles
from tests.report.reading import column, on_terminal
from tests.report.working import training, working

COLUMNS = [
    column("name", str, kind="text 4"),
    column("length", lambda row: str(len(row))),
    column("first", lambda row: row[:1], kind="text 5", drop=2),
    column("last", lambda row: row[-1:], kind="text 4", drop=1),
]


def lines(columns: Sequence[Column], rows: Sequence[str], width: int | None = None) -> list[str]:
    return written([Table(columns, rows)], width).split("\n")


def test_texts_to_the_left_and_numbers_to_the_right() -> None:
    assert lines(COLUMNS, ["abc", "defghi"]) == [
        "name    length  first  last",
        "------  ------  -----  ----",
        "abc          3  a      c",
        "defghi       6  d      i",
    ]
    assert len(lines(COLUMNS, [])) == 2


def test_columns_are_left_out_in_order_and_named_and_others_never() -> None:
    found = {width: lines(COLUMNS, ["abcd"], width) for width in (27, 25, 18, 5)}
    assert [shown[0].split() for shown in found.values()] == [
        *[["name", "length", "first", "last"]] * 2,
        *[["name", "length"]] * 2,
    ]
    assert len(found[25]) == 3
    assert " ".join(found[18][3:]) == (
        "Not shown at this width: first, last (a wider terminal shows them)."
    )


def test_texts_fold_where_no_column_can_go() -> None:
    columns = [column("name", str, kind="text 8"), COLUMNS[1]]
    path = "a-path/that/is/long"
    assert lines(columns, [path, "short"], 20) == [
        "name          length",
        "------------  ------",
        "a-path/that/      19",
        "is/long",
        "short              5",
    ]
    whole = lines(columns, [path, "short"], 27)
    assert len(whole) == 4
    assert max(map(len, whole)) == 27


@given(st.integers(18, 60), st.text("abc-/", min_size=1, max_size=60))
def test_all_of_a_folded_text_is_there(width: int, name: str) -> None:
    columns = [column("x", str, kind="text 8"), column("y", lambda row: row[::-1], kind="text 8")]
    shown = lines(columns, [name], width)
    assert max(map(len, shown)) <= width
    second = shown[1].rindex(" ") + 1
    assert "".join(line[:second].strip() for line in shown[2:]) == name
    assert "".join(line[second:].strip() for line in shown[2:]) == name[::-1]


def test_a_sentence_is_wrapped_between_words() -> None:
    sentence = "Written to reports/a-very-long-name-of-a-folder: and more"
    assert wrapped(sentence, None) == wrapped(sentence, 200) == sentence
    folded = ["Written to", "  reports/a-very-long-name-of-a-folder:", "  and more"]
    assert wrapped(sentence, 30, 2).splitlines() == folded


def test_sentences_of_one_kind_stand_together_and_others_apart() -> None:
    blocks = [
        *(Heading(1, "A"), text("b"), text("c", below=True), text("d")),
        *(Table(COLUMNS[:1], ["e"]), text("f", below=True), text("g")),
        *(Figure("h.png", "h", "h"), points(["i", "j"]), Lines([("k", "l")])),
    ]
    shown = ["A", "b", "c", "", "d", "", "name", "----", "e", "f", "", "g"]
    assert written(blocks).split("\n") == [*shown, "", "- i", "- j", "", "k  l"]


def test_styles_of_marked_rows_and_notes() -> None:
    table = Table(COLUMNS[:2], ["a", "b", "c", "d"], marks=[HOT, TOTAL, FASTER])
    blocks = [table, text("careful", note=True), text("less", aside=True), text(strong("most"))]
    file = io.StringIO()
    console = Console(
        file=file, width=30, force_terminal=True, color_system="standard", _environ={}
    )
    show([*blocks, text("[red]:smile: 1,234.5 http://a")], console)
    found = file.getvalue()
    for code, word in (
        *(("1", "name"), ("2", "----"), ("1;31", "a"), ("1", "b"), ("1;32", "c")),
        *(("33", "careful"), ("2", "less"), ("1", "most")),
    ):
        assert f"\x1b[{code}m{word}" in found
    assert "\nd " in found
    # No markup, no emoji, no highlighting.
    assert "\n[red]:smile: 1,234.5 http://a\n" in found
    assert "\x1b" not in written(blocks)


# -- a run


def head(shown: str, start: str = "median ms") -> list[str]:
    return next(line for line in shown.splitlines() if start in line).split()


@pytest.mark.parametrize("width", [60, 80, 100, 130])
@pytest.mark.parametrize("name", ["forward", "train"])
@pytest.mark.parametrize("tree", [False, True])
def test_no_time_is_left_out_at_any_width(width: int, name: str, tree: bool) -> None:
    summary = profiles()[name]()
    shown = on_terminal(summary, width, tree=tree, depth=99)
    assert "\u2026" not in shown
    assert max(len(line) for line in shown.splitlines()) <= width
    for name in ("incl. ms",) if tree else ("path", "median", "%"):
        assert name.split()[0] in head(shown, "incl." if tree else "median ms")


def test_work_and_memory_by_layer_go_first_and_what_limits_them_last() -> None:
    new = ["GFLOP/s", "limit", "peak"]
    widths = range(60, 164, 8)
    counts = [sum(name in head(on_terminal(working(), width)) for name in new) for width in widths]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 3)
    assert all(head(on_terminal(working(), width))[-1] == "limit" for width in (80, 90))


KEYS = [key for key in LAYER_COLUMNS if key not in ("index", "hot")]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(KEYS), unique=True), st.sampled_from([40, 80, 400]))
def test_chosen_columns_are_all_there_and_in_order(keys: list[str], width: int) -> None:
    keys = ["index", *keys]
    shown = on_terminal(training(), width, columns=keys, sort="index", limit=3)
    found = next(line for line in shown.splitlines() if line.lstrip().startswith("#"))
    assert found.split() == " ".join(LAYER_COLUMNS[key].name for key in keys).split()
    assert "\u2026" not in shown
