"""profile.py compare: its options, its files, its exit codes."""

from __future__ import annotations

import errno
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.cli import compare as compare_command
from chainer_profile.cli import main as cli
from chainer_profile.record.recording import Calibration
from chainer_profile.report.writers import terminal
from chainer_profile.runs.folder import load_run, save_recording
from tests import HANGS_S, names_in
from tests.command import ROOT, folder, one_line  # noqa: F401
from tests.comparing import CALM, run, scaled
from tests.conftest import make_training


def command(*argv: str) -> int:
    return cli.main(["compare", *argv], {})


@pytest.fixture(autouse=True)
def runs(folder: Path) -> None:  # noqa: F811
    """Runs A, A2, A3 of one code; B, B2, B3 of another, with one layer slower by 30 %."""
    for at, end in enumerate(("", "2", "3")):
        for name, factors in (("A", {}), ("B", {3: 1.3})):
            Path(name + end).mkdir()
            recording = scaled(run(10 * at + len(factors)), factors)
            save_recording(Path(name + end), recording)


def test_two_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A", "B") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("No change of the clean trial can be told: ")
    assert "Before: A: chain" in out
    assert "1 of 24 matched layers changed: 1 slower" in out
    assert "1.3" in out
    assert sorted(path.name for path in Path().iterdir()) == ["A", "A2", "A3", "B", "B2", "B3"]


def test_without_whole_trials_the_layers_are_the_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = run(1)
    Path("other").mkdir()
    save_recording(Path("other"), replace(other, settings=replace(other.settings, phase="train")))
    assert command("A", "other") == 0
    out = capsys.readouterr().out
    assert out.startswith("0 of 24 matched layers changed significantly.\n")
    assert out.count("of 24 matched layers") == 1


def test_recording_files_and_folders(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A/recording.npz", "B") == 0
    assert "Before: A/recording.npz: chain" in capsys.readouterr().out


def test_each_run_is_compared_with_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A", "B", "A2") == 0
    out = capsys.readouterr().out
    assert out.count("Before: A: ") == 2
    assert out.index("After: B: ") < out.index("After: A2: ")


def test_several_runs_a_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A,A2,A3", "B,B2,B3") == 0
    out = capsys.readouterr().out
    assert "3 runs of 200 profiled trials" in out
    assert "Noise from run to run is measured" in out
    assert "1 of 24 matched layers changed: 1 slower" in out


def test_a_folder_with_a_comma_is_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("A").rename("A,B")
    assert command("A,B", "B") == 0
    assert "Before: A,B: chain" in capsys.readouterr().out


def test_the_same_run_twice_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A", "A") == 0
    assert "it is compared with itself" in capsys.readouterr().out


def test_options_of_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A", "B", "--all", "--limit", "3", "--sort", "index") == 0
    out = capsys.readouterr().out
    assert "21 rows not shown" in out
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("#"))
    assert [line.split()[0] for line in lines[at + 2 : at + 5]] == ["0", "1", "2"]
    assert command("A", "B", "--all", "--limit", "3", "-q", "-o", "files") == 0
    assert "21 rows not shown" in Path("files/comparison.md").read_text()
    assert command("A", "B", "--all", "--limit", "0") == 0
    assert "not shown" not in capsys.readouterr().out
    assert command("A", "B", "--min-effect", "50%") == 0
    assert "0 of 24 matched layers changed significantly." in capsys.readouterr().out


def test_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A", "B", "--out", "x/y") == 0
    said = "Written to x/y: comparison.md, comparison.html, comparison.csv, comparison.png"
    assert said in capsys.readouterr().out
    names = ["comparison.csv", "comparison.html", "comparison.md", "comparison.png"]
    assert names_in("x/y") == names
    assert "(comparison.png)" in Path("x/y/comparison.md").read_text()
    assert command("A", "B", "A2", "-q", "-o", "z") == 0
    assert capsys.readouterr() == ("", "")
    assert sorted(path.name for path in Path("z").glob("*.png")) == [
        "comparison-1.png",
        "comparison-2.png",
    ]


def test_the_page_is_of_all_comparisons() -> None:
    assert command("A", "B", "A2", "-q", "-o", "two") == 0
    text = Path("two", "comparison.html").read_text()
    assert "<h1>B, A2 compared with A</h1>" in text.replace("<bdi>", "").replace("</bdi>", "")
    assert text.count('class="chart"') <= 2


def test_an_out_that_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert command("A", "B", "-q", "-o", "file") == 1
    assert "file" in one_line(capsys.readouterr().err)


def test_the_gate_passes_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A", "A2", "--fail-above", "5%") == 0
    out, err = capsys.readouterr()
    assert "Gate: passed" in out
    assert err == ""
    assert command("A", "B", "--fail-above", "5%") == 3
    out, err = capsys.readouterr()
    assert "Gate: FAILED, 1 slower by more than 5.0 %" in out
    line = one_line(err)
    assert line.startswith("profile.py: slower: 3_Convolution2DFunction at /res2/1/conv1: 1.3")
    assert command("A", "B", "--fail-above", "40%") == 0


def test_a_quiet_gate_says_what_is_slower(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("A", "B", "A2", "--fail-above", "5%", "-q") == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert one_line(err).startswith("profile.py: slower: B: 3_Convolution2DFunction at ")


def test_the_gate_fails_for_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    save_recording(Path("B"), scaled(run(7), {}, whole=1.2))
    assert command("A", "B", "--fail-above", "5%", "-q") == 3
    assert one_line(capsys.readouterr().err).startswith("profile.py: slower: clean trial: 1.")


def test_a_gate_that_cannot_judge_does_not_pass(capsys: pytest.CaptureFixture[str]) -> None:
    save_recording(Path("B"), run(7, n_trials=1))
    assert command("A", "B") == 0
    assert "no verdicts" in capsys.readouterr().out
    assert command("A", "B", "--fail-above", "5%") == 1
    assert "--fail-above cannot be judged: B has" in one_line(capsys.readouterr().err)


def test_a_gate_with_too_few_trials_of_one_kind_does_not_judge_by_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for few in ({"n_trials": 2}, {"n_clean": 2}):
        save_recording(Path("B"), scaled(run(7, **few), {3: 2.0}, whole=2.0))
        assert command("A", "B", "--fail-above", "5%") == 1
        out, err = capsys.readouterr()
        assert "Gate: not judged. B has too few trials for a verdict." in out
        assert one_line(err).endswith("judged: B has too few trials for a verdict")


def test_a_gate_does_not_pass_what_may_be_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    slow = (Calibration(2.6e-3, 2e-3),) * 2
    recording = run(7, conditions=replace(CALM, calibrations=slow))
    save_recording(Path("B"), scaled(recording, dict.fromkeys(range(24), 2.5), whole=2.5))
    assert command("A", "B", "--fail-above", "5%") == 1
    out, err = capsys.readouterr()
    assert "x slower, machine or code" in out
    assert "0 of 24 matched layers changed significantly." in out
    said = " ".join(one_line(err).split())
    assert "Whether the machine or the code made the trial 2." in said
    assert said.endswith("there is one run a side; record five runs of each, in turn")


def with_cpu(name: str, factor: float, **changes: object) -> None:
    """The run of a folder with CPU times; its clean trials take twice as long by the clock."""
    recording = scaled(load_run(Path(name)), {}, whole=2.0)
    used = {"clean_cpu_ns": (recording.clean_ns * factor / 2).astype("int64")} | changes
    save_recording(Path(name), replace(recording, **used))  # type: ignore[arg-type]


def test_a_gate_on_cpu_time_looks_at_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("A", "A2", "A3"):
        save_recording(Path(name), replace(load_run(Path(name)), conditions=CALM))
    for name, factor in (("A", 1.0), ("A2", 1.0), ("B", 1.3), ("B2", 1.3)):
        with_cpu(name, factor)
    gate = ("--fail-above", "5%", "--gate", "cpu")
    assert command("A", "A2", *gate) == 0
    assert "CPU time of a trial alone" in capsys.readouterr().out
    assert command("A,A2", "B,B2", *gate) == 3
    assert one_line(capsys.readouterr().err).startswith("profile.py: slower: CPU time: 1.3")
    # By the clock it is slower, in CPU time it is not.
    save_recording(Path("A3"), scaled(load_run(Path("A3")), {}))
    with_cpu("A3", 1.0)
    with_cpu("B3", 1.0)
    save_recording(Path("B3"), scaled(load_run(Path("B3")), {}, whole=2.0))
    assert command("A3", "B3", "--fail-above", "5%", "-q") == 3
    assert command("A3", "B3", *gate, "-q") == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clean_cpu_ns": None}, "B: holds no CPU time of clean trials, which"),
        ({"clean_cpu_ns": np.zeros(40, np.int64)}, "B: its trials take less CPU time than"),
    ],
)
def test_a_gate_on_cpu_time_says_what_is_missing(
    changes: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with_cpu("A", 1.0)
    with_cpu("B", 1.0, **changes)
    assert command("A", "B", "--fail-above", "5%", "--gate", "cpu") == 1
    assert message in one_line(capsys.readouterr().err)
    assert command("A", "B", "--gate", "cpu") == 2
    assert "--gate cpu goes with --fail-above" in one_line(capsys.readouterr().err)


def in_a_shell(words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'"{sys.executable}" "{ROOT}/profile.py" compare {words}; echo "exit $?"'],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )


def test_exit_codes_in_a_shell() -> None:
    found = in_a_shell("A B --fail-above 5% -q")
    assert found.stdout == "exit 3\n"
    assert found.stderr.startswith("profile.py: slower: 3_Convolution2DFunction")
    assert in_a_shell("A A2 --fail-above 5% -q").stdout == "exit 0\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["A"], 2, "give two runs at least"),
        ([], 2, "the following arguments are required: DIR"),
        (["A", "none"], 1, "none: there is no such recording"),
        (["A", "B,"], 2, "'B,': name a folder before and after each comma"),
        (["A,A", "B"], 1, "A,A: a run is given twice"),
        (["A", "B", "--fail-above", "1%"], 2, "--fail-above is less than --min-effect"),
        (["A", "B", "--fail-above", "x"], 2, "'x' is no percentage"),
        (["A", "B", "--sort", "name"], 2, "invalid choice: 'name'"),
        (["A", "B", "--limit", "-1"], 2, "must be a whole number"),
        (["A", "damaged"], 1, "damaged, or not a recording"),
        (["A", "other"], 1, "no layer in common"),
        (["A", "B", "phase"], 1, "phase: the runs have no phase in common"),
        (["A,train", "B"], 1, "A,train: its runs are not of the same thing (network: chain"),
        (["A", "empty"], 1, "empty: holds no run"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("damaged").write_bytes(b"PK\x03\x04 no archive")
    Path("empty").mkdir()
    others = {
        "other": {"path": "/else\n"},
        "phase": {"phase": "data"},
    }
    for name, change in others.items():
        Path(name).mkdir()
        recording = run(1)
        layers = tuple(replace(layer, **change) for layer in recording.layers)  # type: ignore[arg-type]
        save_recording(Path(name), replace(recording, layers=layers))
    Path("train").mkdir()
    save_recording(Path("train"), make_training())
    assert command(*words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in one_line(err)


def test_a_full_standard_output_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(terminal, "show", full)
    assert command("A", "B") == 1
    assert "standard output cannot be written" in one_line(capsys.readouterr().err)


def test_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        compare_command.parser().parse_args(["--help"])
    assert exit.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("--min-effect PCT", "(default: 2%)", "--fail-above PCT", "more than 1% of"):
        assert part in text


def test_runs_go_by_their_names_under_reports(capsys: pytest.CaptureFixture[str]) -> None:
    Path("reports").mkdir()
    for name in ("A", "B"):
        Path(name).rename(Path("reports", f"run{name}"))
    assert command("runA", "runB") == 0
    assert "1 of 24 matched layers changed" in capsys.readouterr().out
