"""What is shown is what is kept beside this file.

``pytest tests/goldens --remake`` writes it again; the difference is read before it is kept.
"""

import difflib
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.goldens.keeping import KEPT

for part in ("scenarios", "findings", "numbers"):
    import_module(f"tests.goldens.{part}")
HERE = Path(__file__).parent
_DIGITS = re.compile(r"-?\d+\.\d{6,}(e[-+]\d+)?|-?\d(\.\d+)?e[-+]\d+")


def kept(text: str) -> str:
    """The same with 7 digits of a number: the last ones are the processor's."""
    return _DIGITS.sub(lambda found: f"{float(found[0]):.7g}", text)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_shown(name: str, request: pytest.FixtureRequest) -> None:
    differs = []
    for end, text in KEPT[name]().items():
        file = HERE / f"{name}.{end}"
        made = kept(text) if end == "csv" else text
        if request.config.getoption("--remake", default=False):
            file.write_text(made)
        before = file.read_text() if file.exists() else ""
        lines = (one.splitlines() for one in (before, made))
        differs += difflib.unified_diff(*lines, str(file), "now", lineterm="", n=1)
        assert bool(differs) or before == made
    assert not differs, "\n".join(differs)


def test_nothing_is_kept_that_is_not_made() -> None:
    names = {path.stem for path in HERE.iterdir() if path.suffix not in (".py", ".pyc", "")}
    assert names == set(KEPT)
