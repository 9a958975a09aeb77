"""The section of the counters pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.report.content.pass_section import counters as section
from tests.conftest import make_recording
from tests.counting import counters


def test_none_without_the_pass():
    assert list(section(summarise(make_recording()))) == []


def test_times_by_function_add_up_to_those_of_the_layers():
    recording = make_recording(3)
    _, table = section(summarise(replace(recording, counters=counters(recording))))
    cells = [[column.cell(row) for column in table.columns] for row in table.rows]
    assert sum(float(row[2]) for row in cells) == pytest.approx(0.27)


def test_the_system_s_time_by_layer_of_older_versions_is_passed_over():
    recording = make_recording(3)
    now = counters(recording, fault_ns=None)
    by_layer = tuple(
        replace(one, layers=(9,) * 3, framework=(9,) * len(recording.phases)) for one in now.counted
    )
    old = summarise(replace(recording, counters=replace(now, counted=by_layer)))
    assert set(old.layers["verdict"]) == {""}
