"""What is said of a sweep, and its table with all digits."""

from __future__ import annotations

import csv
import io

from chainer_profile.record.digest import Run
from chainer_profile.report.content import sweep
from chainer_profile.report.tables import meanings, to_csv
from chainer_profile.report.writers import terminal
from tests import ROOT
from tests.sweeping import make_run

RESULTS = [
    make_run("resnet18", 18.719, input_shape=(3, 1024, 2048)),
    make_run("resnet50", 61.397, input_shape=(3, 1024, 2048), blocks="bottleneck"),
]


def rows(results: list[Run]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(sweep.COLUMNS, results))))


def shown(results: list[Run], width: int | None = None) -> str:
    return terminal.written(sweep.overview(results), width)


def test_a_narrow_terminal_leaves_out_columns_but_no_times() -> None:
    for width in (60, 80):
        lines = shown(RESULTS, width).splitlines()
        assert max(map(len, lines)) <= width
        assert "median ms  std ms    FPS" in lines[0]


def test_the_columns_are_documented() -> None:
    text = (ROOT / "docs" / "sweep.md").read_text()
    assert {name for name in meanings(sweep.COLUMNS) if f"`{name}`" not in text} == set()
