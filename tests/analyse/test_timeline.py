"""A trial laid out in time: where calls lie, and how time is divided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.timeline import (
    FUNCTION,
    LINK,
    PHASE,
    TRIAL,
    Slice,
    evenly,
    lay_out,
    median_trial,
    phase_framework_ns,
)
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import Layer, Recording
from tests.conftest import make_recording


@given(st.integers(0, 10**12), st.integers(1, 50))
def test_even_parts(total: int, parts: int) -> None:
    found = evenly(total, parts)
    assert len(found) == parts
    assert sum(found) == total
    assert max(found) - min(found) <= 1
    assert evenly(-total, parts) == [0] * parts or total == 0


def by_hand(
    *times: tuple[str, str, int], trial: int, framework: dict[str, int] | None = None
) -> Recording:
    """One trial of calls: path, phase and self time; framework time by phase."""
    return Recording(
        layers=tuple(
            Layer(index, path, "F", phase) for index, (path, phase, _) in enumerate(times)
        ),
        self_ns=np.array([[time for *_, time in times]], np.int64),
        phases=tuple(framework or ()),
        framework_ns=np.array([list(framework.values())], np.int64) if framework else None,
        trial_ns=np.array([trial], np.int64),
    )


def places(root: Slice, kind: str) -> list[tuple[str, int, int]]:
    return [(one.name, one.begin_ns, one.end_ns) for _, one in root.walk((kind,))]


def test_framework_by_phase() -> None:
    recording = by_hand(
        ("/a", "forward", 10),
        ("/b", "forward", 10),
        ("/a", "backward", 10),
        trial=60,
        framework={"update": 5, "forward": 7, "backward": 4},
    )
    root = lay_out(recording, 0)
    # Outside 14: 4, 4, 3, 3. Forward 7: 3, 2, 2. Backward 4: 2, 2. Update has no calls.
    assert places(root, FUNCTION) == [("F", 7, 17), ("F", 19, 29), ("F", 37, 47)]
    assert places(root, PHASE) == [("forward", 4, 31), ("backward", 35, 49), ("update", 52, 57)]
    assert places(root, TRIAL) == [("network", 0, 60)]
    # Links end with their phase.
    assert places(root, LINK) == [
        ("/", 7, 29), ("/a", 7, 17), ("/b", 19, 29), ("/", 37, 47), ("/a", 37, 47)
    ]  # fmt: skip


def test_a_phase_in_two_parts() -> None:
    recording = by_hand(
        ("/a", "forward", 1),
        ("/a", "backward", 1),
        ("/a", "forward", 1),
        trial=11,
        framework={"forward": 4, "backward": 4},
    )
    root = lay_out(recording, 0)
    assert places(root, PHASE) == [("forward", 0, 3), ("backward", 3, 8), ("forward", 8, 11)]


def test_framework_never_exceeds_what_there_is() -> None:
    recording = by_hand(("/a", "a", 1), trial=1, framework={"a": 0, "b": 0})
    assert phase_framework_ns(recording, [5, 5], 7) == ({"a": 5, "b": 2}, 0)
    assert phase_framework_ns(recording, [5, 5], -7) == ({"a": 0, "b": 0}, 0)
    assert phase_framework_ns(recording, [-5, 5], 7) == ({"a": 0, "b": 5}, 2)


def test_the_median_trial_is_a_real_one() -> None:
    recording = make_recording(1, n_trials=4, n_clean=0)
    for times, wanted in (([9, 1, 5, 4], 2), ([7, 7, 7, 7], 0), ([1, 2, 100, 101], 1)):
        trial_ns = recording.self_ns.sum(axis=1) * 0 + np.array(times)
        assert median_trial(replace(recording, trial_ns=trial_ns)) == wanted


def test_no_trial_is_no_median() -> None:
    recording = replace(
        make_recording(1, n_trials=1, n_clean=0),
        self_ns=np.zeros((0, 1), np.int64),
        trial_ns=None,
        start_ns=None,
    )
    with pytest.raises(ProfileError, match="holds no complete profiled trial"):
        median_trial(recording)
