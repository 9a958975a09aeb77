"""Programs in the style of Chainer's examples are profiled unedited."""

import dataclasses
from pathlib import Path

import pytest

from chainer_profile.record.budget import (
    EVALUATION,
    EXTENSIONS,
    PARTS,
    SNAPSHOTS,
    TEST_CALLS,
    read_budget,
)
from chainer_profile.record.recording import COMPLETE
from chainer_profile.runs.folder import load_run
from tests import ROOT
from tests.command import folder  # noqa: F401
from tests.scripts import run_in_child

pytestmark = pytest.mark.process

#: Extensions of three Trainers: kind, period, unit, times, argument, whether it compresses, times
#: before the training, and examples. The last Trainer loads a snapshot.
EXTENSIONS_OF_TRAINERS = {
    ("extensions.Evaluator", 1, "epoch", 2, "", False, 1, 400),
    ("extensions.DumpGraph", 0, "", 0, "", False, 0, 0),
    ("extensions.snapshot", 1, "epoch", 1, "", True, 0, 0),
    ("extensions.LogReport", 1, "epoch", 2, "trigger", False, 1, 0),
    ("extensions.PlotReport", 1, "epoch", 2, "trigger", False, 1, 0),
    ("extensions.PrintReport", 1, "iteration", 21, "", False, 1, 0),
    ("extensions.ProgressBar", 1, "iteration", 20, "", False, 0, 0),
}
#: Programs with options for a quick run: iterations; examples and bytes loaded per iteration;
#: links that run functions; calls by extension; extensions.
PROGRAMS = {
    "train_mnist --epoch 1": (
        60,
        (100, 100 * (784 * 4 + 4)),
        "l1 l2 bn l3",
        {"LogReport": 61, "PrintReport": 61, "PlotReport": 61, "PlotReport_1": 61}
        | {"ProgressBar": 60, "validation": 4, "dump_graph": 1, "snapshot": 3},
        EXTENSIONS_OF_TRAINERS,
    ),
    "train_ptb_custom_loop --epoch 1 --bproplen 5": (
        19,
        (0, 0),  # without an iterator
        "embed lstm/upward lstm/lateral gru/W_r gru/U_r gru/W_z gru/U_z gru/W gru/U out",
        {"": 1},  # calls in test mode
        set(),
    ),
}


@pytest.mark.parametrize("command", PROGRAMS)
def test_unedited_program_is_profiled(command):
    iterations, loaded, links, extensions, kinds_of_extensions = PROGRAMS[command]
    name, *options = command.split()
    program = str(ROOT / f"tests/programs/{name}.py")
    arguments = ("--format", "none", "-o", "run", program, *options, "--out", "result")
    assert run_in_child(*arguments, path=str(ROOT / "tests/programs")) == 0, Path("err").read_text()
    budget = read_budget(Path("run"))
    assert budget.outcome == COMPLETE
    assert sum(spent.ns for spent in budget.spent) == budget.wall_ns
    assert min(spent.ns for spent in budget.spent) >= 0
    assert {spent.part for spent in budget.spent} <= set(PARTS)
    assert budget.total("iterations").count == iterations
    parts = (budget.accounts(part) for part in (EXTENSIONS, EVALUATION, TEST_CALLS, SNAPSHOTS))
    trained = next(trials for trials in budget.trials if trials.folder == ".")
    assert (trained.loaded, trained.loaded_nbytes) == loaded
    calls = {spent.name: spent.count for part in parts for spent in part}
    assert calls.keys() >= extensions.keys()
    assert all(calls[name] == count for name, count in extensions.items() if name)
    kinds = {(each.kind, *dataclasses.astuple(each)[2:]) for each in budget.extensions}
    assert kinds == kinds_of_extensions
    for out in ("run", "run/test"):  # the latter may have copies of the network
        paths = {layer.path.removeprefix("/predictor/") for layer in load_run(Path(out)).layers}
        assert paths >= set(links.split()), out
