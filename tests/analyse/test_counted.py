"""What the counters pass says, by layer and of a trial."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.counted import counters_by, layer_counters, trial_counters
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Counted, Counters
from tests.conftest import make_recording, make_training
from tests.counting import counters


def test_means_by_layer_in_seconds():
    values = (
        Counted("cpu_ns", (3000, 8000), (), (6000, 7000)),
        Counted("waits", (1, 4), (), (5, 0)),
    )
    recording = replace(make_recording(2), counters=Counters(2, values))
    columns, trial = layer_counters(recording), trial_counters(recording)
    assert columns["cpu_s"].tolist() == pytest.approx([1.5e-6, 4e-6])
    assert columns["waits"].tolist() == [0.5, 2.0]
    assert (trial.cpu_s, trial.waits) == (pytest.approx(6.5e-6), 2.5)
    # What this machine does not count.
    assert np.isnan([*columns["page_faults"], trial.system_share, trial.fault_s]).all()


def test_nothing_without_the_pass():
    recording = make_recording(2)
    assert trial_counters(recording) is None
    assert np.isnan(layer_counters(recording)["cpu_s"]).all()


def test_a_trial_as_a_whole():
    recording = make_recording(3)
    found = replace(recording, counters=counters(recording))
    trial = trial_counters(found)
    shares = (trial.system_share, trial.off_share, trial.system_error_s)
    assert shares == pytest.approx((0.1, 0.1, 0))
    assert (trial.wall_s, trial.fault_s) == pytest.approx((400e-6, 100e-9))
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
