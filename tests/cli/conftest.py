"""Commands write reports whose text costs nothing; what is in it others test."""

from __future__ import annotations

from tests.integrations.conftest import plain_report as plain_report
