"""profile.py history."""

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import moment as parse_since
from chainer_profile.record.recording import Environment, Gpu, Settings
from chainer_profile.report.content.history import overview
from chainer_profile.report.writers import terminal
from chainer_profile.runs.folder import save_recording
from chainer_profile.runs.history import SORTS, History, Query, history, resolve_run
from tests.command import main, one_line
from tests.conftest import make_recording

REPORTS = Path("reports")
NONE = np.zeros(0, np.int64)
NOT_TIMED = {"trial_ns": None, "start_ns": None, "clean_ns": NONE, "clean_start_ns": NONE}


def put(
    name, *, model="resnet20", device="cpu", batchsize=1, day=1, commit="abc123456789", **changes
):
    """A run in the reports."""
    place = REPORTS / name
    place.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "settings": Settings(model, "random", (batchsize, 3, 8, 8), batchsize, device),
        "environment": Environment(
            started=f"2026-11-{day:02}T10:00:00Z",
            processor="A processor",
            commit=commit,
            gpu=Gpu(name="A GPU") if device == "gpu:0" else None,
        ),
    }
    recording = make_recording(2, 8, 4, seed=day, **(values | changes))
    save_recording(place, recording)
    return recording


def put_several():
    put("a", day=3)
    put("b", model="resnet18", day=2, batchsize=4)
    put("sweep-x/c", model="resnet34", device="gpu:0", day=1, commit="def000-dirty")


def names(**query):
    return [run.name for run in history(REPORTS, Query(**query)).runs]


#: What is asked, and the runs that are found.
ASKED = [
    ({}, "a b sweep-x/c"),
    ({"model": "resnet18"}, "b"),
    ({"model": "ResNet*"}, "a b sweep-x/c"),
    ({"model": "resnet[13]?"}, ""),
    ({"device": "gpu*"}, "sweep-x/c"),
    ({"commit": "def"}, "sweep-x/c"),
    ({"commit": "ef"}, ""),
    ({"since": "2026-11-02T10:00:00Z"}, "a b"),
    ({"since": "2026-11-02T10:00:01Z"}, "a"),
    ({"words": ("RESNET", "sweep")}, "sweep-x/c"),
    ({"words": ("4x3x8x8",)}, "b"),
    ({"words": ("a gpu",)}, "sweep-x/c"),
    ({"sort": "batch"}, "a sweep-x/c b"),
    ({"sort": "name"}, "a b sweep-x/c"),
    ({"sort": "model"}, "b a sweep-x/c"),
]


def test_searching():
    assert history(REPORTS, Query()) == History((), 0)  # no reports at all
    assert os.listdir() == []
    put_several()
    for query, found in ASKED:
        assert names(**query) == found.split(), query
    put("unknown", **NOT_TIMED)
    for sort in SORTS:
        found = names(sort=sort)
        assert sorted(found) == ["a", "b", "sweep-x/c", "unknown"]
    for sort, value in (("latency", "median_s"), ("fps", "fps")):
        *runs, last = history(REPORTS, Query(sort=sort)).runs
        assert last.name == "unknown"
        values = [getattr(run.digest, value) for run in runs]
        assert values == sorted(values, reverse=sort == "fps")
    assert terminal.written(overview([last])).splitlines()[2].split()[7:9] == ["-", "-"]


def test_what_cannot_be_read_is_counted_and_a_line(capsys):
    put_several()
    os.rename(REPORTS / "b", os.fsencode(REPORTS) + b"/\xff")  # no text: it is passed over
    assert names() == ["a", "sweep-x/c"]
    for name, said in (
        ("a", "1 recording cannot be read: reports/a/recording.npz"),
        ("d", "2 recordings cannot be read, such as"),
    ):
        put(name)
        (REPORTS / name / "recording.npz").write_bytes(b"x")
        assert main("history") == 0
        assert said in one_line(capsys.readouterr().err)
    found = history(REPORTS, Query())
    assert len(found.runs) == 1
    assert found.unread[0].startswith("reports/a/recording.npz: damaged, or not a recording")


def test_dates():
    for text, moment in {
        "2026-11-21": "2026-11-21T00:00:00Z",
        "2026-11-21 09:30": "2026-11-21T09:30:00Z",
        "2026-11-21T09:30:05Z": "2026-11-21T09:30:05Z",
        "2026-11-21T09:30+02:00": "2026-11-21T07:30:00Z",
    }.items():
        assert parse_since(text) == moment
    for text in ("", "yesterday", "2026-13-01", "21.11.2026"):
        with pytest.raises(UsageError, match="is not a date: write it as 2026-11-21"):
            parse_since(text)


def test_runs_by_name():
    put_several()
    put("sweep-y/c")
    put("sweep-y/only")
    Path("b").mkdir()
    for name, place in {
        "a": REPORTS / "a",
        "b": "b",  # a path goes first
        "sweep-x/c": REPORTS / "sweep-x/c",
        "only": REPORTS / "sweep-y/only",
        **{name: name for name in ("missing", "../b", "/missing")},
    }.items():
        assert resolve_run(name) == Path(place)
    with pytest.raises(UsageError, match=r"several runs have this name \(sweep-x/c, sweep-y/c\)"):
        resolve_run("c")


def test_the_table_csv_and_markdown(done):
    assert done("history") == "no runs under reports/\n"
    put_several()
    put("p", clean_ns=NONE, clean_start_ns=NONE)
    first = done("history").splitlines()[2]
    assert first.startswith("2026-11-03 10:00  resnet20  cpu")
    assert first.endswith("0_Convolution2DFunction  a")
    assert "3 more are not shown (--limit 0 shows all)." in done("history", "--limit", "1")
    assert done("history", "nothing") == "none of the 4 runs under reports/ matches\n"
    for words, found in {
        "--sort name --limit 1": "a\n",
        "nothing": "",
        "--device @cupy:0": "sweep-x/c\n",
        "--device gpu": "sweep-x/c\n",
        "--since 2026-11-03 resnet": "a\n",
    }.items():
        assert done("history", "--names", *words.split()) == found
    rows = list(csv.DictReader(io.StringIO(done("history", "--format", "csv"))))
    assert [row["folder"] for row in rows] == ["a", "b", "p", "sweep-x/c"]
    assert rows[2]["trials_kind"] == "profiled"
    assert float(rows[0]["latency_ms"]) == history(REPORTS, Query()).runs[0].digest.median_s * 1e3
    markdown = done("history", "--format", "markdown")
    assert markdown.startswith("| when | model |")
    assert "\\* of profiled trials: there were no unprofiled ones." in markdown
    assert "def000+" in markdown
