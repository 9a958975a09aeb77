"""The page as Chromium prints it, for a student to hand in."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

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
    assert all(sheet.whole_text.startswith(squeezed(sheet.number)) for sheet in sheets)
    for lower_mm in LOWER_MM:
        filled = [sheet.filled for sheet in printed.sheets(lower_mm)[:-1]]
        assert min(filled) >= 0.5, (lower_mm, filled)


def test_parts_for_the_screen_are_not_printed_and_nothing_is_cut_or_parted(printed):
    sheets = printed.sheets()
    printed.opened.emulate_media(media="print")
    assert not printed.opened.is_visible("nav")
    assert not printed.opened.is_visible("button")
    assert not any("Clickaheading" in sheet.text for sheet in sheets)
    assert printed.opened.evaluate(
        """() => [...document.querySelectorAll("main *")].every(
          (one) => one.getBoundingClientRect().right <= innerWidth + 1)"""
    )
    breaks = "(every) => every.map((boxes) => getComputedStyle(boxes).breakInside)"
    assert set(printed.opened.locator(".boxes").evaluate_all(breaks)) == {"avoid"}
    command = squeezed(printed.opened.inner_text("main pre"))
    assert command in "".join(sheet.text for sheet in sheets)
    # Folded parts stay folded; who filters knows how many rows there are.
    assert printed.opened.locator("details[open]").count() == 0
    printed.opened.emulate_media(media="screen")
    printed.opened.fill("#the-layers input[type=search]", "conv1")
    printed.opened.emulate_media(media="print")
    assert "rows" in printed.opened.inner_text("#the-layers .tools")
    assert not printed.opened.is_visible("#the-layers .tools .save")
