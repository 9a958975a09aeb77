"""Documents as PDF, read again as a reader sees them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.content.profile import report as profile_report
from chainer_profile.report.document import (
    CODE,
    STRONG,
    Block,
    Code,
    Figure,
    Heading,
    Lines,
    Piece,
    Points,
    Text,
    caption_text,
    text,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import pdf
from chainer_profile.runs.wanted import Wanted
from chainer_profile.runs.write import asked_for
from tests import ROOT, needs
from tests.conftest import make_recording
from tests.report.reading import column
from tests.report.working import training, working

pypdf = needs.module("pypdf")
needs.module("typst")

A4 = (595.28, 841.89)
MARGIN = 20 / 25.4 * 72
TITLE = ReportTitle("A first look", "Ada Lovelace", "Systems laboratory", "21 November 2026")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
LACKING = "Signs that this font lacks are shown by number."


def opened(content: bytes) -> Any:
    assert content.startswith(b"%PDF-")
    return pypdf.PdfReader(io.BytesIO(content))


def written(*blocks: Block, **more: Any) -> Any:
    return opened(pdf.write(blocks, {"a.png": SVG}, **more))


def made(summary: Summary, title: ReportTitle | None = None) -> bytes:
    """``report.pdf`` of a run."""
    return dict(asked_for(summary, Wanted(("pdf",), title)))["report.pdf"]


def squeezed(shown: str) -> str:
    """Without what breaks lines."""
    return "".join(shown.replace("\u200b", "").split())


def words(pages: Any) -> str:
    return squeezed("".join(page.extract_text() for page in pages))


def lies(page: Any) -> bool:
    return bool(page.mediabox.width > page.mediabox.height)


def table(n_columns: int, n_rows: int, cell: str = "12,345.6789") -> Table:
    columns = [column(f"column{n}", lambda row: row) for n in range(n_columns)]
    return Table(columns, [cell] * n_rows, "Some numbers", number=1)


@pytest.fixture(scope="module")
def report() -> Any:
    return opened(made(working(), TITLE))


def test_it_has_the_parts_of_the_report_in_their_order(report: Any) -> None:
    shown = words(report.pages)
    names = (
        "1 Experiment description",
        "2 Environment",
        "3 Methodology",
        "4 Result",
        "5 Next step for improvement",
        "6 Appendix",
    )
    parts = ("A first look", "Author: Ada Lovelace", "A forward pass takes", *names)
    at = [shown.index(squeezed(part)) for part in parts]
    assert at == sorted(at)
    first = words(report.pages[:1])
    assert all(squeezed(part) in first for part in (parts[2], "Where the time", "Next:"))
    title, below = report.outline
    assert title.title == "A first look"
    assert [entry.title for entry in below if not isinstance(entry, list)] == list(names)


def test_captions_and_cells_are_those_of_the_document(report: Any) -> None:
    shown = words(report.pages)
    blocks = profile_report(working(), TITLE, files=False)
    captioned = [block for block in blocks if isinstance(block, (Table, Figure))]
    assert len(captioned) > 8
    captions = [squeezed("".join(caption_text(block))) for block in captioned]
    at = [shown.index(caption) for caption in captions]
    assert at == sorted(at)
    for block in captioned:
        for row in block.cells() if isinstance(block, Table) else ():
            assert squeezed("".join(row)) in shown


def test_pages_have_numbers_and_all_but_the_first_the_title(report: Any) -> None:
    for number, page in enumerate(report.pages, 1):
        lines = page.extract_text().splitlines()
        assert lines[-1] == f"{number} / {len(report.pages)}"
        assert lines[0] == "A first look"
        size = sorted((float(page.mediabox.width), float(page.mediabox.height)))
        assert size == pytest.approx(A4, abs=0.1)


def test_what_the_file_says_of_itself(report: Any) -> None:
    told = report.metadata
    assert (told.title, told.author, told.keywords, told.subject) == (
        "A first look",
        "Ada Lovelace",
        "Systems laboratory",
        "Layer-wise profile of chain",
    )
    assert told.creation_date == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize("began", ["", "no date", "0001-01-01T00:00:00Z", "2026-01-02"])
def test_any_begin_of_a_run_is_taken(began: str) -> None:
    assert written(Heading(1, "x"), began=began).metadata.creation_date.tzinfo is not None


def test_all_fonts_are_embedded(report: Any) -> None:
    found = {}
    for page in report.pages:
        for font in page["/Resources"]["/Font"].values():
            found[font["/BaseFont"]] = font["/DescendantFonts"][0]["/FontDescriptor"]
    assert len(found) >= 3
    assert all({"/FontFile2", "/FontFile3"} & descriptor.keys() for descriptor in found.values())


def test_the_same_run_gives_the_same_bytes() -> None:
    summary = summarise(make_recording(2, n_trials=5))
    assert made(summary, TITLE) == made(summary, TITLE)


# -- tables on pages


def test_a_long_table_repeats_its_head() -> None:
    columns = [
        column("name", lambda n: f"layer{n}", kind="text 9"),
        column("time", lambda n: f"{n}.5"),
    ]
    reader = written(Heading(1, "x"), Table(columns, range(150), "Times", number=1))
    assert len(reader.pages) >= 3
    for page in reader.pages:
        assert not lies(page)
        assert "nametime" in words([page])
    shown = words(reader.pages)
    assert all(f"layer{n}{n}.5" in shown for n in range(150))
    assert shown.count("Table1.Times.") == 1


def test_a_wide_table_is_cut_and_no_page_turned() -> None:
    reader = written(
        *(Heading(1, "x"), Heading(2, "Part"), table(3, 2), text("Of the narrow one.")),
        *(Heading(2, "Another part"), text("Of the wide one."), table(30, 2)),
        *(Heading(2, "A last part"), text("Behind it.")),
    )
    assert not any(map(lies, reader.pages))
    shown = words(reader.pages)
    assert "Noroomonpaperfor:column29,column28," in shown
    assert shown.count("12,345.6789") < 60
    assert "Behindit." in shown


def test_what_matters_least_goes_first() -> None:
    columns = [
        column("name", lambda n: f"layer{n}", kind="text 9"),
        *(
            replace(column(f"number{at}", lambda n: "12,345.6789"), drop=12 - at if at < 6 else 0)
            for at in range(12)
        ),
    ]
    shown = words(written(Heading(1, "x"), Table(columns, range(2), "Times", number=1)).pages)
    (left_out,) = re.findall(r"Noroomonpaperfor:([\w,]+)\.", shown)
    assert left_out.split(",")[:2] == ["number5", "number4"]


@pytest.mark.parametrize("name", ["resnet20-cpu-b1", "resnet20-cpu-b32"])
def test_a_report_is_short_and_no_page_nearly_empty(name: str) -> None:
    recording = Recording.load(ROOT / "reports" / "samples" / name / "recording.npz")
    pages = opened(made(summarise(recording), TITLE)).pages
    assert len(pages) <= 8
    assert not any(map(lies, pages))
    assert min(len(words([page])) for page in pages) > 300


def test_a_short_table_is_on_one_page() -> None:
    reader = written(Heading(1, "x"), *[text("A paragraph.")] * 30, table(3, 16))
    assert "column0" not in words(reader.pages[:-1])
    assert words(reader.pages[-1:]).count("12,345.6789") == 48


@pytest.mark.parametrize("summary", [working, training], ids=["forward", "training"])
def test_nothing_begins_beyond_the_margins(summary: Any) -> None:
    blocks = profile_report(summary(), files=False)
    pictures = {block.file: SVG for block in blocks if isinstance(block, Figure)}
    begins: list[float] = []

    def visit(said: str, cm: Sequence[float], tm: Sequence[float], *_: object) -> None:
        if said.strip():
            begins.append(tm[4] * cm[0] + cm[4])

    for page in opened(pdf.write(blocks, pictures)).pages:
        begins.clear()
        page.extract_text(visitor_text=visit)
        assert MARGIN - 0.5 <= min(begins) <= max(begins) < float(page.mediabox.width) - MARGIN


# -- names


def everywhere(name: str) -> Sequence[Block]:
    """A name in every place that takes one."""
    columns = [
        column("cell", lambda row: row, kind="text 9"),
        column("name", lambda row: row, kind="code 9"),
        column(name, lambda row: row),
    ]
    pieces = (name, Piece(name, CODE), Piece(name, STRONG), Piece(name, link=name))
    return (
        Heading(1, name),
        Text(pieces, note=True),
        Points((pieces,)),
        Lines([("Author", name)]),
        Code(name),
        Table(columns, [name], name, [STRONG], number=1),
        Figure("a.png", name, name, number=1),
    )


#: Beside the title, which is on every page.
PLACES = 16
NAMES = [
    '"); #panic("x") $x$ @ref <lab> // c /* d */ \\ `q` *b* _i_ [c] {d} ~ -- \' #sys \\u{41} = e',
    "\u00e9\u00df \u03b1 \u0416 \u2192 \u00d7 \u00b5",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is(name: str) -> None:
    said = {"author": name, "keywords": name, "description": name}
    reader = written(*everywhere(name), about=said)
    assert words(reader.pages).count(squeezed(name)) == PLACES + len(reader.pages)
    told = reader.metadata
    assert {told.title, told.author, told.keywords, told.subject} == {name}
    assert squeezed(LACKING) not in words(reader.pages)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\u5c42\u5377 x", "\\u5c42\\u5377 x"),
        ("\U0001f680", "\\U0001f680"),
        ("\x1b[31m\x00\u202e", "\\x1b[31m\\x00\\u202e"),
    ],
)
def test_a_sign_that_cannot_be_shown_is_a_number(name: str, shown: str) -> None:
    reader = written(*everywhere(name))
    assert words(reader.pages).count(squeezed(shown)) == PLACES + len(reader.pages)
    # Those that no font could show need no word.
    assert (squeezed(LACKING) in words(reader.pages)) == (not name.startswith("\x1b"))


@settings(max_examples=25, deadline=None)
@example("")
@example("a" * 500)
@example("\ud800 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627")
@given(st.text())
def test_any_name_makes_a_file(name: str) -> None:
    assert written(*everywhere(name), about={"author": name}, began=name).pages


def test_lines_of_code_are_as_they_are() -> None:
    lines = written(Heading(1, "x"), Code("one \\\n    two")).pages[0].extract_text().splitlines()
    assert [line.strip() for line in lines[1:3]] == ["one \\", "two"]


def test_without_typst_one_line_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(ProfileError, match=r"extra pdf .*: python -m pip install typst$") as error:
        pdf.write([Heading(1, "x")], {})
    assert "\n" not in str(error.value)
