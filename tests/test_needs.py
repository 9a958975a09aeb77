"""What a test misses: skipped by hand, failed in CI."""

import pytest

from tests import needs


def test_what_is_missing(monkeypatch):
    for in_ci, outcome in (("", pytest.skip.Exception), ("1", pytest.fail.Exception)):
        monkeypatch.setenv("TESTS_MISS_NOTHING", in_ci)
        with pytest.raises(outcome, match="nothing_of_this_name is missing"):
            needs.module("nothing_of_this_name")
        with pytest.raises(outcome, match=r"no-such of .* no-package is missing"):
            needs.program("no-such", package="no-package")
        assert needs.module("pytest") is pytest
