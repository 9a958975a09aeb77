"""The times of a whole trial."""

from __future__ import annotations

from chainer_profile.analyse.summaries import summarise
from chainer_profile.report.content import profile
from chainer_profile.report.page import render
from tests.goldens.words import fast
from tests.report.page.reading import Read
from tests.report.reading import on_terminal


def test_an_engines_totals_are_in_its_words_everywhere() -> None:
    summary = summarise(fast())
    said = {
        "page": Read(render(summary)).text,
        "paper": str(dict(profile.tables(summary))["times"].cells()),
        "terminal": on_terminal(summary, 160),
    }
    for where, text in said.items():
        assert "Runtime overhead (between the nodes)" in text, where
        assert "Sum of the nodes" in text, where
        assert "Framework" not in text, where
