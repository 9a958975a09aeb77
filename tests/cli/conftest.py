"""Commands write reports whose text costs nothing; what is in it others test."""

from __future__ import annotations

from unittest.mock import create_autospec

import pytest

from chainer_profile.report.writers import markdown


@pytest.fixture(autouse=True)
def plain_report(monkeypatch: pytest.MonkeyPatch) -> None:
    render = create_autospec(markdown.render, return_value="report")
    monkeypatch.setattr(markdown, "render", render)
