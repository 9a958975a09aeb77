from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--remake", action="store_true", help="write what is kept in tests/goldens again"
    )
