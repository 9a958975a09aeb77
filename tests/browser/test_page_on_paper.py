"""The page as Chromium prints it, for a student to hand in."""

from functools import cache

import numpy as np
import pytest

from chainer_profile import summarise
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.page import render
from chainer_profile.runs.folder import load_run
from chainer_profile.runs.write import related_results
from tests import ROOT, needs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Width in CSS pixels between the margins of a sheet: 210 mm less two of 14 mm.
WIDTH = round((210 - 2 * 14) / 25.4 * 96)
MARGIN = 14 / 297
MOST_SHEETS = {"resnet20-cpu-b1": 8, "resnet20-cpu-b32-train": 12}
#: How much lower all of a page stands, so that every part of it comes to the end of a sheet.
LOWER_MM = range(0, 270, 45)


@cache
def page_of(sample):
    folder = ROOT / "reports" / "samples" / sample
    recording = load_run(folder)
    title = ReportTitle("Layer times", "Ada Lovelace", "Systems laboratory")
    return render(summarise(recording), related_results(folder, recording), title=title)


def squeezed(text):
    """A text without white space."""
    return "".join(text.split())


def sheets_of(opened, lower_mm=0):
    """The sheets of a page; all that is on it may stand lower, so that sheets end elsewhere."""
    opened.emulate_media(media="null")
    opened.evaluate(f"document.body.style.paddingTop = '{lower_mm}mm'")
    pdf = opened.page.pdf(format="A4", prefer_css_page_size=True)
    return list(needs.module("pypdfium2").PdfDocument(pdf))


def texts_of(sheets):
    """What stands on each sheet behind its number, such as ``1 / 8``."""
    texts = []
    for at, sheet in enumerate(sheets, 1):
        text, number = squeezed(sheet.get_textpage().get_text_bounded()), f"{at}/{len(sheets)}"
        assert text.startswith(number)
        texts.append(text.removeprefix(number))
    return texts


def filled(sheet):
    """How far down something stands between the margins: 1 is all of the sheet."""
    grey = np.asarray(sheet.render(scale=1).to_pil().convert("L"))
    within = grey[int(MARGIN * len(grey)) : int((1 - MARGIN) * len(grey))]
    (inked,) = np.nonzero((within < 200).any(axis=1))
    return (inked[-1] + 1) / len(within)


@pytest.mark.parametrize("sample", MOST_SHEETS)
def test_sheets_are_few_and_whole_and_hold_nothing_for_the_screen(open_page, sample):
    opened = open_page(page_of(sample), width=WIDTH)
    for lower_mm in LOWER_MM:
        *sheets, _ = sheets_of(opened, lower_mm)
        assert min(map(filled, sheets)) >= 0.5, lower_mm
    texts = texts_of(sheets_of(opened))
    assert len(texts) <= MOST_SHEETS[sample]
    # Who made it stands before the answer.
    for words in ("Layertimes", "AdaLovelace", "Systemslaboratory"):
        assert words in texts[0]
    # A command goes on on the next sheet.
    assert squeezed(opened.inner_text("main pre")) in "".join(texts)
    assert "Clickaheading" not in "".join(texts)
    opened.emulate_media(media="print")
    assert not opened.is_visible("nav")
    assert not opened.is_visible("button")
    assert opened.evaluate(
        """() => [...document.querySelectorAll("main *")].every(
          (element) => element.getBoundingClientRect().right <= innerWidth + 1)"""
    )
    # Folded parts stay folded; who filters knows how many rows there are.
    assert opened.locator("details[open]").count() == 0
    opened.emulate_media(media="screen")
    opened.fill("#the-layers input[type=search]", "conv1")
    opened.emulate_media(media="print")
    assert "rows" in opened.inner_text("#the-layers .tools")
    assert not opened.is_visible("#the-layers .tools .save")
