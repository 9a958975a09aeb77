"""profile.py compare: its options, files and exit codes."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.record.budget import BUDGET, PROFILER, Budget, Spent, write_json
from chainer_profile.record.recording import COMPLETE, Calibration
from chainer_profile.runs.folder import load_run, save_recording
from tests import names_in
from tests.command import main, one_line
from tests.comparing import CALM, run, scaled


@pytest.fixture(autouse=True)
def runs(folder):
    """Runs A, A2, A3 of the same code; B, B2, B3 of other code, with one layer slower by 30 %."""
    for index, end in enumerate(("", "2", "3")):
        for name, factors in (("A", {}), ("B", {3: 1.3})):
            Path(name + end).mkdir()
            recording = scaled(run(10 * index + len(factors)), factors)
            save_recording(Path(name + end), recording)


#: Arguments of a command, and texts in its output.
SHOWN = {
    "A B": ("Before: A: chain", "1 of 24 matched"),
    "A/recording.npz B": ("Before: A/recording.npz: chain",),
    "A,A2,A3 B,B2,B3": ("3 runs of 200 profiled trials", "Run-to-run noise is measured"),
    "A,B B": ("Before: A,B: chain",),  # a folder's name
    "A A": ("it is compared with itself",),
}


def test_runs_are_compared_with_the_first(done):
    shutil.copytree("A", "A,B")
    for words, parts in SHOWN.items():
        out = done("compare", *words.split())
        assert [part for part in parts if part not in out] == [], words
    # Each run is compared with the first.
    out = done("compare", "A", "B", "A2")
    assert out.count("Before: A: ") == 2
    assert out.index("After: B: ") < out.index("After: A2: ")
    out = done("compare", "A", "B", "--full", "--limit", "3", "--sort", "index")
    assert "21 rows not shown" in out
    rows = re.split(r"^ *#.*\n.*\n", out, flags=re.MULTILINE)[1].splitlines()
    assert [row.split()[0] for row in rows[:3]] == ["0", "1", "2"]
    assert done("compare", "A", "B", "A2", "-q", "-o", "z", "--full", "--limit", "3") == ""
    plots = ["comparison-1.png", "comparison-2.png"]
    assert [name for name in names_in("z") if name.endswith(".png")] == plots
    page = Path("z/comparison.html").read_text().replace("<bdi>", "").replace("</bdi>", "")
    assert "<h1>B, A2 compared with A</h1>" in page
    assert "21 rows not shown" in Path("z/comparison.md").read_text()


def test_times_of_whole_programs_are_compared(done):
    started, ended = "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
    for name, wall_s in (("A", 4), ("A2", 6), ("B", 2)):
        around = Spent(PROFILER, "around", 10**9)
        budget = Budget("t.py", started, ended, COMPLETE, wall_s * 10**9, (around,))
        Path(name, BUDGET).write_text(write_json(budget))
        assert ("The whole program is " in done("compare", "A", "B")) is (name == "B")
    # The mean of A's 3 s and 5 s; three runs give a verdict.
    out = done("compare", "A,A2", "B", "-o", "z")
    assert "change in the whole program: 4.000 s, now 1.000 s, 4.00x faster" in out
    assert "mean self time [ms]" not in Path("z/comparison.md").read_text()
    assert ",total,whole program," in Path("z/comparison.csv").read_text()


GATE = ("--fail-above", "5%")
CPU = (*GATE, "--gate", "cpu")


#: Runs that may replace B.
OTHERS = {
    "slower as a whole": lambda: scaled(run(7), {}, whole=1.2),
    "one trial": lambda: run(7, n_trials=1),
    "few trials": lambda: scaled(run(7, n_trials=2), {3: 2.0}, whole=2.0),
    "few clean trials": lambda: scaled(run(7, n_clean=2), {3: 2.0}, whole=2.0),
    "of another machine": lambda: scaled(
        run(7, conditions=replace(CALM, calibrations=(Calibration(2.6e-3, 2e-3),) * 2)),
        dict.fromkeys(range(24), 2.5),
        whole=2.5,
    ),
}
NONE = "too few trials for a verdict"
SLOWER = "slower: 3_Convolution2DFunction at /res2/1/conv1: 1.3"
#: Run B, arguments after A, exit code, and parts of the output and of the error message.
GATES: list[tuple[str, tuple[str, ...], int, str, str]] = [
    ("", ("A2", *GATE), 0, "Gate: passed", ""),
    ("", ("B", *GATE), 3, "Gate: FAILED, 1 slower by more than 5.0 %", f"profile.py: {SLOWER}"),
    ("", ("B", "--fail-above", "40%"), 0, "Gate: passed", ""),
    ("", ("B", "A2", *GATE, "-q"), 3, "", "slower: B: 3_Convolution2DFunction at "),
    ("slower as a whole", ("B", *GATE, "-q"), 3, "", "slower: unprofiled trial: 1."),
    ("one trial", ("B",), 0, "no verdicts", ""),
    ("one trial", ("B", *GATE), 1, "", "--fail-above cannot be judged: B has"),
    ("few trials", ("B", *GATE), 1, f"Gate: not judged. B has {NONE}.", f"judged: B has {NONE}"),
    ("few clean trials", ("B", *GATE), 1, f"not judged. B has {NONE}.", f"judged: B has {NONE}"),
    ("of another machine", ("B", *GATE), 1, "x slower, machine or code", "or the code made"),
]


def test_gates_set_the_exit_code(capsys):
    for other, words, code, shown, message in GATES:
        if other:
            save_recording(Path("B"), OTHERS[other]())
        assert main("compare", "A", *words) == code, (words, message)
        out, err = capsys.readouterr()
        assert shown in out
        assert bool(out) is ("-q" not in words)
        assert message in " ".join(one_line(err).split()) if message else err == ""


def test_gate_on_cpu_time_ignores_wall_time(done, fails):
    for name, factor in (("A", 1.0), ("A2", 1.0), ("B", 1.3), ("B2", 1.3), ("B3", 1.0)):
        # In wall time, B's unprofiled trials take twice as long as the others.
        recording = scaled(load_run(Path(name)), {}, whole=4.0 if name == "B3" else 2.0)
        cpu_ns = (load_run(Path(name)).clean_ns * factor).astype("int64")
        save_recording(Path(name), replace(recording, clean_cpu_ns=cpu_ns))
    assert "only the CPU time of a trial" in done("compare", "A", "A2", *CPU)
    message = fails("compare", "A,A2", "B,B2", *CPU, "-q", code=3)
    assert message.startswith("profile.py: slower: CPU time: 1.3")
    assert main("compare", "A", "B3", *GATE, "-q") == 3
    done("compare", "A", "B3", *CPU, "-q")
    nothing = replace(load_run(Path("B")), clean_cpu_ns=np.zeros(40, np.int64))
    save_recording(Path("B"), nothing)
    message = fails("compare", "A", "B", *CPU)
    assert message.startswith("B: its trials take less CPU time than")
