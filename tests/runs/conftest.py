"""Each test runs in an empty folder; commands print their output."""

import pytest

from tests.command import done as done
from tests.command import fails as fails


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path
