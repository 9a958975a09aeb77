"""The page as Chromium prints it: what a student hands in."""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import pytest

from chainer_profile import summarise
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.document import Heading, text
from chainer_profile.report.page import page, render
from chainer_profile.runs.folder import load_run
from chainer_profile.runs.write import beside
from tests import ROOT, needs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Width in CSS pixels of what stands between the margins of a sheet: 210 mm less two of 14 mm.
WIDTH = round((210 - 2 * 14) / 25.4 * 96)
MARGIN = 14 / 297
#: So few rows of a table do not stand alone on a sheet, neither its first nor its last.
FEW_ROWS = 3
MOST_SHEETS = {"resnet20-cpu-b1": 8, "resnet20-cpu-b32-train": 12}
#: How much lower all of a page stands, so that every part of it comes to the end of a sheet.
LOWER_MM = range(0, 270, 45)


def squeezed(text):
    return "".join(text.split())


@dataclass
class Sheet:
    """A sheet of paper; its number is that of all the sheets, such as ``1 / 8``."""

    page: Any
    number: str

    @cached_property
    def whole_text(self):
        """Its text without white space."""
        return squeezed(self.page.get_textpage().get_text_bounded())

    @property
    def text(self):
        """Its text without its number."""
        return self.whole_text.removeprefix(squeezed(self.number))

    @cached_property
    def filled(self):
        """How far down something stands between the margins: 1 is all of the sheet."""
        grey = np.asarray(self.page.render(scale=1).to_pil().convert("L"))
        height = len(grey)
        within = grey[int(MARGIN * height) : int((1 - MARGIN) * height)]
        (inked,) = np.nonzero((within < 200).any(axis=1))
        return (inked[-1] + 1) / len(within)


@dataclass
class Printed:
    """A page that is open, to be printed."""

    opened: Any
    sample: str
    #: The PDF of each sample and ``lower_mm``, for all tests.
    printed: ClassVar[dict[tuple[str, int], bytes]] = {}

    def sheets(self, lower_mm=0):
        """Its sheets; all that is on the page may stand lower, so that sheets end elsewhere."""
        which = self.sample, lower_mm
        if which not in self.printed:
            self.opened.emulate_media(media="null")
            self.opened.evaluate(f"document.body.style.paddingTop = '{lower_mm}mm'")
            self.printed[which] = self.opened.page.pdf(format="A4", prefer_css_page_size=True)
        pages = list(needs.module("pypdfium2").PdfDocument(self.printed[which]))
        return [Sheet(page, f"{at} / {len(pages)}") for at, page in enumerate(pages, 1)]

    @cached_property
    def tables(self):
        """Of every table the text that leads to it, of its head and of its rows, as on paper."""
        self.opened.emulate_media(media="print")
        found = self.opened.evaluate(
            """() => [...document.querySelectorAll("table")].map((table) => {
              const shown = (elements) => [...elements].filter((one) => one.checkVisibility());
              const text = (row) => shown(row.cells).map((one) => one.innerText).join("");
              const rows = shown(table.querySelectorAll("tbody tr")).map(text);
              const before = table.parentElement.previousElementSibling;
              const lead = before?.matches("p:not(.tools)") ? before.innerText : "";
              return [lead, text(table.tHead.rows[0]), rows];
            })"""
        )
        return [
            (squeezed(lead), squeezed(head), list(map(squeezed, rows)))
            for lead, head, rows in found
            if rows
        ]

    def places(self, sheets):
        """Of every table the text that leads to it, its head, and the sheets of its rows."""
        sheet, at = 0, 0
        for lead, head, rows in self.tables:
            places = []
            for row in rows:
                while (begin := sheets[sheet].text.find(row, at)) < 0:
                    sheet, at = sheet + 1, 0
                    assert sheet < len(sheets), f"on no sheet: {row}"
                at = begin + len(row)
                places.append(sheet)
            yield lead, head, places


@cache
def page_of(sample):
    folder = ROOT / "reports" / "samples" / sample
    recording = load_run(folder)
    title = ReportTitle("Layer times", "Ada Lovelace", "Systems laboratory")
    return render(summarise(recording), beside(folder, recording), title=title)


@pytest.fixture(params=MOST_SHEETS)
def printed(request, open_page):
    return Printed(open_page(page_of(request.param), width=WIDTH), request.param)


def test_sheets_are_few_and_none_is_half_empty(printed):
    sheets = printed.sheets()
    assert len(sheets) <= MOST_SHEETS[printed.sample]
    # Who made it stands before the answer, and every sheet has its number.
    for words in ("Layertimes", "AdaLovelace", "Systemslaboratory"):
        assert words in sheets[0].text
    assert all(one.whole_text.startswith(squeezed(one.number)) for one in sheets)
    for lower_mm in LOWER_MM:
        filled = [one.filled for one in printed.sheets(lower_mm)[:-1]]
        assert min(filled) >= 0.5, (lower_mm, filled)


def test_tables_are_parted_where_enough_rows_stand_on_either_sheet_and_repeat_their_head(printed):
    parted = 0
    for lower_mm in LOWER_MM:
        sheets = printed.sheets(lower_mm)
        for lead, head, places in printed.places(sheets):
            on = {sheet: places.count(sheet) for sheet in sorted(set(places))}
            for sheet, count in on.items():
                assert count >= min(FEW_ROWS, len(places)), (lower_mm, head, on)
                assert head in sheets[sheet].text, (lower_mm, head, sheet)
            assert lead in sheets[places[0]].text, (lower_mm, lead)
            parted += len(on) > 1
    # The table of all 66 layers fills a sheet: it is whole only where it begins one.
    assert parted >= len(LOWER_MM) // 2


def test_a_heading_is_not_the_last_on_a_sheet(open_page):
    # Sections of one to five lines, so that sheets end in all places of a section.
    names = [f"Section {number}" for number in range(300)]
    lines = [[text("words")] * (1 + number * number % 7) for number in range(300)]
    blocks = [
        b for name, words in zip(names, lines, strict=True) for b in (Heading(2, name), *words)
    ]
    opened = open_page(page([Heading(1, "Many"), text("first"), *blocks], "Kind"), width=WIDTH)
    sheets = Printed(opened, "many sections").sheets()
    assert len(sheets) > 10
    assert [one.number for one in sheets if re.search(r"Section\d+$", one.text)] == []


def test_figures_are_as_wide_as_the_text(printed):
    printed.opened.emulate_media(media="print")
    drawn = printed.opened.evaluate(
        """() => [...document.querySelectorAll("figure svg")].map((svg) =>
          svg.getScreenCTM().a * svg.viewBox.baseVal.width /
          svg.closest("section").clientWidth)"""
    )
    assert len(drawn) >= 2
    assert all(0.98 <= part <= 1.001 for part in drawn), drawn


def test_no_boxes_are_parted(printed):
    printed.opened.emulate_media(media="print")
    parted = printed.opened.evaluate(
        """() => [...document.querySelectorAll(".boxes")].map(
          (boxes) => getComputedStyle(boxes).breakInside)"""
    )
    assert set(parted) == {"avoid"}


def test_what_is_only_for_the_screen_is_not_printed_and_nothing_is_cut(printed):
    sheets = printed.sheets()
    printed.opened.emulate_media(media="print")
    assert not printed.opened.is_visible("nav")
    assert not printed.opened.is_visible("button")
    assert not any("Clickaheading" in sheet.text for sheet in sheets)
    assert printed.opened.evaluate(
        """() => [...document.querySelectorAll("main *")].every(
          (one) => one.getBoundingClientRect().right <= innerWidth + 1)"""
    )
    command = squeezed(printed.opened.inner_text("main pre"))
    assert command in "".join(sheet.text for sheet in sheets)
    # Folded parts stay folded; who filters knows how many rows there are.
    assert printed.opened.locator("details[open]").count() == 0
    printed.opened.emulate_media(media="screen")
    printed.opened.fill("#the-layers input[type=search]", "conv1")
    printed.opened.emulate_media(media="print")
    assert "rows" in printed.opened.inner_text("#the-layers .tools")
    assert not printed.opened.is_visible("#the-layers .tools .save")
