"""The command ``run``: its files and messages, also if the program fails or is killed."""

import os
import re
import signal
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from chainer_profile.integrations import script_report, script_run
from chainer_profile.integrations.script import MODULE, Script
from chainer_profile.record.budget import ITERATIONS, RUNNING, SNAPSHOTS, read_budget
from chainer_profile.record.recording import COMPLETE, Recording
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import load_run
from tests.command import file_size_limit, main, raising
from tests.scripts import files, python, run_in_child

pytestmark = pytest.mark.process

HERE = Path("here")
INTO = ("-o", "here")
BOTH = ["budget.json", "recording.npz"]
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


def run(*words, at_first="", afterwards="", script="train.py", form="none", **more):
    """Run a training of 16 iterations, without reports by default."""
    text = TRAINS.replace("AT_FIRST", at_first).replace("AFTERWARDS", afterwards)
    Path(script).write_text(text)
    return run_in_child(*(["--format", form] if form else []), *words, script, **more)


def stderr_text():
    return Path("err").read_text()


def test_each_run_has_its_own_folder_below_reports():
    assert run() == 0
    Path("there").mkdir()
    assert run(at_first="os.chdir('there')") == 0  # also if the program changes its folder
    places = ("train-2", "train")
    assert files("reports") == [f"{name}/{file}" for name in places for file in BOTH]
    assert files("there") == []
    assert "reports/train-2\n" in stderr_text()
    assert Path("out").read_text() == "done\n"
    names = {"..py": "program", ".hidden.py": "hidden", "b\udcff.py": "b_", "-": "stdin"}
    names[".."] = Path.cwd().parent.name
    assert {name: Script(name).stem for name in names} == names
    assert Script("a.b", kind=MODULE).stem == "a-b"


def test_folder_with_a_run_is_refused_before_the_program_runs():
    assert run(*INTO) == 0
    before = load_run(HERE)
    assert before.n_trials == 16  # without a memory pass, every iteration is timed
    assert before.memory is None
    assert run(*INTO) == 2
    assert "contains a run already" in stderr_text()
    assert stderr_text().count("\n") == 1
    assert Path("out").read_text() == ""
    assert run(*INTO, "--force", at_first="raise ValueError") == 1
    assert load_run(HERE).environment == before.environment  # the old run is not replaced
    assert run("-q", "--memory", *INTO, "--force", afterwards="if i == 9: break") == 0
    assert stderr_text() == ""
    assert load_run(HERE).n_trials == 8
    assert load_run(HERE).memory is not None
    # A run can consist of the budget alone.
    assert run("--skip", "layers", "-o", "alone") == 0
    assert files("alone") == ["budget.json"]
    assert read_budget(Path("alone")).total(ITERATIONS).count == 16
    assert run("--skip", "layers", "-o", "alone") == 2


def test_programs_that_hardly_use_chainer_run():
    wrapped = "assert not hasattr(chainer.Optimizer.update, '__wrapped__')"
    assert run("--compat-only", afterwards=wrapped) == 0
    assert (stderr_text(), Path("reports").exists()) == ("", False)
    Path("plain.py").write_text("print('here')")
    assert run_in_child(*INTO, "plain.py") == 0
    assert stderr_text() == "profile.py: the program called nothing in Chainer\n"
    assert not HERE.exists()
    save = "import chainer; chainer.serializers.save_npz('saved.npz', chainer.links.Linear(3, 3))"
    Path("save.py").write_text(save)
    assert run_in_child(*INTO, "save.py") == 0
    assert "save.py took" in stderr_text()
    assert read_budget(HERE).total(SNAPSHOTS).count == 1


def test_file_names_that_are_not_utf8_are_accepted():
    assert run("-o", "\udcfa", "-q", script="b\udcff.py") == 0
    assert read_budget(Path("\udcfa")).script == "'b\\udcff.py'"
    assert main("report", "\udcfa") == 0


def test_spawned_processes_can_use_names_that_numpy_removed():
    Path("old.py").write_text(
        "import multiprocessing\nimport numpy as np\n"
        "def double(x):\n    return np.float(2 * x)\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1]))\n"
    )
    done = python("-m", "chainer_profile", "run", "--compat-only", "old.py")
    assert (done.stdout, done.stderr, done.returncode) == ("[2.0]\n", "", 0)


@pytest.mark.parametrize("child", ["sys.exit(4)", "break", "1 / 0"])
def test_forked_child_does_not_change_the_profile(child):
    more = f"if i == 8:\n        if os.fork() == 0: {child}\n        os.wait()"
    assert run(*INTO, afterwards=more) == 0
    assert files("here") == BOTH
    assert stderr_text().count("Written to") == 1
    budget = read_budget(HERE)
    assert budget.outcome == COMPLETE
    assert budget.total(ITERATIONS).count == 16
    assert Path("out").read_text().count("done") == 1 + (child == "break")


def test_killed_program_leaves_its_trials_and_its_budget(monkeypatch):
    monkeypatch.setattr(script_run, "_SAVED_EVERY_NS", 0)
    # A child that ended before changes neither file.
    before = "if os.fork() == 0: sys.exit(0)\nos.wait()\nassert os.path.exists('here')"
    killed = "if i == 12: os.kill(os.getpid(), 15)"
    assert run(*INTO, at_first=before, afterwards=killed) == -signal.SIGTERM
    assert files("here") == ["budget.json", "recording.journal"]
    budget = read_budget(HERE)
    assert budget.outcome == RUNNING
    assert 0 < budget.total(ITERATIONS).count <= 12
    assert sum(spent.ns for spent in budget.spent) == budget.wall_ns
    assert load_run(HERE).n_trials


def test_short_program_has_a_page_only_if_requested(monkeypatch):
    tables = ["layers.csv", "links.csv", "report.md"]
    assert run(*INTO, form="") == 0
    assert files("here") == sorted([*BOTH, *tables])
    assert stderr_text().endswith(
        "; for the page and pictures, run python profile.py report here\n"
    )
    assert run(*INTO, "--force", form="page") == 0
    assert {*BOTH, *tables, "report.html", "layers.png"} <= set(files("here"))
    assert "for the page" not in stderr_text()
    monkeypatch.setattr(script_report, "_SHORT_NS", 0)
    assert run("-o", "long", form="") == 0
    assert {"report.html", "layers.png"} <= set(files("long"))


def test_full_disk_keeps_the_trials_that_fit_and_shows_how_to_recover_them(monkeypatch):
    folder, again = Path.cwd() / "here", "python profile.py report"
    with monkeypatch.context() as patch:
        patch.setattr(Recording, "save", raising(OSError(28, "No space left on device")))
        assert run(*INTO, within=partial(file_size_limit, 4500)) == 0
    assert Path("out").read_text() == "done\n"
    at_once = (
        f"profile.py: the trials cannot be written: {folder}/recording.journal: File too large: "
        "from now on trials are kept in memory, and lost if the program is killed; "
        f"{again} {folder} recovers the earlier trials\n"
    )
    assert at_once in stderr_text()
    at_end = " ".join(stderr_text().replace(at_once, "").split())
    found = re.search(r"device\); (\d+) of (\d+) trials are still in \S+journal: ", at_end)
    kept, n_trials = map(int, found.groups())
    assert 0 < kept < n_trials <= 16
    assert f"here/recording.journal: free some space, then run {again} " in at_end
    assert main("report", "here", "-q") == 0
    assert load_run(HERE).n_trials == kept


def test_unwritable_folder_is_reported_before_the_program_ends():
    program = Path("train.py").absolute()

    @contextmanager
    def elsewhere():
        os.chdir("/proc")
        yield

    text = "if i == 15:\n        sys.stderr.write('the end\\n')"
    Path("train.py").write_text(TRAINS.replace("AFTERWARDS", text).replace("AT_FIRST", "time = 0"))
    assert run_in_child("-q", str(program), within=elsewhere) == 0
    at_once, _, at_end = stderr_text().partition("the end\n")
    assert at_once == (
        "profile.py: /proc/reports/train: cannot be written (No such file or directory): trials "
        "are kept in memory, and lost if the program is killed\n"
    )
    assert at_end == ""


def test_budget_of_another_run_is_not_shown():
    assert run(*INTO) == 0
    place = Path("here/budget.json")
    written, own = place.read_text(), read_budget(HERE)
    for year in ("2020", "", "2120"):
        text = written
        for moment in (own.started, own.ended):
            text = text.replace(moment, f"{year}-01-01T00:00:00Z" if year else moment)
        place.write_text(text)
        assert main("report", "here") == 0
        program = profile.report.call_args.kwargs["related"].program
        assert (program and program.budget) == (None if year else own)


@pytest.mark.parametrize("other_cpu", [None, 0.1, 1.3])
def test_busy_other_programs_give_a_warning(other_cpu):
    assert run(*INTO, form="", other_cpu=other_cpu) == 0
    is_busy = other_cpu == 1.3
    assert load_run(HERE).conditions.other_cpu == read_budget(HERE).other_cpu == other_cpu
    cores = len(os.sched_getaffinity(0))
    first, _, _ = " ".join(stderr_text().split()).partition(" part ")
    assert (f"Warning: Other programs kept 1.3 of {cores} core" in first) == is_busy


def test_changes_that_were_tried_are_on_the_screen_and_in_a_report():
    # 16 iterations are too few for significant results, but every change is listed.
    assert run("--try", *INTO, form="json") == 0
    first = stderr_text().partition("\n\n")[0]
    assert "training step of train.py" in first
    assert "Not tried: " in first
    content = (HERE / "advice.md").read_text()
    assert "# What was tried on train.py" in content
    (HERE / "advice.md").unlink()
    assert main("report", "here") == 0
    assert (HERE / "advice.md").read_text() == content
