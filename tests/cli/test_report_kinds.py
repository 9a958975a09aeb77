"""``report`` of a run with trials of several kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from chainer_profile.runs.history import Query, history
from chainer_profile.runs.wanted import FILES, is_report
from tests import names_in
from tests.command import folder, main, one_line  # noqa: F401
from tests.conftest import make_kinds

USUAL = {
    *("layers.csv", "links.csv", "layers.png", "layers.svg"),
    *("report.md", "report.html"),
}


@pytest.fixture(autouse=True)
def run(folder: None) -> Path:  # noqa: F811
    place = Path("run")
    place.mkdir()
    make_kinds(left_out=2).save(place / "recording.npz")
    return place


def test_every_kind_has_a_table_of_its_layers(run: Path) -> None:
    assert main("report", "run", "-q", "--hotspots", "top:1") == 0
    assert set(names_in(run)) == {*USUAL, "layers-2.csv", "layers-3.csv", "recording.npz"}
    # What a run that is replaced leaves behind.
    assert {name for name in names_in(run) if not is_report(name)} == {"recording.npz"}
    tables = [pd.read_csv(run / f"layers{end}.csv") for end in ("", "-2", "-3")]
    assert [len(table) for table in tables] == [6, 5, 6]
    assert [table["trials"][0] for table in tables] == [100, 40, 20]
    assert [table["hot"].sum() for table in tables] == [1, 1, 1]
    assert len({tuple(table.columns) for table in tables}) == 1


def test_another_kind_in_every_format(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typst")
    assert main("report", "run", "--variant", "2", "--format", "all", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kind"], len(shown["layers"]), shown["trials"]["profiled"]) == (2, 5, 40)
    assert set(names_in(run)) == {"recording.npz", "variant-2"}
    assert set(names_in(run / "variant-2")) == USUAL | set(FILES.values())
    assert all(map(is_report, names_in(run / "variant-2")))
    assert main("report", "run", "--variant", "3") == 0
    out = capsys.readouterr().out
    assert "20 profiled trials of kind 3" in out
    assert f"Written to {run / 'variant-3'}: layers.csv" in out


def test_the_first_is_the_run_itself(run: Path) -> None:
    assert main("report", "run", "-q", "--variant", "1") == 0
    assert "layers-2.csv" in names_in(run)


def test_without_reports_no_folder_is_made(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("report", "run", "--variant", "2", "--format", "none") == 0
    assert "40 profiled trials of kind 2" in capsys.readouterr().out
    assert names_in(run) == ["recording.npz"]


def test_a_kind_that_is_not_there_is_one_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("report", "run", "--variant", "4") == 1
    assert "no variant 4: the recording has 3 kinds" in one_line(capsys.readouterr().err)
    assert main("report", "run", "--variant", "0") == 2
    assert names_in(run) == ["recording.npz"]


def test_engines_have_one_kind(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "engines.json").write_text("{}")
    assert main("report", "run", "--variant", "2") == 2
    assert "trials are of one kind" in one_line(capsys.readouterr().err)


def test_the_history_counts_all_trials() -> None:
    (found,) = history(Path(), Query()).runs
    assert (found.name, found.digest.trials, found.digest.clean) == ("run", 162, False)


def test_one_kind_of_two_runs_is_compared(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other").mkdir()
    make_kinds(left_out=2).save(Path("other", "recording.npz"))
    assert main("compare", "run", "other", "--variant", "2", "--all", "--out", "found") == 0
    table = pd.read_csv("found/comparison.csv")
    assert (table["row"] == "layer").sum() == 5
    capsys.readouterr()
    assert main("compare", "run", "other", "--variant", "4") == 1
    assert "run: there is no variant 4 in it" in one_line(capsys.readouterr().err)
