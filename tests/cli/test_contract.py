"""What the commands that write share: their files, their words, and whose folder it is."""

import builtins
import errno
import os
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
from tests.command import ALL_FILES, FILES, OWN, ROOT, Net, main


class Command(NamedTuple):
    """The words of a command that writes into a folder."""

    words: tuple[str, ...]
    #: What is in the folder then.
    files: list[str]
    #: Somebody's files that are in its way.
    taken: tuple[str, ...]
    #: What it says where the folder has its results; nothing if it takes it again.
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
    "compare": Command(("compare", "run", "run"), COMPARISON, (), again=""),
    # Only what is refused: they run programs of their own, or start processes.
    "run": Command(("run", "script.py"), [], ("budget.json", "trace.json")),
    "advise": Command(("advise",), [], ("advice.json", "advice.md")),
}
WRITING = [name for name, command in COMMANDS.items() if command.files]


def call(name, *more):
    words = COMMANDS[name].words
    return main(*words[:1], *more, *words[1:])


@pytest.fixture(autouse=True)
def runs(folder, monkeypatch):
    """A run to compare, a program, and a stand-in for the cases of a sweep."""
    monkeypatch.setattr(executors, "PROGRAM", sweeping.PROGRAM)
    monkeypatch.setattr(sweep_plot, "pictures", lambda results: {})
    assert main("-q", "-o", "run") == 0
    Path("script.py").write_text("open('ran', 'w')")


@pytest.mark.process
def test_a_command_writes_its_files_and_says_so_unless_it_is_quiet(capsys):
    for name in WRITING:
        assert call(name, "-o", f"{name}/in/it") == 0, name
        assert names_in(f"{name}/in/it") == COMMANDS[name].files
        out = capsys.readouterr().out
        assert f"ritten to {name}/in/it: " in out
        before = {path: path.read_bytes() for path in Path(name).rglob("*.*")}
        again = COMMANDS[name].again
        assert call(name, "-q", "-o", f"{name}/in/it") == (2 if again else 0)
        assert again in capsys.readouterr().err
        if again:
            assert {path: path.read_bytes() for path in Path(name).rglob("*.*")} == before
            assert call(name, "-q", "-o", f"{name}/in/it", "--force") == 0
        assert names_in(f"{name}/in/it") == COMMANDS[name].files
        assert capsys.readouterr() == ("", "")


# -- files of the user's in the folder of the results


@pytest.fixture
def nothing_is_measured(monkeypatch):
    def fail(*_, **__):
        pytest.fail("something is measured")

    monkeypatch.setattr(loading, "build_model", fail)
    monkeypatch.setattr(sweep, "run_cases", fail)


def test_files_of_the_users_are_refused_before_anything_is_measured(nothing_is_measured, capsys):
    for name, command in COMMANDS.items():
        for at, taken in enumerate(command.taken):
            place = Path(f"{name}-{at}")
            mine, notes = place / taken, place / "notes.txt"
            mine.parent.mkdir(parents=True)
            for path in (mine, notes):
                path.write_text("mine")
            assert call(name, "-q", "-o", str(place)) == 2, mine
            said = capsys.readouterr().err
            assert f"{place} contains" in said
            assert "name another folder" in said
            assert {path for path in place.rglob("*") if path.is_file()} == {mine, notes}
            assert mine.read_text() == notes.read_text() == "mine"
    assert not Path("ran").exists()


def test_what_measures_nothing_takes_no_file_of_the_users_place(nothing_is_measured, fails):
    Path("th").mkdir()
    shutil.copy("run/recording.npz", "th/run.npz")
    mine = Path("th/report.md")
    mine.write_text("mine")
    for words, said in (
        (("compare", "run", "run", "-o", "th"), "th contains report.md and 1 more, but no comp"),
        (("report", "th/run.npz"), "th/report.md would be replaced; move it away, or move run.npz"),
    ):
        assert fails(*words, "-q", code=2).startswith(said)
        assert names_in("th") == ["report.md", "run.npz"]
        assert mine.read_text() == "mine"


# -- folders that cannot be written, and signals


@pytest.fixture
def read_only(monkeypatch):
    """From now on the current folder is as on a file system that is mounted read-only."""
    here = os.getcwd()

    def refuse(owner, name, writes):
        original = getattr(owner, name)

        def call(path, *args, **kwargs):
            is_here = isinstance(path, str | Path) and os.path.abspath(path).startswith(here)
            if is_here and writes(path, *args):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return original(path, *args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    refuse(builtins, "open", lambda path, mode="r", *_: set(mode) & set("wax+"))
    refuse(os, "open", lambda path, flags, *_: flags & os.O_CREAT)
    refuse(Path, "unlink", lambda path: True)
    # Like the kernel, which sees first that a folder is there.
    refuse(Path, "mkdir", lambda path, *_: not path.exists())


def test_a_folder_that_is_read_only_is_one_line(fails, request):
    Path("there").mkdir()
    request.getfixturevalue("read_only")
    for words in (
        *((*COMMANDS[name].words, "-o", out) for name in WRITING for out in ("new", "there")),
        (),
        ("export", "new/net.onnx"),
        ("report", "run"),
    ):
        assert os.strerror(errno.EROFS) in fails(*words, "-q"), words


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_anything_is_measured_leaves_nothing(signum, code, fails):
    def build(**_):
        signal.raise_signal(signum)
        return Net()

    before = names_in(".")
    Path("own.py").write_text(f"import signal\nsignal.raise_signal({int(signum)})\n")
    for words in (
        *(("-o", "a/b/run"), ("engines", "-o", "a"), ("advise", "-o", "a"), (*TRAIN, "-o", "a")),
        *(("export", "net.onnx"), ("summary",), ("-m", "own.py:Net", "--input-shape", "3")),
    ):
        said = fails(*words, code=code, build=build)
        assert said.endswith(".py: interrupted"), words
        assert set(names_in(".")) - {"__pycache__"} == {*before, "own.py"}, words


@pytest.mark.process
@pytest.mark.parametrize(
    ("closed", "files", "form"),
    [(">&-", FILES, ""), (">&- 2>&- <&-", ["recording.npz"], "--format none")],
)
def test_a_closed_output_loses_nothing(closed, files, form):
    Path("net.py").write_text(OWN)
    words = f"--model net.py:Net --input-shape 3 --trials 4 --skip machine {form} -o out"
    script = f"{sys.executable} {ROOT / 'profile.py'} {words} {closed}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=HANGS_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert names_in("out") == files
    assert load_run(Path("out")).n_trials == 4
