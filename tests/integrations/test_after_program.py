"""What a program leaves behind: its exit code stays its own, and its measurements are kept."""

import os
import resource
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_duration
from chainer_profile.integrations import script_run
from chainer_profile.integrations.isolated import Start
from chainer_profile.measure import machine
from chainer_profile.measure.machine import save_limits
from chainer_profile.record.budget import (
    CALLS,
    IMPORTS,
    ITERATIONS,
    PROFILER,
    REPORTS,
    RUNNING,
    SAVING,
    read_budget,
)
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import JOURNAL, RECORDING, load_run
from tests.command import folder, main, one_line, stand_in  # noqa: F401
from tests.scripts import files, python, run_in_child

pytestmark = pytest.mark.process

REPORT = profile.report
TRAINING = """
import builtins, json, os, resource, signal, shutil, sys
import chainer, numpy as np
import chainer.links as L

def train():
    model = L.Classifier(L.Linear(4, 3))
    optimizer = chainer.optimizers.SGD().setup(model)
    x, t = np.ones((5, 4), "f"), np.zeros(5, "i")
    for i in range(16):
        optimizer.update(model, x, t)

def call(network, n=12):
    with chainer.no_backprop_mode():
        for _ in range(n):
            network(np.ones((1, 4), "f"))

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def limit(which, soft):
    resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))

small, large = L.Linear(4, 3), L.Linear(4, 100_000)
"""
#: What takes from the process what saving needs.
TAKES = {
    "open": "builtins.open = None",
    "json": "json.dumps = json.loads = None",
    "modules": "sys.path.clear(); sys.path_importer_cache.clear(); sys.meta_path.clear()",
    "environment": "os.environ.clear()",
    "memory": "limit(resource.RLIMIT_AS, 1 << 20)",
    "files": "limit(resource.RLIMIT_NOFILE, 3)",
    "space": "limit(resource.RLIMIT_FSIZE, 0)",
    "folder": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
}


def run(program, *words, **more):
    Path("program.py").write_text(TRAINING + program)
    return run_in_child("--format", "none", *words, "-o", "here", "program.py", **more)


def said():
    return " ".join(Path("err").read_text().split())


@pytest.mark.parametrize("takes", TAKES)
def test_what_a_program_takes_away(takes):
    assert run(f"train()\n{TAKES[takes]}\nsys.exit(3)", "-q") == 3
    assert said() == ""
    assert files() == ["budget.json", "recording.npz"]
    recording, budget = load_run(Path("here")), read_budget(Path("here"))
    assert recording.n_trials
    assert recording.ended == COMPLETE
    assert recording.memory is not None
    assert recording.environment.chainer
    assert budget.outcome == "exit code 3"
    assert budget.of(ITERATIONS).count == 16
    if takes in ("open", "json"):  # before it trains
        assert run(f"{TAKES[takes]}\ntrain()", "-q", "--force") == 0
        assert load_run(Path("here")).n_trials


def really_run(end, form="none", **more):
    """The whole way, of an interpreter of its own that trains."""
    Path("program.py").write_text(f"{TRAINING}train()\n{end}")
    words = ("run", "--format", form, "-o", "here", "program.py")
    done = python("-m", "chainer_profile", *words, **more)
    assert done.stderr.count("program.py took ") == 1
    assert "Written to here\n" in done.stderr
    assert load_run(Path("here")).n_trials
    return done.returncode


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.setrecursionlimit(60)", 0),
        ("sys.excepthook = None; raise ValueError('too large')", 1),
        ("sys.stdout.flush = None", 120),
        ("limit(resource.RLIMIT_AS, 1 << 20)", 0),
    ],
)
def test_the_whole_way_behind_a_program(end, code):
    assert really_run(end) == code
    budget = read_budget(Path("here"))
    assert budget.of(IMPORTS).ns > 0


def test_within_a_gibibyte():
    gibibyte = (1 << 30,) * 2
    limited = partial(resource.setrlimit, resource.RLIMIT_AS, gibibyte)
    assert really_run("sys.exit(3)", "folded", preexec_fn=limited) == 3
    assert {"budget.json", "recording.npz", "report.html", "stacks.folded"} <= set(files())


def test_folders_that_are_gone_or_cannot_be_made():
    gone = "train()\nshutil.rmtree('here')\n"
    assert run(f"{gone}sys.exit(3)") == 3
    assert files() == ["budget.json", "recording.npz"]
    assert run(f"{gone}open('here', 'w')\nsys.exit(3)", "--force") == 3
    assert "The program ended: exit code 3." in said()
    assert said().count("here: cannot be written (File exists)") == 1
    assert "Written to" not in said()
    Path("reports").write_text("")
    Path("program.py").write_text(f"{TRAINING}train()\nsys.exit(3)")
    assert run_in_child("program.py") == 3
    assert "program.py took " in said()
    assert said().count("reports/program: a part of this path is a file") == 1
    assert "Written to" not in said()


def test_reports_that_cannot_be_made_are_one_line(monkeypatch):
    kept = "the measurements are kept in here"
    not_made = "the reports could not be made (No such file or directory)"
    for owner, name, how, said_first in (
        (sys, "executable", {"new": "/none/python"}, not_made),
        (Start, "run", {"side_effect": KeyboardInterrupt}, "interrupted"),
    ):
        with patch.object(owner, name, **how):
            code = run("train()\nsys.exit(3)", "--force", apart=True)
        assert code == 3
        assert one_line(Path("err").read_text()) == f"profile.py: {said_first}: {kept}"
        assert files() == ["budget.json", "recording.npz"]


def test_another_interpreter_says_why_it_fails(monkeypatch):
    monkeypatch.setattr(sys, "path", ["the program's own", os.getcwd(), *sys.path])
    start = Start()
    Path("csv.py").write_text("1 / 0")
    Path("dies.py").write_text("import os\ndef main(job):\n    os.kill(os.getpid(), job['by'])")
    assert start.run("csv", {}) == "AttributeError: module 'csv' has no attribute 'main'"
    assert start.run("none", {}) == "ModuleNotFoundError: No module named 'none'"
    assert start.run("dies", {"by": 9}) == "killed by SIGKILL"


def test_limits_are_taken_and_never_measured_and_all_that_was_added_is_told(monkeypatch):
    monkeypatch.setattr(machine, "measure_limits", None)
    assert run("train()") == 0
    recording, budget = load_run(Path("here")), read_budget(Path("here"))
    assert recording.limits is None
    assert "limits" not in said()
    assert {SAVING, REPORTS} < {one.name for one in budget.part(PROFILER)}
    assert sum(one.ns for one in budget.spent) == budget.wall_ns
    reports_ns = sum(one.ns for one in budget.part(PROFILER) if one.name == REPORTS)
    others_ns = budget.of(PROFILER).ns - reports_ns
    told = f"(plus {format_duration(others_ns * NS)} of profiling, and "
    assert f"{told}{format_duration(reports_ns * NS)} for the reports)" in said()
    save_limits(stand_in(recording.environment, machine.find_device("cpu")))
    assert run("train()", "--force") == 0
    assert load_run(Path("here")).limits is not None


#: What a program does, and the first layer's outputs of the trials in each folder.
KINDS = {
    "one network": ("call(small)", {"here": 3}),
    "two networks": ("call(small); call(large, 200)", {"here": 100_000, "here/test": 3}),
    "a training behind": ("call(small); train()", {"here": 3, "here/test": 3}),
    "and a larger one": ("call(small); train(); call(large)", {"here/test-2": 100_000}),
}


@pytest.mark.parametrize("end", ["", "\nkill()", "\nos._exit(3)"])
@pytest.mark.parametrize("does", KINDS)
def test_where_the_trials_are(does, end):
    program, found = KINDS[does]
    if end and does == "two networks":  # which took more is known at the end
        found = {"here": 3, "here/test-2": 100_000}
    code = {"": 0, "\nkill()": -signal.SIGKILL, "\nos._exit(3)": 3}[end]
    assert run(program + end) == code
    recordings = {str(path.parent) for path in Path().rglob(RECORDING)}
    journals = {str(path.parent) for path in Path().rglob(JOURNAL)}
    assert found.keys() <= (journals if end else recordings)
    assert "here" in (journals if end else recordings)
    assert not (recordings if end else journals)
    for place, n_out in found.items():
        recording = load_run(Path(place))
        assert recording.n_trials
        assert recording.ended == ("killed before its end" if end else COMPLETE)
        assert {layer.output_shapes[0][1] for layer in recording.layers[:1]} == {n_out}
    budget = read_budget(Path("here"))
    outcomes = {"": COMPLETE, "\nkill()": RUNNING, "\nos._exit(3)": "exit code 3"}
    assert budget.outcome == outcomes[end]


def test_a_budget_from_the_first_call_on(monkeypatch):
    for layers in ((), ("--skip", "layers")):
        assert run("kill()", *layers, "--force") == -signal.SIGKILL
        assert "budget.json" not in files()
        assert run("call(small, 1); kill()", *layers, "--force") == -signal.SIGKILL
        budget = read_budget(Path("here"))
        assert budget.outcome == RUNNING
        assert not budget.of(CALLS).count
        shutil.rmtree("here")
    # A report knows it though it was written before the first trial.
    monkeypatch.setattr(profile, "report", REPORT)
    monkeypatch.setattr(script_run, "_now", lambda: "2026-01-01T00:00:00Z")
    assert run("call(small, 1); call(small); kill()") == -9
    assert main("report", "here") == 0
    assert "The program was killed." in Path("here/report.md").read_text()
