"""What Markdown, HTML and the terminal each do alone; :mod:`.test_contract` holds what all do."""

import io
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.document import (
    FASTER,
    HOT,
    TOTAL,
    Figure,
    Piece,
    code,
    file,
    strong,
    text,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable
from chainer_profile.report.writers import html, markdown
from chainer_profile.report.writers.terminal import show, wrapped, written
from tests.report.documents import profiles
from tests.report.reading import column, on_terminal
from tests.report.seen import seen
from tests.report.working import training, working

# -- Markdown


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
    assert html.write([gone, block, text("less", aside=True), Figure("a.png", "a", "b")]) == (
        "<p>&lt;b&gt;&amp;<code>&lt;i&gt;</code><strong>&#x27;&quot;</strong>\\x00\\n"
        '<bdi>עברית</bdi></p>\n<p class="aside">less</p>'
    )


# -- a terminal


@given(st.integers(18, 60), st.text("abc-/", min_size=1, max_size=60))
def test_all_of_a_folded_text_is_there(width: int, name: str) -> None:
    columns = [column("x", str, kind="text 8"), column("y", lambda row: row[::-1], kind="text 8")]
    shown = written([Table(columns, [name])], width).split("\n")
    assert max(map(len, shown)) <= width
    second = shown[1].rindex(" ") + 1
    assert "".join(line[:second].strip() for line in shown[2:]) == name
    assert "".join(line[second:].strip() for line in shown[2:]) == name[::-1]


def test_a_sentence_folds_between_its_words() -> None:
    sentence = "Written to reports/a-very-long-name-of-a-folder: and more"
    assert wrapped(sentence, None) == wrapped(sentence, 200) == sentence
    folded = ["Written to", "  reports/a-very-long-name-of-a-folder:", "  and more"]
    assert wrapped(sentence, 30, 2).splitlines() == folded


def test_styles_of_marked_rows_and_notes() -> None:
    columns = [column("name", str, kind="text 4"), column("length", lambda row: str(len(row)))]
    table = Table(columns, ["a", "b", "c", "d"], marks=[HOT, TOTAL, FASTER])
    blocks = [table, text("careful", note=True), text("less", aside=True), text(strong("most"))]
    stream, how = io.StringIO(), {"force_terminal": True, "color_system": "standard"}
    console = Console(file=stream, width=30, _environ={}, **how)  # type: ignore[arg-type]
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


def test_no_time_is_left_out_at_any_width() -> None:
    for width, name, tree in product((60, 80, 130), ("forward", "train", "gpu"), (False, True)):
        if name == "gpu" and width < 80:
            continue
        shown = on_terminal(profiles()[name](), width, tree=tree, depth=99)
        assert "\u2026" not in shown
        assert max(len(line) for line in shown.splitlines()) <= width
        wanted = {"incl."} if tree else {"path", "median", "%"}
        wanted |= {"host", "busy"} if name == "gpu" and not tree else set()
        assert wanted <= {*head_of(shown, "incl." if tree else "median ms")}


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
