"""Commands write reports whose text costs nothing; what is in it others test."""

from __future__ import annotations

from unittest.mock import create_autospec

import pytest

from chainer_profile.report.content import profile
from chainer_profile.report.document import text


@pytest.fixture(autouse=True)
def plain_report(monkeypatch: pytest.MonkeyPatch) -> None:
    report = create_autospec(profile.report, return_value=[text("report")])
    monkeypatch.setattr(profile, "report", report)
