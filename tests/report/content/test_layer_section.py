from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.content.layer_section import MAX_ROWS, SLOWEST, by_layer, work_by_layer
from tests.conftest import make_recording
from tests.report.reading import Report, as_markdown, read
from tests.report.working import with_work, working

HEAD = [
    *("#", "path", "function", "MFLOP", "MB moved", "operations a byte", "GFLOP/s", "GB/s"),
    *("limit reached [%]", "limited by", "peak", "workspace", "left allocated"),
]


def part(summary: Summary) -> Report:
    return read(as_markdown([*by_layer(summary), *work_by_layer(summary)]))


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
