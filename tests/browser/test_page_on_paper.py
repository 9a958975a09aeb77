"""The page as Chromium prints it, for a student to hand in."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest

from chainer_profile import summarise
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.page import render
from chainer_profile.runs.folder import load_run
from chainer_profile.runs.write import beside
from tests import ROOT, needs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Width in CSS pixels between the margins of a sheet: 210 mm less two of 14 mm.
WIDTH = round((210 - 2 * 14) / 25.4 * 96)
MARGIN = 14 / 297
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
    def text(self):
        """Its text without white space."""
        return squeezed(self.page.get_textpage().get_text_bounded())

    @cached_property
    def filled(self):
        """How far down something stands between the margins: 1 is all of the sheet."""
        grey = np.asarray(self.page.render(scale=1).to_pil().convert("L"))
        within = grey[int(MARGIN * len(grey)) : int((1 - MARGIN) * len(grey))]
        (inked,) = np.nonzero((within < 200).any(axis=1))
        return (inked[-1] + 1) / len(within)


def sheets_of(opened, lower_mm=0):
    """The sheets of a page; all that is on it may stand lower, so that sheets end elsewhere."""
    opened.emulate_media(media="null")
    opened.evaluate(f"document.body.style.paddingTop = '{lower_mm}mm'")
    pdf = opened.page.pdf(format="A4", prefer_css_page_size=True)
    pages = list(needs.module("pypdfium2").PdfDocument(pdf))
    return [Sheet(page, f"{at} / {len(pages)}") for at, page in enumerate(pages, 1)]


@cache
def page_of(sample):
    folder = ROOT / "reports" / "samples" / sample
    recording = load_run(folder)
    title = ReportTitle("Layer times", "Ada Lovelace", "Systems laboratory")
    return render(summarise(recording), beside(folder, recording), title=title)


@pytest.mark.parametrize("sample", MOST_SHEETS)
def test_sheets_are_few_and_none_is_half_empty(open_page, sample):
    opened = open_page(page_of(sample), width=WIDTH)
    for lower_mm in LOWER_MM:
        sheets = sheets_of(opened, lower_mm)
        filled = [sheet.filled for sheet in sheets[:-1]]
        assert min(filled) >= 0.5, (lower_mm, filled)
        if not lower_mm:
            assert len(sheets) <= MOST_SHEETS[sample]
            # Who made it stands before the answer, and every sheet has its number.
            for words in ("Layertimes", "AdaLovelace", "Systemslaboratory"):
                assert words in sheets[0].text
            assert all(sheet.text.startswith(squeezed(sheet.number)) for sheet in sheets)


@pytest.mark.parametrize("sample", MOST_SHEETS)
def test_parts_for_the_screen_are_not_printed_and_nothing_is_cut_or_parted(open_page, sample):
    opened = open_page(page_of(sample), width=WIDTH)
    sheets = sheets_of(opened)
    opened.emulate_media(media="print")
    assert not opened.is_visible("nav")
    assert not opened.is_visible("button")
    assert not any("Clickaheading" in sheet.text for sheet in sheets)
    assert opened.evaluate(
        """() => [...document.querySelectorAll("main *")].every(
          (element) => element.getBoundingClientRect().right <= innerWidth + 1)"""
    )
    breaks = "(every) => every.map((boxes) => getComputedStyle(boxes).breakInside)"
    assert set(opened.locator(".boxes").evaluate_all(breaks)) == {"avoid"}
    # A command goes on on the next sheet, behind its number.
    text = "".join(sheet.text.removeprefix(squeezed(sheet.number)) for sheet in sheets)
    assert squeezed(opened.inner_text("main pre")) in text
    # Folded parts stay folded; who filters knows how many rows there are.
    assert opened.locator("details[open]").count() == 0
    opened.emulate_media(media="screen")
    opened.fill("#the-layers input[type=search]", "conv1")
    opened.emulate_media(media="print")
    assert "rows" in opened.inner_text("#the-layers .tools")
    assert not opened.is_visible("#the-layers .tools .save")
