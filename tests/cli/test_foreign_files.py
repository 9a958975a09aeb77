"""Files of the user's in the folder of the results: every command leaves them as they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.cli import main as cli
from chainer_profile.cli import sweep
from chainer_profile.integrations.results import Results
from chainer_profile.networks import loading
from tests import names_in
from tests.command import Entry, folder, main, one_line  # noqa: F401
from tests.conftest import make_recording

#: The words of a command, without its folder.
RUN = ("--model", "tiny", "--trials", "4", "--warmups", "1", "-q", "--no-machine")
ENGINES = ("engines", "--engines", "chainer", "--model", "tiny", "--trials", "4", "-q")
SWEEP = ("sweep", "--models", "tiny", "--trials", "4", "-q")
TRAIN = ("train", "-m", "tiny", "-d", "synthetic", "--synthetic-size", "50", "-q")
ADVISE = ("advise", "--model", "tiny", "-q")
SCRIPT = ("run", "-q")
#: Each with files that it may write.
COMMANDS = {
    RUN: ("report.pdf", "report.md", "tables.tex", "layers-2.csv", "recording.npz"),
    SCRIPT: ("budget.json", "trace.json"),
    ENGINES: ("engines.json", "engines.png", "chainer/layers.csv"),
    SWEEP: ("sweep.csv", "by-batch-size.svg", "tiny-3-cpu-b1/case.json"),
    TRAIN: ("log", "model.npz", "loss.png", "accuracy.png", "snapshot_iter_7"),
    ADVISE: ("advice.json", "advice.md"),
}
CASES = [(words, name) for words, names in COMMANDS.items() for name in names]


def call(words: tuple[str, ...], *more: str) -> int:
    words = (*words, *more, *(("script.py",) if words == SCRIPT else ()))
    entry: Any = Entry(input_shape=(3, 32, 32), classes=10) if words[0] == "train" else Entry()
    return cli.main(list(words), {"tiny": entry})


@pytest.fixture
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        pytest.fail("something is measured")

    monkeypatch.setattr(loading, "build_model", fail)
    monkeypatch.setattr(sweep, "run_cases", fail)
    Path("script.py").write_text("open('ran', 'w')")


@pytest.mark.parametrize(("words", "name"), CASES)
def test_files_of_the_users_are_refused_before_anything_is_measured(
    words: tuple[str, ...],
    name: str,
    nothing_is_measured: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = Path("th", name)
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    Path("th/notes.txt").write_text("mine")
    assert call(words, "-o", "th") == 2
    assert "name another folder" in (line := one_line(capsys.readouterr().err))
    assert "th: holds" in line
    assert call(words, "-o", "th", "--force") == 2
    assert f"th/{name}" in one_line(capsys.readouterr().err)
    assert mine.read_text() == Path("th/notes.txt").read_text() == "mine"
    assert {str(path) for path in Path("th").rglob("*") if path.is_file()} == {
        str(mine),
        "th/notes.txt",
    }
    assert not Path("ran").exists()


def test_with_force_a_run_is_written_beside_and_replaces_what_it_wrote() -> None:
    Path("th").mkdir()
    Path("th/notes.txt").write_text("mine")
    assert main("-q", "--no-machine", "-o", "th") == 2
    assert main("-q", "--no-machine", "-o", "th", "--force", "--format", "json") == 0
    assert "report.json" in names_in("th")
    assert main("-q", "--no-machine", "-o", "th", "--force") == 0
    assert "report.json" not in names_in("th")
    Path("th/report.md").write_text("what I think of it")
    for words in (("-q", "-o", "th", "--force"), ("report", "th", "-q")):
        assert main(*words) == 2
    assert Path("th/report.md").read_text() == "what I think of it"
    assert Path("th/notes.txt").read_text() == "mine"


def test_the_advice_of_a_run_takes_no_file_of_the_users_place(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert main("-q", "--no-machine", "-o", "run") == 0
    Path("run/report.html").write_text("mine")
    request.getfixturevalue("nothing_is_measured")
    assert cli.main(["advise", "run", "-q"], {"tiny": Entry()}) == 2
    assert "run/report.html: was not written" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("compare", "run", "run", "-q", "-o", "th"), "comparison.md"),
        (("report", "th/run.npz", "-q"), "layers.csv"),
    ],
)
def test_what_measures_nothing_writes_nothing_there(
    words: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("-q", "--no-machine", "-o", "run") == 0
    Path("th").mkdir()
    shutil.copy("run/recording.npz", "th/run.npz")
    Path("th", name).write_text("mine")
    assert main(*words) == 2
    assert f"th/{name}: was not written" in one_line(capsys.readouterr().err)
    assert names_in("th") == sorted([name, "run.npz"])
    assert Path("th", name).read_text() == "mine"


def test_a_summary_is_not_saved_over_a_file_of_the_users() -> None:
    summary = summarise(make_recording())
    summary.save("th")
    summary.save("th", ["json"])
    Path("th/links.csv").write_text("mine")
    before = Path("th/recording.npz").stat().st_mtime_ns
    with pytest.raises(Exception, match=r"th/links\.csv: was not written by chainer-profile"):
        summary.save("th")
    assert Path("th/recording.npz").stat().st_mtime_ns == before
    assert Path("th/links.csv").read_text() == "mine"


def test_trials_that_are_met_while_a_program_runs_find_a_place() -> None:
    mine = Path("here/test/report.md")
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    results = Results(Path("here"), Path("reports/s"), True, None, print)
    assert results.take("test").path == Path("here/test-2")
    results.close()
    assert mine.read_text() == "mine"
