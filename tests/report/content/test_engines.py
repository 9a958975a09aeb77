"""Words and rows of a run of several engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chainer_profile.basics.units import NOT_KNOWN, format_scientific
from chainer_profile.engines.results import OutputDifference
from chainer_profile.report import document
from chainer_profile.report.content.engines import (
    crowded,
    next_steps,
    overview,
    report,
    table_columns,
    verdict,
    warnings,
    wrong_lines,
)
from chainer_profile.report.document import Heading, Text, plain, strong, text
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import terminal
from tests.engines.fake_engines import WRONG, make_run, recordings, result


def test_small_numbers() -> None:
    assert [format_scientific(x) for x in (0.0, 1.24e-6, float("inf"))] == [
        "0",
        "1.2e-06",
        "infinite",
    ]
    nothing = OutputDifference(0.0, 0.0)
    assert format_scientific(nothing.relative) == "0"


# --- the verdict, and what comes behind it


@pytest.mark.parametrize("show", [report, overview])
def test_the_verdict_comes_first_and_doubts_behind_it(show: Callable[..., Any]) -> None:
    run = make_run(WRONG, other_cpu=1.5)
    blocks = list(show(run, recordings()))
    at = blocks.index(text(strong(verdict(run))))
    assert all(isinstance(block, (Heading, Text)) for block in blocks[:at])
    doubts = [*warnings(run), *wrong_lines(run)]
    notes = blocks[at + 1 : at + 1 + len(doubts)]
    assert [plain(block.words) for block in notes] == doubts
    assert all(block.note for block in notes)
    assert sum(isinstance(block, Text) and block.note for block in blocks) == len(doubts)
    table = next(block for block in blocks if isinstance(block, Table))
    marks = [table.mark(row) for row in range(3)]
    assert marks == ["", "", document.WRONG]


def test_while_others_keep_the_cores_no_engine_is_advised() -> None:
    alone, crowd = make_run(), make_run(other_cpu=1.9)
    assert any("Take fast" in step for step in next_steps(alone))
    assert not any("Take" in step for step in next_steps(crowd))
    assert "95 % interval" in verdict(alone)
    assert verdict(crowd).endswith(
        "while other programs kept the cores: how it is without them is not known."
    )
    intervals = [
        ["95 %" in column.name for column in table_columns(run)].count(True)
        for run in (alone, crowd)
    ]
    assert intervals == [1, 0]
    # A program beside an engine of one thread, on two cores.
    assert not crowded(make_run(other_cpu=1.1))


def test_memory_is_shown_where_it_is_known() -> None:
    run = make_run()
    first, *others = run.engines
    known = replace(run, engines=(replace(first, memory_nbytes=3 << 20), *others))
    without, table = (
        next(block for block in overview(one, {}) if isinstance(block, Table))
        for one in (run, known)
    )
    assert "Memory" not in without.head
    assert "Memory is by" not in without.notes()
    at = table.head.index("Memory")
    assert [row[at] for row in table.cells()] == ["3.0 MiB", NOT_KNOWN]
    assert "Memory is by how much the process grew" in table.notes()


@pytest.mark.parametrize("width", [50, 72, 100])
def test_a_narrow_terminal_shows_fewer_columns_and_always_chainer(width: int) -> None:
    run = make_run(WRONG, result("third", 77))
    lines = terminal.written(overview(run, recordings()), width).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("engine "))
    assert max(map(len, lines[at : at + 6])) <= max(width, 60)
    assert "vs chainer" in lines[at]
    assert "vs fast" not in lines[at]
    assert "10.00x" in lines[at + 3]
    assert "vs fast" in " ".join(lines[at + 6 :]).partition("Not shown at this width: ")[2]
