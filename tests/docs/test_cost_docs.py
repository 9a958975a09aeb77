"""docs/functions.md says which figures are exact and which are approximate."""

from __future__ import annotations

import re

import pytest

from chainer_profile.costs import about, exact
from tests import ROOT

PAGE = (ROOT / "docs" / "functions.md").read_text()


@pytest.mark.parametrize(("title", "formulas"), [("Exact", exact), ("About", about)])
def test_the_page_has_every_function(title: str, formulas: object) -> None:
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    section = section.partition("Of some that are exact")[0]
    known = {name for name in formulas.FORWARD if not name.startswith("_")}  # type: ignore[attr-defined]
    assert set(re.findall(r"`(\w+)`", section)) == known
