from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_mega
from chainer_profile.report.content.layer_section import (
    MAX_ROWS,
    SLOWEST,
    by_layer,
    work_by_layer,
)
from tests.conftest import make_recording, make_training
from tests.report.reading import Report, as_markdown, read
from tests.report.working import training, with_work, working

HEAD = [
    *("#", "path", "function", "MFLOP", "MB moved", "operations a byte", "GFLOP/s", "GB/s"),
    *("limit reached [%]", "limited by", "peak", "workspace", "left allocated"),
]


def part(summary: Summary) -> Report:
    return read(as_markdown([*by_layer(summary), *work_by_layer(summary)]))


def test_without_work_and_memory_there_are_times_alone() -> None:
    for recording in (make_recording(), make_training()):
        shown = part(summarise(recording))
        assert len(shown.tables) == 1


def test_work_and_memory_of_the_same_layers() -> None:
    summary = working()
    shown = part(summary)
    times, work = shown.tables
    assert work[0] == HEAD
    assert [row[:3] for row in work] == [row[:3] for row in times]
    for row, layer in zip(work[1:-1], summary.layers.itertuples(), strict=False):
        number = layer.Index + 1
        assert row[3:6] == [f"{10 * number}.00" if number < 100 else "", "0.6000", row[5]]
        assert float(row[5]) == pytest.approx(10 * number / 0.6, rel=1e-3)
        seconds = layer.median_s
        assert float(row[6]) == pytest.approx(0.01 * number / seconds, rel=1e-3)
        assert float(row[7]) == pytest.approx(0.0006 / seconds, rel=1e-3)
        assert row[9] == layer.verdict
        assert row[10:] == [f"{number}.0 KiB", "0 B", f"{'-' * (number % 2 == 0)}512 B"]
    assert work[-1][3:10] == ["-"] * 7
    bold = [str(index) for index in summary.hotspots.indices]
    assert shown.bold("#") == bold * 2


def test_operations_add_up_to_those_by_function() -> None:
    summary = working()
    rows = part(summary).tables[1][1:-1]
    total = sum(float(row[3]) for row in rows)
    assert format_mega(total * 1e6) == format_mega(float(summary.layers["flops"].sum()))


def test_phases() -> None:
    summary = training()
    times, work = part(summary).tables
    assert times[0][3] == work[0][3] == "phase"
    assert [row[3] for row in work[1:]] == summary.layers["phase"].tolist()
    workspaces = [row[work[0].index("workspace")] for row in work[1:]]
    assert workspaces[9:] == ["-"] * 16


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"limits": None}, {"limit reached [%]", "limited by"}),
        ({"memory": None}, {"peak", "workspace", "left allocated"}),
    ],
)
def test_columns_without_content_are_left_out(changes: dict[str, None], missing: set[str]) -> None:
    shown = part(working(**changes))
    assert shown.tables[1][0] == [name for name in HEAD if name not in missing]
    assert ("A layer is limited by" in shown.words) == ("limited by" not in missing)
    assert ("The peak is" in shown.words) == ("peak" not in missing)


def test_memory_alone() -> None:
    recording = with_work(make_recording())
    summary = summarise(replace(recording, layers=make_recording().layers))
    assert part(summary).tables[1][0][3:] == ["peak", "workspace", "left allocated"]


def test_many_layers() -> None:
    summary = summarise(with_work(make_recording(MAX_ROWS + 1, n_trials=5)), "top:3")
    shown = part(summary)
    times, work = shown.tables
    assert len(times) == len(work) == SLOWEST + 1
    assert [row[0] for row in times] == [row[0] for row in work]
    assert shown.words.count("layers are shown") == 1
