"""What is said of the time of a whole program."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chainer_profile import summarise
from chainer_profile.analyse.program import program_findings
from chainer_profile.record.budget import PARTS, PROFILER, Budget, Spent
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.content.budget import BudgetRow, budget_rows, overview, sentence
from chainer_profile.report.writers import terminal
from tests.conftest import make_training

S = 10**9
BUDGET = Budget(
    script="train.py --epoch 2",
    started="2026-01-02T03:04:05Z",
    ended="2026-01-02T03:04:17Z",
    outcome=COMPLETE,
    wall_ns=11 * S,
    spent=(
        Spent("start of Python", "", S // 10),
        Spent("imports", "chainer", 8 * S // 10, 120),
        Spent("imports", "numpy", 2 * S // 10, 30),
        Spent("iterations", "", 6 * S, 600),
        Spent("evaluation", "validation", S, 2),
        Spent("evaluation", "", S // 2, 4),
        Spent("extensions", "PlotReport", 7 * S // 10, 2),
        Spent("extensions", "LogReport", 2 * S // 10, 600),
        Spent("extensions", "a", S // 1000, 1),
        Spent("extensions", "b", S // 1000, 1),
        Spent("snapshots", "snapshot", S // 4, 1),
        Spent("the script's own code", "", S // 4 - 2 * S // 1000),
        Spent("profiler", "importing itself", 7 * S // 10),
        Spent("profiler", "around trials", 3 * S // 10, 600),
    ),
)


def below(rows: list[BudgetRow]) -> list[tuple[BudgetRow, list[BudgetRow]]]:
    """Every row that has rows below it, with those of the next level."""
    found = []
    for at, row in enumerate(rows):
        inner = []
        for one in rows[at + 1 :]:
            if row.level < 0 or one.level <= row.level:
                break
            if one.level == row.level + 1:
                inner.append(one)
        if inner:
            found.append((row, inner))
    return found


@pytest.mark.parametrize("least", [0.0, 0.001, 0.01, 0.1])
def test_each_level_adds_up_to_the_one_above(least: float) -> None:
    rows = list(budget_rows(BUDGET, summarise(make_training()), least))
    found = below(rows)
    assert "iterations" in [row.name for row, _ in found]
    for row, inner in found:
        assert sum(one.seconds for one in inner) == pytest.approx(row.seconds, abs=1e-6), row.name
    # No row twice within one phase.
    for _, inner in found:
        assert len({one.name for one in inner}) == len(inner)


def test_the_largest_gain_of_the_program_comes_first() -> None:
    """A gain of an iteration is one of the program by the part that iterations are of it."""
    summary = summarise(make_training())
    kernels = next(one for one in summary.findings if one.code == "kernels")
    assert kernels.gain is not None
    spent = (
        Spent("iterations", "", 4 * S, 10),
        Spent("evaluation", "validation", 4 * S, 2),
        Spent("profiler", "saving", 2 * S),
    )
    found = program_findings(replace(BUDGET, wall_ns=10 * S, spent=spent), summary)
    assert [one.code for one in found][:2] == ["evaluation", "kernels"]
    gains = {one.code: one.gain for one in found}
    assert gains["evaluation"] == pytest.approx(2.0)
    assert gains["kernels"] == pytest.approx(1 / (0.5 + 0.5 / kernels.gain))
    shown = terminal.written(overview(replace(BUDGET, wall_ns=10 * S, spent=spent), summary))
    assert shown.index("evaluation takes 50.0 %") < shown.index("accelerate() replaces")


def test_it_fits_into_80_columns() -> None:
    console = Console(width=80, file=StringIO())
    name = "a_very_long_name_of_an_extension_that_somebody_has_thought_of" * 2
    spent = (*BUDGET.spent, Spent("extensions", name, S, 1))
    terminal.show(overview(replace(BUDGET, spent=spent), summarise(make_training())), console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("part ") for line in lines) == 1
    for head in ("time", "share", "count", "each"):
        assert head in next(line for line in lines if line.startswith("part "))


_SPENT = st.lists(
    st.builds(Spent, st.sampled_from(PARTS), st.sampled_from("abcdefgh"), st.integers(0, 10**12)),
    unique_by=lambda one: (one.part, one.name),
)


@given(spent=_SPENT, least=st.sampled_from([0.0, 0.001, 0.01, 0.2]))
def test_the_parts_add_up(spent: list[Spent], least: float) -> None:
    wall_ns = sum(one.ns for one in spent)
    budget = Budget("a.py", "", "", COMPLETE, wall_ns, tuple(spent))
    rows = list(budget_rows(budget, least=least))
    *parts, whole, profiler = [row for row in rows if row.level <= 0]
    assert (whole.level, profiler.name) == (-1, "profiling, on top")
    own_ns = wall_ns - sum(one.ns for one in spent if one.part == PROFILER)
    assert sum(row.seconds for row in parts) == pytest.approx(whole.seconds)
    assert whole.seconds == pytest.approx(own_ns / S)
    assert whole.seconds + profiler.seconds == pytest.approx(wall_ns / S)
    if own_ns:
        assert sum(row.share for row in parts) == pytest.approx(1)
    assert [row.seconds for row in parts] == sorted((r.seconds for r in parts), reverse=True)
    for row, inner in below(rows):
        assert sum(one.seconds for one in inner) == pytest.approx(row.seconds)
    sentence(budget)


def test_a_program_without_any_time() -> None:
    empty = Budget("a.py", "", "", COMPLETE, 0, ())
    assert list(budget_rows(empty)) == [
        BudgetRow("a.py", -1, 0.0, 1.0),
        BudgetRow("profiling, on top", 0, 0.0, 0.0),
    ]


def test_what_recording_added_is_taken_off_between_functions() -> None:
    """The rows' times are those of all iterations as they would be without it."""
    training = make_training()
    calls = np.ones_like(training.self_ns)
    n_calls = sum(layer.calls for layer in training.layers)
    conditions = replace(training.conditions, window_ns=1_000.0, call_ns=11_000.0)
    recorded = summarise(replace(training, calls=calls, conditions=conditions))
    rows = list(budget_rows(BUDGET, recorded, 0.0))
    added_s = n_calls * 10_000 / S
    scale = 6.0 / (3.7e-3 - added_s)
    for row, inner in below(rows):
        assert sum(one.seconds for one in inner) == pytest.approx(row.seconds), row.name
    first = next(row for row in rows if row.name == "/res/1/conv Convolution")
    assert first.seconds == pytest.approx(scale * 0.6e-3)
