"""Integration tests skip reports, which other tests check."""

from unittest.mock import create_autospec

import pytest

from chainer_profile.measure import iteration_writer
from chainer_profile.report.content import profile
from chainer_profile.report.document import text
from tests.integrations.watching import Watching


@pytest.fixture(autouse=True)
def plain_report(monkeypatch):
    """Replace the text of reports, which is slow."""
    report = create_autospec(profile.report, return_value=[text("report")])
    monkeypatch.setattr(profile, "report", report)


@pytest.fixture
def watching(clock, monkeypatch):
    monkeypatch.setattr(iteration_writer, "cost_of_a_call", lambda now_ns: 0.0)
    monkeypatch.setattr(iteration_writer, "window_ns", lambda now_ns, device: 0.0)
    return Watching(clock)
