"""Programs in the style of Chainer's examples, run unedited, and their profiles."""

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
from tests.programs import FOLDER, PROGRAMS
from tests.scripts import run_in_child

pytestmark = pytest.mark.process


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_an_unedited_program(program):
    words = ["-o", "run", *program.command, *program.quick, "--out", "result"]
    code = run_in_child("--format", "none", *words, path=str(FOLDER))
    assert code == 0, Path("err").read_text()
    budget = read_budget(Path("run"))
    assert sum(part_time.ns for part_time in budget.spent) == budget.wall_ns
    assert all(part_time.ns >= 0 for part_time in budget.spent)
    assert {part_time.part for part_time in budget.spent} <= set(PARTS)
    assert budget.outcome == COMPLETE
    assert budget.of(ITERATIONS).count == program.trials
    if not program.extensions:  # a loop of its own
        assert budget.of(EVALUATION).ns + budget.of(CALLS).ns > 0
    parts = (budget.part(part) for part in (EXTENSIONS, EVALUATION, SNAPSHOTS))
    calls = {part_time.name: part_time.count for part in parts for part_time in part}
    assert {name: calls.get(name) for name in program.extensions} == program.extensions
    recording = load_run(Path("run"))
    assert recording.n_trials
    assert program.links <= {layer.path for layer in recording.layers}
