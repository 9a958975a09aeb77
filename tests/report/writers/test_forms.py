"""What Markdown, HTML and the terminal each do alone; :mod:`.test_contract` holds what all do."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.document import (
    FASTER,
    HOT,
    TOTAL,
    Code,
    Figure,
    Heading,
    Lines,
    Piece,
    code,
    file,
    points,
    strong,
    text,
)
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.text import printable
from chainer_profile.report.writers import html, markdown
from chainer_profile.report.writers.terminal import show, wrapped, written
from tests.report.documents import profiles
from tests.report.reading import column, on_terminal
from tests.report.seen import seen
from tests.report.working import training, working

# -- Markdown


def test_usual_names_are_not_escaped_and_code_is_as_it_is() -> None:
    usual = [Heading(1, "conv_1/res2 (a)"), points(["time [ms] a trial", "a -> b, 50 %"])]
    shown = markdown.write(usual)
    assert shown == "# conv_1/res2 (a)\n\n- time [ms] a trial\n- a -> b, 50 %\n"
    for line in ("a", "```", "x ```` y", ""):
        assert seen("markdown", [Code(line)]) == [("code", line)]


def test_a_link_shows_the_name_and_leads_to_it() -> None:
    for path in ("links.csv", "a b/(1).csv", "[x].csv", "a*b.csv", "\ud800", "c:d"):
        blocks = [text("See ", file(path), ".")]
        assert seen("markdown", blocks) == [("text", f"See {printable(path)}.")]
        address = markdown.address(path)
        assert f"]({address})" in markdown.write(blocks)
        assert not set(" ():") & set(address)


# -- HTML


def test_texts_are_data_with_their_styles_and_what_leads_elsewhere_is_left_out() -> None:
    block = text("<b>&", code("<i>"), strong("'\""), "\x00\n", Piece("עברית"))
    gone = text("See ", file("links.csv"))
    assert html.write([gone, block, Figure("a.png", "a", "b")]) == (
        "<p>&lt;b&gt;&amp;<code>&lt;i&gt;</code><strong>&#x27;&quot;</strong>\\x00\\n"
        "<bdi>עברית</bdi></p>"
    )


def test_numbers_stand_to_the_right_long_texts_fold_and_names_are_set_in() -> None:
    columns = [column("name", str, kind="text 8"), column("n", lambda row: str(len(row)), "n [1]")]
    shown = html.table(Table(columns, ["a", "  b", "c" * 41], 'of "x"', legend=[("x", "no")]))
    for part in (
        'aria-label="of &quot;x&quot;"',
        '<th scope="col" class="text name">name</th><th scope="col">n [1]</th>',
        '<td class="text name">a</td><td>1</td>',
        '<td class="text name">&#160;&#160;&#160;&#160;b</td>',
        f'<td class="text name long">{"c" * 41}</td>',
    ):
        assert part in shown
    assert "caption" not in shown


def bars(table: Table) -> list[tuple[str, float | None]]:
    """The mark of every row and the width of its bar."""
    found = []
    for mark, row in re.findall(r'<tr(?: class="(\w+)")?>(<td.*?)</tr>', html.table(table)):
        (width,) = re.findall(r'<td class="bar">(?:<i style="width:([\d.]+)%"></i>)?</td>', row)
        found.append((mark, float(width) if width else None))
    return found


def test_bars_are_as_long_as_shares() -> None:
    columns = [column("share", lambda row: row, kind="bar")]
    assert bars(Table(columns, [0.5, 0.25, 0.0, None], marks=[HOT])) == [
        ("hot", 100.0),
        *(("", 50.0), ("", 0.0), ("", None)),
    ]
    assert bars(Table(columns, [0.0, None])) == [("", None)] * 2
    assert "bar" not in html.table(Table([column("share", lambda row: row)], [0.5]))


# -- a terminal

COLUMNS = [
    column("name", str, kind="text 4"),
    column("length", lambda row: str(len(row))),
    column("first", lambda row: row[:1], kind="text 5", drop=2),
    column("last", lambda row: row[-1:], kind="text 4", drop=1),
]


def lines(columns: Sequence[Column], rows: Sequence[str], width: int | None = None) -> list[str]:
    return written([Table(columns, rows)], width).split("\n")


def test_columns_are_left_out_in_order_and_named_and_then_texts_fold() -> None:
    whole = [
        "name    length  first  last",
        "------  ------  -----  ----",
        "abc          3  a      c",
        "defghi       6  d      i",
    ]
    for width in (None, 27):
        assert lines(COLUMNS, ["abc", "defghi"], width) == whole
    assert len(lines(COLUMNS, [])) == 2
    for width in (18, 5):
        head, *rest = lines(COLUMNS, ["abcd"], width)
        assert head.split() == ["name", "length"]
        said = "Not shown at this width: first, last (a wider terminal shows them)."
        assert " ".join(rest[2:]) == said
    columns = [column("name", str, kind="text 8"), COLUMNS[1]]
    path = "a-path/that/is/long"
    assert lines(columns, [path, "short"], 20) == [
        "name          length",
        "------------  ------",
        "a-path/that/      19",
        "is/long",
        "short              5",
    ]
    assert max(map(len, lines(columns, [path, "short"], 27))) == 27


@given(st.integers(18, 60), st.text("abc-/", min_size=1, max_size=60))
def test_all_of_a_folded_text_is_there(width: int, name: str) -> None:
    columns = [column("x", str, kind="text 8"), column("y", lambda row: row[::-1], kind="text 8")]
    shown = lines(columns, [name], width)
    assert max(map(len, shown)) <= width
    second = shown[1].rindex(" ") + 1
    assert "".join(line[:second].strip() for line in shown[2:]) == name
    assert "".join(line[second:].strip() for line in shown[2:]) == name[::-1]


def test_sentences_of_one_kind_stand_together_others_apart_and_fold_between_words() -> None:
    blocks = [
        *(Heading(1, "A"), text("b"), text("c", below=True), text("d")),
        *(Table(COLUMNS[:1], ["e"]), text("f", below=True), text("g")),
        *(Figure("h.png", "h", "h"), points(["i", "j"]), Lines([("k", "l")])),
    ]
    shown = ["A", "b", "c", "", "d", "", "name", "----", "e", "f", "", "g"]
    assert written(blocks).split("\n") == [*shown, "", "- i", "- j", "", "k  l"]
    sentence = "Written to reports/a-very-long-name-of-a-folder: and more"
    assert wrapped(sentence, None) == wrapped(sentence, 200) == sentence
    folded = ["Written to", "  reports/a-very-long-name-of-a-folder:", "  and more"]
    assert wrapped(sentence, 30, 2).splitlines() == folded


def test_styles_of_marked_rows_and_notes() -> None:
    table = Table(COLUMNS[:2], ["a", "b", "c", "d"], marks=[HOT, TOTAL, FASTER])
    blocks = [table, text("careful", note=True), text("less", aside=True), text(strong("most"))]
    stream = io.StringIO()
    console = Console(
        file=stream, width=30, force_terminal=True, color_system="standard", _environ={}
    )
    show([*blocks, text("[red]:smile: 1,234.5 http://a")], console)
    found = stream.getvalue()
    for style, word in (
        *(("1", "name"), ("2", "----"), ("1;31", "a"), ("1", "b"), ("1;32", "c")),
        *(("33", "careful"), ("2", "less"), ("1", "most")),
    ):
        assert f"\x1b[{style}m{word}" in found
    assert "\nd " in found
    # No markup, no emoji, no highlighting.
    assert "\n[red]:smile: 1,234.5 http://a\n" in found
    assert "\x1b" not in written(blocks)


def head_of(shown: str, start: str = "median ms") -> list[str]:
    return next(line for line in shown.splitlines() if start in line).split()


@pytest.mark.parametrize("width", [60, 80, 130])
def test_no_time_is_left_out_at_any_width(width: int) -> None:
    for name in ("forward", "train", *(["gpu"] if width >= 80 else [])):
        for tree in (False, True):
            shown = on_terminal(profiles()[name](), width, tree=tree, depth=99)
            assert "\u2026" not in shown
            assert max(len(line) for line in shown.splitlines()) <= width
            found = head_of(shown, "incl." if tree else "median ms")
            wanted = {"incl."} if tree else {"path", "median", "%"}
            assert wanted | ({"host", "busy"} if name == "gpu" and not tree else set()) <= {*found}


def test_work_and_memory_by_layer_go_first_and_what_limits_them_last() -> None:
    new = ["GFLOP/s", "limit", "peak"]
    heads = {width: head_of(on_terminal(working(), width)) for width in (*range(60, 164, 8), 90)}
    counts = [sum(name in head for name in new) for _, head in sorted(heads.items())]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 3)
    assert heads[90][-1] == heads[84][-1] == "limit"
    # What the order is by is shown on a narrow console too.
    for sort, heading in (("flops", "MFLOP"), ("memory", "peak"), ("std", "std ms")):
        assert heading in " ".join(head_of(on_terminal(working(), 70, sort=sort)))


KEYS = [key for key in LAYER_COLUMNS if key not in ("index", "hot")]


@given(st.lists(st.sampled_from(KEYS), unique=True), st.sampled_from([40, 80, 400]))
def test_chosen_columns_are_all_there_and_in_order(keys: list[str], width: int) -> None:
    keys = ["index", *keys]
    shown = on_terminal(training(), width, columns=keys, sort="index", limit=3)
    found = next(line for line in shown.splitlines() if line.lstrip().startswith("#"))
    assert found.split() == " ".join(LAYER_COLUMNS[key].name for key in keys).split()
    assert "\u2026" not in shown
