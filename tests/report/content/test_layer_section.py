"""What is said of layers one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.content.layer_section import (
    MAX_ROWS,
    SLOWEST,
    by_layer,
    spreads,
    work_by_layer,
)
from chainer_profile.report.tables import SPREAD, Spread
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


def spread(times: np.ndarray) -> Spread:
    """That of one layer."""
    (found,) = spreads(summarise(make_recording(1, len(times), self_ns=times.reshape(-1, 1))))
    return found


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_everything_is_within_the_picture(times: list[int]) -> None:
    found = spread(np.array(times))
    assert max(found.counts) == SPREAD
    assert min(found.counts) >= 0
    assert 0 <= min(found.course) <= max(found.course) <= SPREAD
    assert len(found.course) == min(24, len(times))


def test_the_most_frequent_time_is_the_highest_bar() -> None:
    found = spread(np.array([100, 200, 300, 400] * 10 + [400] * 60))
    assert found.counts[-1] == SPREAD
    assert found.counts[0] == pytest.approx(SPREAD / 7, abs=1)
    # Early trials are on the way between the ends, late ones at the upper one.
    assert found.course[0] < SPREAD
    assert found.course[-1] == SPREAD


def test_a_few_very_long_trials_do_not_press_all_others_into_one_bar() -> None:
    times = np.arange(1000, 2000)
    times[500] = 10**9
    found = spread(times)
    assert min(found.counts) > SPREAD / 2
    assert found.said == "1,000 trials: 1.000 us to 1.000 s"


def test_one_time() -> None:
    assert (spread(np.array([5])).counts, spread(np.array([5, 5])).course) == ([SPREAD], [0, 0])


def test_every_layer_has_its_own() -> None:
    recording = make_recording(4, 50)
    recording.self_ns[25:, 2] *= 2
    found = spreads(summarise(recording))
    assert len(found) == 4
    assert found[2].course[-1] - found[2].course[0] > SPREAD / 2
