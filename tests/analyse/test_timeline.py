"""How the time of a trial is divided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.timeline import (
    evenly,
    median_trial,
    phase_framework_ns,
)
from chainer_profile.record.recording import Layer, Recording
from tests.conftest import make_recording


@given(st.integers(0, 10**12), st.integers(1, 50))
def test_even_parts(total: int, parts: int) -> None:
    found = evenly(total, parts)
    assert len(found) == parts
    assert sum(found) == total
    assert max(found) - min(found) <= 1
    assert evenly(-total, parts) == [0] * parts or total == 0


def test_framework_never_exceeds_what_there_is() -> None:
    none = np.zeros((1, 2), np.int64)
    layers = (Layer(0, "/a", "F", "a"),)
    recording = Recording(layers, none[:, :1], phases=("a", "b"), framework_ns=none)
    assert phase_framework_ns(recording, [5, 5], 7) == ({"a": 5, "b": 2}, 0)
    assert phase_framework_ns(recording, [5, 5], -7) == ({"a": 0, "b": 0}, 0)
    assert phase_framework_ns(recording, [-5, 5], 7) == ({"a": 0, "b": 5}, 2)


def test_the_median_trial_is_a_real_one() -> None:
    recording = make_recording(1, n_trials=4, n_clean=0)
    for times, wanted in (([9, 1, 5, 4], 2), ([7, 7, 7, 7], 0), ([1, 2, 100, 101], 1)):
        trial_ns = recording.self_ns.sum(axis=1) * 0 + np.array(times)
        assert median_trial(replace(recording, trial_ns=trial_ns)) == wanted
