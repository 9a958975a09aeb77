"""Counters and GPU times by layer and trial."""

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.counted import counters_by, layer_counters, trial_counters
from chainer_profile.analyse.device_use import DEVICE, device_use, layer_device, phase_device
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Counted, Counters
from tests.conftest import make_recording, make_training
from tests.counting import counters
from tests.report.working import LAUNCH_BOUND, make_device_recording, make_device_training


def test_counter_shares_of_a_trial_and_missing_counters():
    values = (Counted("cpu_ns", (3000, 8000), (), (6000, 7000)),)
    recording = replace(make_recording(2), counters=Counters(2, values))
    columns, trial = layer_counters(recording), trial_counters(recording)
    assert columns["cpu_s"].tolist() == pytest.approx([1.5e-6, 4e-6])
    # Counters that the machine lacks, or that were not requested.
    assert np.isnan([*columns["page_faults"], trial.system_share, trial.fault_s]).all()
    by_function = counters_by(summarise(recording).layers, "function")
    assert by_function["page_faults"].isna().all()
    recording = make_recording(3)
    assert trial_counters(recording) is None
    trial = trial_counters(replace(recording, counters=counters(recording)))
    shares = (trial.system_share, trial.off_share, trial.system_error_s)
    assert shares == pytest.approx((0.1, 0.1, 0))
    # CPU time may exceed wall time by the resolution of the clocks.
    more = replace(recording, counters=counters(recording, cpu_us=101))
    assert trial_counters(more).off_share == 0


def test_run_is_launch_bound_below_a_tenth_of_waiting():
    for changes, launch_bound in (
        ({"wait_us": 390, "n_held": 0}, True),
        ({"wait_us": 433}, True),
        ({"wait_us": 434}, False),
        ({"times": (*LAUNCH_BOUND[:3], (3700, 0, 0, 0, 0, 0))}, False),  # a busy device
    ):
        use = device_use(make_device_recording(**changes))
        assert use.launch_bound is launch_bound, changes
        assert use.launch_s + use.wait_s == pytest.approx(use.trial_s)
        assert use.layers_s + use.gaps_s + use.rest_s == pytest.approx(use.span_s)
    # On its own clock, a device may be busy for longer than the trial.
    assert replace(use, busy_s=2 * use.trial_s).busy_share == 1


def test_busy_time_is_unknown_without_held_trials():
    none = {"held_ns": np.zeros((0, 6), int), "held_span_ns": np.zeros(0, int)}
    for recording in (make_device_recording(n_held=0), make_device_recording(**none)):
        use = device_use(recording)
        assert (use.busy_s, use.busy_share, use.idle_s, use.held_span_s) == (None,) * 4
        assert np.isnan(layer_device(recording)["busy_s"]).all()
    assert phase_device(summarise(make_device_training(n_held=0)).layers)["busy_s"].isna().all()
    # A run on the host has no device times.
    summary = summarise(make_training())
    assert summary.device is None
    assert summary.layers[list(DEVICE)].isna().all(axis=None)
