"""What is said of the time of a whole program."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chainer_profile import summarise
from chainer_profile.record.budget import PARTS, PROFILER, REPORTS, RUNNING, Budget, Spent
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.content.budget import (
    BudgetRow,
    budget_rows,
    overview,
    section,
    sentence,
)
from chainer_profile.report.writers import markdown, terminal
from tests.conftest import make_recording, make_training

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


def text_of(budget: Budget, **more: object) -> str:
    return markdown.write(list(section(budget, **more)))  # type: ignore[arg-type]


def test_the_answer() -> None:
    assert sentence(BUDGET) == (
        "train.py --epoch 2 took 10.00 s, and 1.000 s more to measure it, not counting the "
        "reports: 60.0 % 600 iterations of 10.00 ms, 15.0 % evaluation, 10.0 % imports."
    )
    spent = (*BUDGET.spent, Spent("profiler", REPORTS, 4 * S))
    counted = sentence(replace(BUDGET, wall_ns=15 * S, spent=spent))
    assert "and 5.000 s more to measure it, 4.000 s of that for the reports: 60.0 %" in counted


def test_the_rows() -> None:
    rows = [(row.level, row.name, round(row.seconds, 6), row.times) for row in budget_rows(BUDGET)]
    assert rows == [
        (0, "iterations", 6.0, 600),
        (0, "evaluation", 1.5, 0),
        (1, "validation", 1.0, 2),
        (0, "imports", 1.0, 0),
        (1, "chainer", 0.8, 0),
        (1, "numpy", 0.2, 0),
        (0, "extensions", 0.902, 0),
        (1, "PlotReport", 0.7, 2),
        (1, "LogReport", 0.2, 600),
        (0, "snapshots", 0.25, 0),
        (1, "snapshot", 0.25, 1),
        (0, "the script's own code", 0.248, 0),
        (0, "start of Python", 0.1, 0),
        (-1, "the program", 10.0, 0),
        (0, "the profiler on top", 1.0, 0),
    ]


def test_what_an_iteration_is_made_of() -> None:
    rows = list(budget_rows(BUDGET, summarise(make_training())))
    inside = [row for row in rows if row.part == "iterations"]
    # Of 3,700 us, by hand: phases with their framework, and what is outside of them.
    phases = {row.name: row.seconds for row in inside if row.level == 1}
    assert phases == pytest.approx(
        {"forward": 6 * 13 / 37, "backward": 6 * 20.5 / 37, "update": 6 * 3 / 37, "outside": 3 / 37}
    )
    assert sum(phases.values()) == pytest.approx(6.0)
    layers = [(row.name, row.seconds) for row in inside if row.level == 2]
    assert layers[0] == ("/res/1/conv Convolution, backward", pytest.approx(6 * 6 / 37))
    assert len(layers) == 5
    # The same rows of calls outside of a training say nothing of its iterations.
    assert not [row for row in budget_rows(BUDGET, summarise(make_recording())) if row.level == 2]


def test_calls_by_layer() -> None:
    calls = replace(BUDGET, wall_ns=10 * S, spent=(Spent("calls of networks", "", 10 * S, 200),))
    rows = list(budget_rows(calls, summarise(make_recording())))
    assert [row.level for row in rows] == [0, 2, 2, 2, 2, 2, -1, 0]
    assert rows[1].name.endswith("/conv1 Convolution")
    assert "100.0 % 200 calls of 50.00 ms." in sentence(calls)


def test_names_of_a_report_say_what_they_are_in() -> None:
    shown = text_of(BUDGET)
    assert "| imports: numpy | 200.0 ms | 2.0 % |  |  |" in shown
    assert "| **the program** | **10.00 s** | **100.0 %** |  |  |" in shown


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (COMPLETE, ""),
        (RUNNING, "The program was killed."),
        ("exit code 3", "The program ended: exit code 3."),
    ],
)
def test_how_it_ended(outcome: str, said: str) -> None:
    shown = text_of(replace(BUDGET, outcome=outcome))
    assert ("The program" in shown) == bool(said)
    assert said in shown


def test_what_is_made_of_iterations_is_worked_out() -> None:
    worked_out = "What is in an iteration is worked out"
    assert worked_out in text_of(BUDGET, summary=summarise(make_training()))
    assert worked_out not in text_of(BUDGET)


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
    assert (whole.level, profiler.name) == (-1, "the profiler on top")
    own_ns = wall_ns - sum(one.ns for one in spent if one.part == PROFILER)
    assert sum(row.seconds for row in parts) == pytest.approx(whole.seconds)
    assert whole.seconds == pytest.approx(own_ns / S)
    assert whole.seconds + profiler.seconds == pytest.approx(wall_ns / S)
    if own_ns:
        assert sum(row.share for row in parts) == pytest.approx(1)
    assert [row.seconds for row in parts] == sorted((r.seconds for r in parts), reverse=True)
    for part in parts:
        inside = [row for row in rows if row.part == part.name]
        assert sum(row.seconds for row in inside) <= part.seconds * (1 + 1e-9)
    sentence(budget)


def test_a_program_without_any_time() -> None:
    empty = Budget("a.py", "", "", COMPLETE, 0, ())
    assert list(budget_rows(empty)) == [
        BudgetRow("the program", -1, 0.0, 1.0),
        BudgetRow("the profiler on top", 0, 0.0, 0.0),
    ]
