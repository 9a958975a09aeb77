"""Documents as PDF, read again as a reader sees them."""

import io
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.document import Block, Code, Figure, Heading, caption_text, file, text
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import pdf
from chainer_profile.runs.wanted import Wanted
from chainer_profile.runs.write import asked_for
from tests import ROOT, needs
from tests.conftest import make_recording
from tests.report.documents import document
from tests.report.reading import column
from tests.report.seen import Item, told
from tests.report.working import training, working
from tests.report.writers.test_contract import every_block

pypdf = needs.module("pypdf")
needs.module("typst")

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
A4 = (595.28, 841.89)
MARGIN = 20 / 25.4 * 72
TITLE = ReportTitle("A first look", "Ada Lovelace", "Systems laboratory", "21 November 2026")


def opened(content: bytes) -> Any:
    assert content.startswith(b"%PDF-")
    return pypdf.PdfReader(io.BytesIO(content))


def written(*blocks: Block, **more: Any) -> Any:
    files = {block.file for block in blocks if isinstance(block, Figure)}
    return opened(pdf.write(blocks, dict.fromkeys(files, SVG), **more))


def made(summary: Summary) -> bytes:
    """``report.pdf`` of a run."""
    return dict(asked_for(summary, Wanted(("pdf",), TITLE)))["report.pdf"]


def squeezed(said: str) -> str:
    return "".join(said.split()).replace("\u200b", "")


def words(pages: Any) -> str:
    return squeezed("".join(page.extract_text() for page in pages))


def texts(item: Item | str) -> list[str]:
    return [item] if isinstance(item, str) else [text for part in item for text in texts(part)]


def is_turned(page: Any) -> bool:
    return bool(page.mediabox.width > page.mediabox.height)


def table(n_columns: int, n_rows: int, cell: str = "12,345.6789") -> Table:
    columns = [column(f"column{n}", lambda row: row) for n in range(n_columns)]
    return Table(columns, [cell] * n_rows, "Some numbers", number=1)


ON_PAGES = ("gpu report", "comparison report", "engines report", "tree", "network links")


@pytest.mark.parametrize("name", ON_PAGES)
def test_pages_say_the_same_in_its_order(name: str) -> None:
    blocks = document(name)
    reader = written(*blocks)
    found = ""
    title = next((block.text for block in blocks if isinstance(block, Heading)), None)
    for number, page in enumerate(reader.pages):
        lines = page.extract_text().split("\n")
        found += squeezed("".join(lines[1 if number and lines[0] == title else 0 : -1]))
    # What there is no room for is said, and no more than that is missing.
    cut = set(",".join(re.findall(r"Noroomonpaperfor:(.*?)\.", found)).split(","))
    for kind, *parts in told("html", blocks):
        # The head of a table is on each page, amid a cell that goes on there, too.
        head = squeezed("".join(texts(parts[0]))) if kind == "table" else ""
        without_heads = found.replace(head, "") if head else found
        if kind == "table":
            heading, rows = parts[:2]
            kept = [at for at, name in enumerate(heading) if squeezed(name) not in cut]
            parts = [[heading[at] for at in kept], [[row[at] for at in kept] for row in rows]]
        for said in texts(parts):
            assert squeezed(said) in found or squeezed(said) in without_heads
    headings = [block.text for block in blocks if isinstance(block, Heading) and block.level == 2]
    numbered = [one for one in blocks if isinstance(one, Table | Figure) and one.number]
    for said in (headings, ["".join(caption_text(one)) for one in numbered]):
        places = [found.index(squeezed(one)) for one in said]
        assert places == sorted(places)


def test_pages_and_what_the_file_says_of_itself() -> None:
    report = opened(made(working()))
    title, below = report.outline
    assert title.title == TITLE.title
    parts = [entry.title for entry in below if not isinstance(entry, list)]
    assert parts[::5] == ["1 Experiment description", "6 Appendix"]
    fonts = {}
    for number, page in enumerate(report.pages, 1):
        lines = page.extract_text().splitlines()
        assert (lines[0], lines[-1]) == (TITLE.title, f"{number} / {len(report.pages)}")
        size = sorted((float(page.mediabox.width), float(page.mediabox.height)))
        assert size == pytest.approx(A4, abs=0.1)
        for font in page["/Resources"]["/Font"].values():
            fonts[font["/BaseFont"]] = font["/DescendantFonts"][0]["/FontDescriptor"]
    assert len(fonts) >= 3
    # They are within the file.
    assert all({"/FontFile2", "/FontFile3"} & descriptor.keys() for descriptor in fonts.values())
    told, subject = report.metadata, "Layer-wise profile of chain"
    said = (told.title, told.author, told.keywords, told.subject)
    assert said == (TITLE.title, TITLE.author, TITLE.course, subject)
    assert told.creation_date == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    for began in ("", "no date", "0001-01-01T00:00:00Z", "2026-01-02"):
        date = written(Heading(1, "x"), began=began).metadata.creation_date
        assert date.tzinfo is not None, began
    summary = summarise(make_recording(2, n_trials=5))
    assert made(summary) == made(summary)
    # Lines of code are as they are.
    lines = written(Heading(1, "x"), Code("one \\\n    two")).pages[0].extract_text().splitlines()
    assert [line.strip() for line in lines[1:3]] == ["one \\", "two"]


# -- tables on pages


def test_a_long_table_repeats_its_head_and_a_short_one_is_on_one_page() -> None:
    columns = [column("name", "layer{}".format, kind="text 9"), column("time", "{}.5".format)]
    long = Table(columns, range(150), "Times", number=1)
    assert "align: (left, right,)" in "".join(pdf._parts(long))
    reader = written(Heading(1, "x"), long)
    assert len(reader.pages) >= 3
    assert all("nametime" in words([page]) for page in reader.pages)
    shown = words(reader.pages)
    assert all(f"layer{n}{n}.5" in shown for n in range(150))
    assert shown.count("Table1.Times.") == 1
    reader = written(Heading(1, "x"), *[text("A paragraph.")] * 30, table(3, 16))
    assert "column0" not in words(reader.pages[:-1])
    assert words(reader.pages[-1:]).count("12,345.6789") == 48


def test_a_wide_table_is_cut_and_what_matters_least_goes_first() -> None:
    reader = written(
        *(Heading(1, "x"), Heading(2, "Part"), table(3, 2), text("Of the narrow one.")),
        *(Heading(2, "Another part"), text("Of the wide one."), table(30, 2)),
        *(Heading(2, "A last part"), text("Behind it.")),
    )
    assert not any(map(is_turned, reader.pages))
    shown = words(reader.pages)
    assert "Noroomonpaperfor:column29,column28," in shown
    assert shown.count("12,345.6789") < 60
    assert "Behindit." in shown
    wide = table(13, 2)
    drops = [replace(one, drop=13 - at if at < 6 else 0) for at, one in enumerate(wide.columns)]
    shown = words(written(Heading(1, "x"), replace(wide, columns=drops)).pages)
    (left_out,) = re.findall(r"Noroomonpaperfor:([\w,]+)\.", shown)
    assert left_out.split(",")[:2] == ["column5", "column4"]


@pytest.mark.parametrize("name", ["resnet20-cpu-b1"])
def test_a_report_is_short_and_no_page_nearly_empty(name: str) -> None:
    recording = Recording.load(ROOT / "reports" / "samples" / name / "recording.npz")
    pages = opened(made(summarise(recording))).pages
    assert len(pages) <= 8
    assert not any(map(is_turned, pages))
    assert min(len(words([page])) for page in pages) > 300


def test_nothing_begins_beyond_the_margins() -> None:
    begins: list[float] = []

    def visit(said: str, cm: Sequence[float], tm: Sequence[float], *_: object) -> None:
        if said.strip():
            begins.append(tm[4] * cm[0] + cm[4])

    for summary in (working(), training()):
        for page in opened(made(summary)).pages:
            begins.clear()
            page.extract_text(visitor_text=visit)
            assert MARGIN - 0.5 <= min(begins) <= max(begins) < float(page.mediabox.width) - MARGIN


# -- names


_SYNTAX = '"); #panic("x") $x$ @ref <lab> // c /* d */ \\ `q` *b* _i_ [c] {d} ~ -- \' #sys \\u{41}'


NUMBERED = "Characters that this font lacks are shown by number."


@pytest.mark.parametrize(
    ("name", "shown", "lacks"),
    [
        (_SYNTAX, _SYNTAX, False),
        (" = e", "= e", False),
        *[("\u00e9\u00df \u03b1 \u0416 \u2192 \u00d7 \u00b5",) * 2 + (False,)],
        ("\u5c42\u5377 x", "\\u5c42\\u5377 x", True),
        ("\U0001f680", "\\U0001f680", True),
        # Those that no font could show need no word.
        ("\x1b[31m\x00\u202e", "\\x1b[31m\\x00\\u202e", False),
    ],
)
def test_a_name_is_shown_or_its_signs_by_number(name: str, shown: str, lacks: bool) -> None:
    about = dict.fromkeys(("author", "keywords", "description"), name)
    reader = written(*every_block(name), text(file(name)), about=about)
    found = words(reader.pages)
    # On every page, and wherever it stands; of a long one the last column has no room.
    places = len(reader.pages) + (31 if name == _SYNTAX else 34)
    assert found.count(squeezed(shown)) == places
    assert (squeezed(NUMBERED) in found) == lacks
    if name.isprintable() and not lacks:
        told = reader.metadata
        assert {told.title, told.author, told.keywords, told.subject} == {name}


@example("")
@example("a" * 500)
@example("\ud800 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627")
@given(st.text())
def test_any_name_makes_a_file(name: str) -> None:
    assert written(*every_block(name), text(file(name)), about={"author": name}, began=name).pages


def test_without_typst_one_line_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(ProfileError, match=r"extra pdf .*: python -m pip install typst$") as error:
        pdf.write([Heading(1, "x")], {})
    assert "\n" not in str(error.value)
