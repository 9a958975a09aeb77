"""The page as Chromium prints it."""

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

#: Width in CSS pixels between the margins of a sheet: 210 mm minus two margins of 14 mm.
WIDTH = round((210 - 2 * 14) / 25.4 * 96)
MARGIN = 14 / 297
MAX_SHEETS = {"resnet20-cpu-b1": 8, "resnet20-cpu-b32-train": 12}
#: Offsets of the content in mm, so that every part of it is once at the end of a sheet.
LOWER_MM = range(0, 270, 45)


@cache
def page_of(sample):
    folder = ROOT / "reports" / "samples" / sample
    recording = load_run(folder)
    title = ReportTitle("Layer times", "Ada Lovelace", "Systems laboratory")
    return render(summarise(recording), related_results(folder, recording), title=title)


def squeezed(text):
    """Remove white space from a text."""
    return "".join(text.split())


def sheets_of(opened, lower_mm=0):
    """Print a page; ``lower_mm`` moves its content down, so that sheets end at other places."""
    opened.emulate_media(media="null")
    opened.evaluate(f"document.body.style.paddingTop = '{lower_mm}mm'")
    pdf = opened.page.pdf(format="A4", prefer_css_page_size=True)
    return list(needs.module("pypdfium2").PdfDocument(pdf))


def texts_of(sheets):
    """Return the text of each sheet without the sheet number, such as ``1 / 8``."""
    texts = []
    for index, sheet in enumerate(sheets, 1):
        text, number = squeezed(sheet.get_textpage().get_text_bounded()), f"{index}/{len(sheets)}"
        assert text.startswith(number)
        texts.append(text.removeprefix(number))
    return texts


def filled(sheet):
    """Return the filled part of a sheet between the margins, where 1 is a full sheet."""
    grey = np.asarray(sheet.render(scale=1).to_pil().convert("L"))
    within = grey[int(MARGIN * len(grey)) : int((1 - MARGIN) * len(grey))]
    (inked,) = np.nonzero((within < 200).any(axis=1))
    return (inked[-1] + 1) / len(within)


@pytest.mark.parametrize("sample", MAX_SHEETS)
def test_printed_page_has_few_full_sheets_and_no_screen_controls(open_page, sample):
    opened = open_page(page_of(sample), width=WIDTH)
    for lower_mm in LOWER_MM:
        *sheets, _ = sheets_of(opened, lower_mm)
        assert min(map(filled, sheets)) >= 0.5, lower_mm
    texts = texts_of(sheets_of(opened))
    assert len(texts) <= MAX_SHEETS[sample]
    # The author is on the first sheet.
    for words in ("Layertimes", "AdaLovelace", "Systemslaboratory"):
        assert words in texts[0]
    # A command continues on the next sheet.
    assert squeezed(opened.inner_text("main pre")) in "".join(texts)
    assert "Clickaheading" not in "".join(texts)
    opened.emulate_media(media="print")
    assert not opened.is_visible("nav")
    assert not opened.is_visible("button")
    assert opened.evaluate(
        """() => [...document.querySelectorAll("main *")].every(
          (element) => element.getBoundingClientRect().right <= innerWidth + 1)"""
    )
    # Folded parts stay folded; the number of rows is printed if a filter is set.
    assert opened.locator("details[open]").count() == 0
    opened.emulate_media(media="screen")
    opened.fill("#the-layers input[type=search]", "conv1")
    opened.emulate_media(media="print")
    assert "rows" in opened.inner_text("#the-layers .tools")
    assert not opened.is_visible("#the-layers .tools .save")
