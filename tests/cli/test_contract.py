"""Common behaviour of commands that write files: their folder, files and messages."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from chainer_profile.cli import sweep
from chainer_profile.networks import loading
from chainer_profile.report.pictures import sweep as sweep_plot
from chainer_profile.runs import executors
from chainer_profile.runs.folder import load_run
from tests import HANGS_S, names_in, sweeping
from tests.command import ALL_FILES, OWN, ROOT, Net, main, raising


class Command(NamedTuple):
    """A command that writes into a folder."""

    words: tuple[str, ...]
    #: Files in the folder afterwards.
    files: list[str]
    #: The user's files that the command must not replace.
    taken: tuple[str, ...]
    #: The message if the folder has results already; empty if the command replaces them.
    again: str = "contains a run already"


COMPARISON = [f"comparison.{end}" for end in ("csv", "html", "md", "png")]
ENGINES = ["chainer", *(f"engines.{end}" for end in ("csv", "html", "json", "md", "png", "svg"))]
SWEEP = ["sweep.csv", "sweep.html", "sweep.json", "sweep.md", "tiny-3-cpu-b1"]
TRAIN = ("train", "-d", "synthetic:50", "-b", "25", "-e", "1")
COMMANDS = {
    "profile": Command((), ALL_FILES, ("report.md", "links.csv", "recording.npz")),
    "engines": Command(
        ("engines", "--engines", "chainer"), ENGINES, ("engines.png", "chainer/layers.csv")
    ),
    "sweep": Command(
        ("sweep", "--model", "tiny", "--input-shape", "3", "--trials", "4"),
        SWEEP,
        ("sweep.html", "by-batch-size.svg", "tiny-3-cpu-b1/case.json"),
        again="",
    ),
    "train": Command(
        TRAIN,
        ["accuracy.png", "log", "loss.png", "model.npz", "snapshot_iter_2"],
        ("log", "model.npz", "snapshot_iter_7"),
        again="contains a training already",
    ),
    "compare": Command(("compare", "run", "run"), COMPARISON, ("report.md",), again=""),
    # Only their refusals are tested here: they run programs or start processes.
    "run": Command(("run", "script.py"), [], ("budget.json", "trace.json")),
    "advise": Command(("advise",), [], ("advice.json", "advice.md")),
}
WRITING = [name for name, command in COMMANDS.items() if command.files]


def call(name, *more):
    words = COMMANDS[name].words
    return main(*words[:1], *more, *words[1:])


@pytest.fixture(autouse=True)
def runs(folder, monkeypatch):
    """A run to compare, a program, and a fake program for the cases of a sweep."""
    monkeypatch.setattr(executors, "PROGRAM", sweeping.PROGRAM)
    monkeypatch.setattr(sweep_plot, "pictures", lambda results: {})
    assert main("-q", "-o", "run") == 0
    Path("script.py").write_text("open('ran', 'w')")


@pytest.mark.process
def test_command_writes_its_files_and_lists_them_unless_quiet(capsys):
    for name in WRITING:
        assert call(name, "-o", f"{name}/in/it") == 0, name
        assert names_in(f"{name}/in/it") == COMMANDS[name].files
        out = capsys.readouterr().out
        place = f"{name}/in/it"
        assert f"ritten to {place}: " in out or f"Report: {place}/report.html" in out
        before = {path: path.read_bytes() for path in Path(name).rglob("*.*")}
        again = COMMANDS[name].again
        assert call(name, "-q", "-o", f"{name}/in/it") == (2 if again else 0)
        assert again in capsys.readouterr().err
        if again:
            assert {path: path.read_bytes() for path in Path(name).rglob("*.*")} == before
            assert call(name, "-q", "-o", f"{name}/in/it", "--force") == 0
        assert names_in(f"{name}/in/it") == COMMANDS[name].files
        assert capsys.readouterr() == ("", "")


# -- files of the user in the folder of the results


def test_folder_with_user_files_is_refused_before_measuring(monkeypatch, capsys):
    monkeypatch.setattr(loading, "build_model", raising(AssertionError("something is measured")))
    monkeypatch.setattr(sweep, "run_cases", raising(AssertionError("something is measured")))
    for name, command in COMMANDS.items():
        for index, taken in enumerate(command.taken):
            place = Path(f"{name}-{index}")
            mine, notes = place / taken, place / "notes.txt"
            mine.parent.mkdir(parents=True)
            for path in (mine, notes):
                path.write_text("mine")
            assert call(name, "-q", "-o", str(place)) == 2, mine
            message = capsys.readouterr().err
            assert f"{place} contains" in message
            assert "name another folder" in message
            assert {path for path in place.rglob("*") if path.is_file()} == {mine, notes}
            assert mine.read_text() == notes.read_text() == "mine"
    assert not Path("ran").exists()


def test_report_does_not_replace_user_files(fails):
    Path("th").mkdir()
    shutil.copy("run/recording.npz", "th/run.npz")
    Path("th/report.md").write_text("mine")
    text = "th/report.md would be replaced; move it away, or move run.npz into a folder of its own"
    assert fails("report", "th/run.npz", "-q", code=2) == text
    assert names_in("th") == ["report.md", "run.npz"]
    assert Path("th/report.md").read_text() == "mine"


# -- folders that cannot be written, and signals


def test_folder_that_cannot_be_created_is_refused_in_one_line(fails):
    for name in WRITING:
        assert "cannot be written" in fails(*COMMANDS[name].words, "-q", "-o", "/proc/new"), name
    assert "cannot be written" in fails("export", "/proc/new/net.onnx")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_before_measuring_leaves_no_files(signum, code, fails):
    def build(**_):
        signal.raise_signal(signum)
        return Net()

    before = names_in(".")
    Path("own.py").write_text(f"import signal\nsignal.raise_signal({int(signum)})\n")
    for words in (
        *(("-o", "a/b/run"), ("engines", "-o", "a"), ("advise", "-o", "a"), (*TRAIN, "-o", "a")),
        *(("export", "net.onnx"), ("summary",), ("-m", "own.py:Net", "--input-shape", "3")),
    ):
        message = fails(*words, code=code, build=build)
        assert message.endswith(".py: interrupted"), words
        assert set(names_in(".")) - {"__pycache__"} == {*before, "own.py"}, words


@pytest.mark.process
def test_closed_output_streams_do_not_lose_results():
    Path("net.py").write_text(OWN)
    words = "--model net.py:Net --input-shape 3 --trials 4 --skip machine --format none -o out"
    script = f"{sys.executable} {ROOT / 'profile.py'} {words} >&- 2>&- <&-"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=HANGS_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert names_in("out") == ["recording.npz"]
    assert load_run(Path("out")).n_trials == 4
