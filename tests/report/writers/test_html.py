"""What HTML alone does: bars, folding cells, names and values, and what it leaves out."""

from __future__ import annotations

import re

from chainer_profile.report.document import (
    HOT,
    Figure,
    Lines,
    Piece,
    code,
    file,
    strong,
    text,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import html
from tests.report.reading import column


def test_texts_are_data_with_their_styles() -> None:
    block = text("<b>&", code("<i>"), strong("'\""), "\x00\n", Piece("עברית"))
    assert html.write([block]) == (
        "<p>&lt;b&gt;&amp;<code>&lt;i&gt;</code><strong>&#x27;&quot;</strong>\\x00\\n"
        "<bdi>עברית</bdi></p>"
    )


def test_figures_and_what_leads_to_other_files_are_left_out() -> None:
    kept, gone = text("here"), text("See ", file("links.csv"))
    assert html.write([gone, kept, Figure("a.png", "a", "b")]) == "<p>here</p>"


def test_names_and_values_have_no_head() -> None:
    pairs = Table([column("", lambda row: row[0]), column("", lambda row: row[1])], [("a", "b")])
    shown = '<dl class="properties"><div><dt>a</dt><dd>b</dd></div></dl>'
    assert html.write([pairs]) == html.write([Lines([("a", "b")])]) == shown


def test_numbers_stand_to_the_right_long_texts_fold_and_names_are_set_in() -> None:
    columns = [column("name", str, kind="text 8"), column("n", lambda row: str(len(row)), "n [1]")]
    shown = html.table(Table(columns, ["a", "  b", "c" * 41], 'of "x"', legend=[("x", "no")]))
    assert 'aria-label="of &quot;x&quot;"' in shown
    assert '<th scope="col" class="text name">name</th><th scope="col">n [1]</th>' in shown
    assert '<td class="text name">a</td><td>1</td>' in shown
    assert '<td class="text name">&#160;&#160;&#160;&#160;b</td>' in shown
    assert f'<td class="text name long">{"c" * 41}</td>' in shown
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
