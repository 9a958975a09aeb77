"""The command ``run``: what it writes of a program, however that ends, and what it says."""

import os
import signal
from pathlib import Path

import pytest

from chainer_profile.integrations import script_run
from chainer_profile.record.budget import CALLS, ITERATIONS, PROFILER, RUNNING, read_budget
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import load_run
from chainer_profile.runs.written import LIST
from tests.command import file_size_limit, main
from tests.scripts import run_in_child

pytestmark = pytest.mark.process

REPORT = profile.report
TRAINS = """
import os, sys
import chainer, numpy as np
import chainer.links as L

model = L.Classifier(L.Linear(4, 3))
optimizer = chainer.optimizers.SGD().setup(model)
x, t = np.ones((5, 4), "f"), np.zeros(5, "i")
AT_FIRST
for i in range(16):
    optimizer.update(model, x, t)
    AFTERWARDS
print("done")
"""


def run(*words, at_first="", afterwards="", script="train.py", **more):
    """Run a training of 16 iterations; no reports unless asked for."""
    text = TRAINS.replace("AT_FIRST", at_first).replace("AFTERWARDS", afterwards)
    Path(script).write_text(text)
    return run_in_child("--format", "none", *words, script, **more)  # type: ignore[arg-type]


def said():
    return Path("err").read_text()


def files(place):
    return sorted(str(path.relative_to(place)) for path in Path(place).rglob("[!.]*.*"))


def test_a_default_folder_for_each_run():
    assert run() == run() == 0
    assert files("reports") == [
        f"{name}/{file}"
        for name in ("train-2", "train")
        for file in ("budget.json", "recording.npz")
    ]
    assert "Written to reports/train-2\n" in said()
    assert Path("out").read_text() == "done\n"


def test_a_folder_that_holds_a_run_is_said_before_the_program_runs():
    assert run("-o", "here") == 0
    before = load_run(Path("here")).environment
    assert load_run(Path("here")).memory is not None
    budget = read_budget(Path("here"))
    assert budget is not None
    assert budget.part(PROFILER)[0].name == "importing itself"
    assert run("-o", "here") == 2
    assert "holds a run already" in said()
    assert said().count("\n") == 1
    assert Path("out").read_text() == ""
    assert load_run(Path("here")).environment == before
    assert run("-o", "here", "--force", at_first="raise ValueError") == 1
    assert load_run(Path("here")).environment == before  # nothing took its place
    assert run("-o", "here", "--force", afterwards="if i == 9: break") == 0
    assert load_run(Path("here")).all_trials < 10
    assert run("--force") == 2
    assert "name it with --out" in said()


def test_compat_only_writes_nothing():
    wrapped = "assert not hasattr(chainer.Optimizer.update, '__wrapped__')"
    assert run("--compat-only", afterwards=wrapped) == 0
    assert said() == ""
    assert not Path("reports").exists()


def test_no_layers_is_the_budget_alone():
    assert run("--no-layers", "-o", "here") == 0
    assert files("here") == ["budget.json"]
    budget = read_budget(Path("here"))
    assert budget is not None
    assert budget.of(ITERATIONS).count == 16
    assert "Written to here\n" in said()
    assert run("--no-layers", "-o", "here") == 2  # a budget is a result, too
    assert run("--no-layers", "-o", "here", "--force") == 0


def test_quiet_and_without_the_memory_pass():
    assert run("-q", "--no-memory", "-o", "here") == 0
    assert said() == ""
    assert load_run(Path("here")).memory is None


def test_nothing_of_chainers():
    Path("plain.py").write_text("print('here')")
    assert run_in_child("-o", "here", "plain.py") == 0
    assert said() == "profile.py: the program called nothing of Chainer's\n"
    assert not Path("here").exists()


def test_what_other_threads_call_is_counted():
    Path("threads.py").write_text(
        "import threading, chainer.links as L, numpy as np\n"
        "model, x = L.Linear(4, 3), np.ones((5, 4), 'f')\n"
        "thread = threading.Thread(target=lambda: [model(x) for _ in range(1200)])\n"
        "thread.start()\nthread.join()\n"
    )
    assert run_in_child("-o", "here", "threads.py") == 0
    assert "Not timed: 1,200 calls of networks in other threads." in said()
    assert files("here") == ["budget.json"]
    budget = read_budget(Path("here"))
    assert budget is not None
    assert budget.untimed == {CALLS: 1200}
    assert budget.of(CALLS).count == 0


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("..", "above"),
        (".", "within"),
        ("..py", "program"),
        (".hidden.py", "hidden"),
        ("../up.py", "up"),
        ("b\udcff.py", "b_"),
    ],
)
def test_the_folder_is_one_below_reports(script, name):
    Path("above/within").mkdir(parents=True)
    os.chdir("above/within")
    file = Path(script) / "__main__.py" if Path(script).is_dir() else Path(script)
    command = "--no-layers", "../up.py" if name == "up" else script, "\udcfe"
    file.write_text(TRAINS.replace("AT_FIRST", "").replace("AFTERWARDS", ""))
    before = {place for place in Path("../..").rglob("*") if "reports" not in place.parts}
    assert run_in_child(*command) == 0, said()
    made = set(Path("../..").rglob("*")) - before
    made = {place for place in made if place.name != LIST and "__pycache__" not in place.parts}
    assert set(map(str, made)) == {
        *("../../above/within/out", "../../above/within/err"),
        *(f"../../above/within/{one}" for one in ("reports", f"reports/{name}")),
        f"../../above/within/reports/{name}/budget.json",
    }


def test_words_that_are_no_text(monkeypatch):
    monkeypatch.setattr(profile, "report", REPORT)
    odd = "b\udcff.py"
    assert run("-o", "\udcfa", "-q", script=odd) == 0
    here = Path("\udcfa")
    assert load_run(here).n_trials
    assert load_run(here).settings.command.endswith("b\\udcff.py'")
    budget = read_budget(here)
    assert budget is not None
    assert budget.script == "'b\\udcff.py'"
    assert main("report", str(here)) == 0
    assert "b\\udcff.py" in (here / "report.md").read_text()


def test_what_numpy_changed_is_said_behind_the_traceback():
    program = "--compat-only", "-c", "import numpy as np; np.product"
    assert run_in_child(*program) == 1
    traceback, _, last = said().rstrip("\n").rpartition("\n")
    assert last == "profile.py: NumPy removed np.product; write np.prod"
    assert run_in_child("-q", *program) == 1
    assert said() == traceback + "\n"


def test_the_program_may_go_elsewhere():
    Path("there").mkdir()
    assert run("-o", "here", at_first="os.chdir('there')") == 0
    assert files("here") == ["budget.json", "recording.npz"]
    assert "Written to here\n" in said()
    assert run(at_first="os.chdir('there')") == 0
    assert files("reports") == ["train/budget.json", "train/recording.npz"]
    assert files("there") == []


@pytest.mark.parametrize("child", ["sys.exit(4)", "break", "1 / 0"])
def test_a_forked_child_leaves_the_profile_to_its_parent(child):
    more = f"if i == 8:\n        if os.fork() == 0: {child}\n        os.wait()"
    assert run("-o", "here", afterwards=more) == 0
    assert files("here") == ["budget.json", "recording.npz"]
    assert said().count("Written to") == 1
    budget = read_budget(Path("here"))
    assert budget is not None
    assert budget.outcome == COMPLETE
    assert budget.of(ITERATIONS).count == 16
    assert Path("out").read_text().count("done") == 1 + (child == "break")


def test_a_child_that_ends_before_the_first_trial():
    before = "if os.fork() == 0: sys.exit(0)\nos.wait()\nassert os.path.exists('here')"
    killed = "if i == 12: os.kill(os.getpid(), 15)"
    assert run("-o", "here", at_first=before, afterwards=killed) == -signal.SIGTERM
    assert load_run(Path("here")).n_trials


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing_know_the_programs_classes(method):
    Path("pool.py").write_text(
        "import multiprocessing\n"
        "class Pair:\n    value = 3\n"
        "def work(pair):\n    return type(pair) is Pair, pair.value, __name__\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(1) as pool:\n"
        "        print(pool.map(work, [Pair()]))\n"
    )
    assert run_in_child("pool.py") == 0, said()
    name = "__main__" if method == "fork" else "__mp_main__"
    assert Path("out").read_text() == f"[(True, 3, {name!r})]\n"


def test_killed(monkeypatch):
    monkeypatch.setattr(script_run, "_SAVED_EVERY_NS", 0)
    monkeypatch.setattr(profile, "report", REPORT)
    killed = "if i == 12: os.kill(os.getpid(), 15)"
    assert run("-o", "here", afterwards=killed) == -signal.SIGTERM
    assert files("here") == ["budget.json", "recording.journal"]
    budget = read_budget(Path("here"))
    assert budget is not None
    assert budget.outcome == RUNNING
    assert 0 < budget.of(ITERATIONS).count <= 12
    assert sum(one.ns for one in budget.spent) == budget.wall_ns
    assert main("report", "here") == 0
    assert "The program was killed." in Path("here/report.md").read_text()
    assert load_run(Path("here")).n_trials


@pytest.mark.parametrize(
    ("how", "code", "outcome"),
    [
        ("raise ValueError('too large')", 1, "ValueError: too large"),
        ("sys.exit(3)", 3, "exit code 3"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "interrupted"),
    ],
)
def test_what_was_measured_before_the_end(how, code, outcome):
    assert run("-o", "here", afterwards=f"if i == 12: {how}") == code
    budget = read_budget(Path("here"))
    assert budget is not None
    assert budget.outcome == outcome
    assert f"The program ended: {outcome}." in said()
    assert load_run(Path("here")).n_trials


def test_a_full_disk():
    def full():
        return file_size_limit(3000)

    assert run("-o", "here", within=full) == 0
    assert Path("out").read_text() == "done\n"
    assert "the trials cannot be written" in said()
    assert "recording.npz: cannot be written (File too large)" in " ".join(said().split())


def test_reports_afterwards():
    assert run("-o", "here") == 0
    place = Path("here/budget.json")
    written = place.read_text()
    own = read_budget(Path("here"))
    assert own is not None
    # That of another run, older or newer, is none of this one's.
    for year in ("2020", "", "2120"):
        text = written
        for moment in (own.started, own.ended):
            text = text.replace(moment, f"{year}-01-01T00:00:00Z" if year else moment)
        place.write_text(text)
        assert main("report", "here") == 0
        beside = profile.report.call_args.kwargs["beside"]  # type: ignore[attr-defined]
        assert beside.budget == (None if year else own)
