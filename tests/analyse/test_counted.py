"""What the counters pass says, by layer and of a trial."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from chainer_profile.analyse.counted import counters_by, layer_counters, trial_counters
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Counted, Counters
from tests.conftest import make_recording, make_training
from tests.counting import counters


def test_means_by_layer_in_seconds():
    recording = make_recording(2)
    values = (
        Counted("cpu_ns", (3000, 8000), (), (6000, 7000)),
        Counted("waits", (1, 4), (), (5, 0)),
    )
    columns = layer_counters(replace(recording, counters=Counters(2, values)))
    assert columns["cpu_s"].tolist() == pytest.approx([1.5e-6, 4e-6])
    assert columns["waits"].tolist() == [0.5, 2.0]
    # What this machine does not count.
    assert all(map(math.isnan, columns["page_faults"]))
    trial = trial_counters(replace(recording, counters=Counters(2, values)))
    assert trial.cpu_s == pytest.approx(6.5e-6)
    assert trial.waits == 2.5
    assert math.isnan(trial.system_share)
    assert math.isnan(trial.fault_s)


def test_nothing_without_the_pass():
    recording = make_recording(2)
    assert trial_counters(recording) is None
    assert all(map(math.isnan, layer_counters(recording)["cpu_s"]))


def test_a_trial_as_a_whole():
    recording = make_recording(3)
    found = replace(recording, counters=counters(recording))
    trial = trial_counters(found)
    assert trial.wall_s == pytest.approx(400e-6)
    assert trial.system_share == pytest.approx(0.1)
    assert trial.off_share == pytest.approx(0.1)
    assert trial.system_error_s == 0
    assert trial.fault_s == pytest.approx(100e-9)
    # A thread that seems to run for longer than there was time: the two clocks' steps.
    more = replace(recording, counters=counters(recording, cpu_us=101))
    assert trial_counters(more).off_share == 0


def test_groups_add_up_to_the_layers():
    recording = make_training()
    found = summarise(replace(recording, counters=counters(recording)))
    for by in ("function", "phase"):
        table = counters_by(found.layers, by)
        assert table["layers"].sum() == len(found.layers)
        for column in ("cpu_s", "page_faults"):
            assert table[column].sum() == pytest.approx(found.layers[column].sum())
