"""Programs in the style of Chainer's examples, run unedited: what they do, and what is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainer_profile.record.budget import (
    CALLS,
    EVALUATION,
    EXTENSIONS,
    ITERATIONS,
    PARTS,
    SNAPSHOTS,
    read_budget,
)
from chainer_profile.record.recording import COMPLETE
from chainer_profile.runs.folder import load_run
from tests.command import folder  # noqa: F401
from tests.programs import FOLDER, PROGRAMS, UPDATE
from tests.scripts import run_in_child

pytestmark = pytest.mark.process


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_an_unedited_program(program):
    where = ["-m", program.name] if program.package else list(program.command)
    given = ["--format", "none", "-o", "run", *where, *program.quick, "--out", "result"]
    assert run_in_child(*given, path=str(FOLDER)) == program.exit_code, Path("err").read_text()
    budget = read_budget(Path("run"))
    assert sum(one.ns for one in budget.spent) == budget.wall_ns
    assert all(one.ns >= 0 for one in budget.spent)
    assert {one.part for one in budget.spent} <= set(PARTS)
    assert (budget.outcome == COMPLETE) == (program.exit_code == 0)
    trials = budget.of(ITERATIONS)
    assert trials.count == program.trials
    if program.bounded_by == UPDATE:
        evaluated = budget.of(EVALUATION).ns + budget.of(CALLS).ns
        assert (evaluated > 0) == program.evaluates
    calls = {
        one.name: one.count
        for part in (EXTENSIONS, EVALUATION, SNAPSHOTS)
        for one in budget.part(part)
    }
    wanted = {
        name.lstrip("_").lower() if "snap" in name.lower() else name: count
        for name, count in program.extensions.items()
    }
    assert {name: calls.get(name) for name in wanted} == wanted
    recording = load_run(Path("run"))
    assert recording.n_trials
    ran = {layer.path for layer in recording.layers}
    assert set(program.links) <= ran
