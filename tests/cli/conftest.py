"""Commands write reports whose text costs nothing; what is in it others test."""

from __future__ import annotations

from tests.command import done as done
from tests.command import fails as fails
from tests.command import folder as folder
from tests.integrations.conftest import plain_report as plain_report
