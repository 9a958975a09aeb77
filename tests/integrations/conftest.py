"""Pictures and pages of what is measured here have tests of their own."""

from __future__ import annotations

import pytest

from chainer_profile.report import page
from chainer_profile.report.pictures import layers, roofline


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all else."""
    for picture in (layers, roofline):
        monkeypatch.setattr(picture, "render", lambda summary, form: b"picture")
    monkeypatch.setattr(page, "render", lambda summary, **more: "page")
