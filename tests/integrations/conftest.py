"""Pictures, pages and reports of what is measured here have tests of their own."""

from unittest.mock import create_autospec

import pytest

from chainer_profile.report import page
from chainer_profile.report.content import profile
from chainer_profile.report.document import text
from chainer_profile.report.pictures.figures import Picture

REPORT = profile.report


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch):
    """Drawing takes longer than all else."""
    for form in ("png", "svg"):
        monkeypatch.setattr(Picture, form, lambda self: b"plot")
    monkeypatch.setattr(page, "render", lambda *_, **__: "page")


@pytest.fixture(autouse=True)
def plain_report(monkeypatch):
    """The text of a report likewise; who reads it sets it back to REPORT."""
    report = create_autospec(profile.report, return_value=[text("report")])
    monkeypatch.setattr(profile, "report", report)
