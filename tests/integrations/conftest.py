"""Reports have tests of their own."""

from unittest.mock import create_autospec

import pytest

from chainer_profile.report.content import profile
from chainer_profile.report.document import text


@pytest.fixture(autouse=True)
def plain_report(monkeypatch):
    """Their text takes long."""
    report = create_autospec(profile.report, return_value=[text("report")])
    monkeypatch.setattr(profile, "report", report)
