"""Output equals the golden files in this folder.

``pytest tests/goldens --remake`` writes them again; read the difference before you commit it.
"""

import difflib
from importlib import import_module
from pathlib import Path

import pytest

from tests.goldens.keeping import KEPT

for part in ("scenarios", "findings", "numbers"):
    import_module(f"tests.goldens.{part}")
HERE = Path(__file__).parent


@pytest.mark.parametrize("name", KEPT)
def test_output_equals_the_golden_files(name: str, request: pytest.FixtureRequest) -> None:
    differs = []
    for end, texts in KEPT[name]().items():
        file = HERE / f"{name}.{end}"
        if request.config.getoption("--remake", default=False):
            file.write_text(texts)
        before = file.read_text() if file.exists() else ""
        lines = (text.splitlines() for text in (before, texts))
        differs += difflib.unified_diff(*lines, str(file), "now", lineterm="", n=1)
        assert bool(differs) or before == texts
    assert not differs, "\n".join(differs)


def test_every_golden_file_is_made_by_a_function() -> None:
    names = {path.stem for path in HERE.iterdir() if path.suffix not in (".py", ".pyc", "")}
    assert names == set(KEPT)
