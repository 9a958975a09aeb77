"""At the end of a program, its measurements are saved and its exit code is unchanged."""

import signal
from pathlib import Path

import pytest

from chainer_profile.advice import interleaved
from chainer_profile.advice.results import read_advice
from chainer_profile.basics.describe import NS
from chainer_profile.integrations import script_run
from chainer_profile.measure import machine
from chainer_profile.record.budget import ITERATIONS, PROFILER, RUNNING, SAVING, read_budget
from chainer_profile.record.journal import KILLED
from chainer_profile.record.recording import COMPLETE
from chainer_profile.runs.folder import JOURNAL, RECORDING, load_run
from tests.command import folder, main, stand_in  # noqa: F401
from tests.scripts import files, run_in_child

pytestmark = pytest.mark.process

TRAINING = """
import builtins, os, signal, sys
import chainer, numpy as np
import chainer.links as L

def train(iterations=16):
    model = L.Classifier(L.Linear(4, 3))
    optimizer = chainer.optimizers.SGD().setup(model)
    x, t = np.ones((5, 4), "f"), np.zeros(5, "i")
    for i in range(iterations):
        optimizer.update(model, x, t)

def call(network, n=12):
    with chainer.no_backprop_mode():
        for _ in range(n):
            network(np.ones((1, 4), "f"))

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

small, large = L.Linear(4, 3), L.Linear(4, 100_000)
"""
#: Programs that break or remove what saving needs.
BREAKS = {
    "open": "builtins.open = None\ntrain()",
    "modules": "train()\nsys.path.clear(); sys.path_importer_cache.clear(); sys.meta_path.clear()",
    "results": "train()\n__import__('shutil').rmtree('here')",
    "folder": "train()\nos.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
}


def run(program, *words, **more):
    Path("program.py").write_text(TRAINING + program)
    return run_in_child("--format", "none", *words, "-o", "here", "program.py", **more)


def stderr_text():
    return " ".join(Path("err").read_text().split())


@pytest.mark.parametrize("breaks", BREAKS)
def test_results_are_saved_after_a_program_that_breaks_builtins_or_folders(breaks):
    assert run(f"{BREAKS[breaks]}\nsys.exit(3)", "-q") == 3
    assert stderr_text() == ""
    assert files() == ["budget.json", "recording.npz"]
    recording, budget = load_run(Path("here")), read_budget(Path("here"))
    assert recording.n_trials
    assert recording.ended == COMPLETE
    assert recording.environment.chainer
    assert budget.outcome == "exit code 3"
    assert budget.total(ITERATIONS).count == 16
    assert SAVING in {spent.name for spent in budget.accounts(PROFILER)}
    assert sum(spent.ns for spent in budget.spent) == budget.wall_ns


def test_run_uses_saved_limits_and_measures_none(monkeypatch):
    monkeypatch.setattr(machine, "measure_limits", None)
    assert run("train()", "-q") == 0
    recording = load_run(Path("here"))
    assert recording.limits is None
    machine.save_limits(stand_in(recording.environment, machine.find_device("cpu")))
    assert run("train()", "-q", "--force") == 0
    assert load_run(Path("here")).limits is not None


def test_results_of_changes_survive_a_kill(monkeypatch):
    monkeypatch.setattr(script_run, "_SAVED_EVERY_NS", 0)
    monkeypatch.setattr(interleaved, "BLOCK_NS", 0)
    assert run("train()", "-q") == 0  # the next run replaces its files
    assert run("train(60)\nkill()", "-q", "--try", "--force") == -signal.SIGKILL
    journals = ["recording.journal", "tried/recording.journal"]
    assert files() == sorted(["advice.json", "budget.json", "recording.npz", *journals])
    assert main("report", "here", "-q") == 0
    assert "# What was tried on program.py" in Path("here/advice.md").read_text()
    advice = read_advice(Path("here"))
    assert any(tried.pairs > 2 for tried in advice.tried)
    assert advice.trials == read_budget(Path("here")).total(ITERATIONS).count == 59
    assert advice.trials_s == read_budget(Path("here")).total(ITERATIONS).ns * NS
    kinds = [load_run(Path("here", name)) for name in ("", "tried")]
    assert sum(kind.n_trials for kind in kinds) == 59


def test_advice_is_in_the_folder_of_its_trials(monkeypatch):
    monkeypatch.setattr(script_run, "_SAVED_EVERY_NS", 0)
    assert run("call(small); call(large, 200)", "-q", "--try") == 0
    assert files() == [*("budget.json", "recording.npz", "test/advice.json", "test/recording.npz")]


#: Output size of the first layer by folder, for each program.
KINDS = {
    "call(small)": {"here": 3},
    "call(small); call(large, 200)": {"here": 100_000, "here/test": 3},
    "call(small); train(); call(large)": {"here": 3, "here/test": 3, "here/test-2": 100_000},
}
#: Last statement of a program, its exit code, and the outcome in its budget.
ENDS = [
    ("", 0, COMPLETE),
    ("kill()", -signal.SIGKILL, RUNNING),
    ("os._exit(3)", 3, "exit code 3"),
]


@pytest.mark.parametrize(("end", "code", "outcome"), ENDS)
@pytest.mark.parametrize("program", KINDS)
def test_each_kind_of_trials_has_its_folder(program, end, code, outcome):
    outputs = KINDS[program]
    if end and "train" not in program and len(outputs) == 2:
        # Only a program that ends normally shows which network took more time.
        outputs = {"here": 3, "here/test-2": 100_000}
    assert run(f"{program}\n{end}") == code
    assert read_budget(Path("here")).outcome == outcome
    expected = JOURNAL if end else RECORDING
    paths = [path for name in (JOURNAL, RECORDING) for path in Path().rglob(name)]
    assert {path.name for path in paths} == {expected}
    assert {str(path.parent) for path in paths} == outputs.keys()
    for out, n_out in outputs.items():
        recording = load_run(Path(out))
        assert recording.n_trials
        assert recording.ended == (KILLED if end else COMPLETE)
        assert recording.layers[0].output_shapes[0][1] == n_out


def test_program_that_replaces_another_removes_its_trials_and_keeps_other_files():
    assert run("call(small); train(); call(large)", "-q") == 0
    Path("here/test/notes.txt").write_text("mine")
    assert run("train()", "-q", "--force") == 0
    assert files() == ["budget.json", "recording.npz", "test/notes.txt"]
    # A program with the same kinds of trials writes them into the same folders.
    assert run("call(small); train(); call(large)", "-q", "--force") == 0
    assert run("call(small); train()", "-q", "--force") == 0
    assert files() == ["budget.json", "recording.npz", "test/notes.txt", "test/recording.npz"]
    assert read_budget(Path("here")).outcome == COMPLETE
