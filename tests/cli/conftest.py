"""Commands write reports with fake contents, which other tests check."""

from __future__ import annotations

from tests.command import done as done
from tests.command import fails as fails
from tests.command import folder as folder
from tests.integrations.conftest import plain_report as plain_report
