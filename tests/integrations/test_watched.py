"""Which trials of a program are profiled."""

from __future__ import annotations

import pytest

from chainer_profile.integrations.watched import Watched
from chainer_profile.measure.accounts import Accounts

MS = 1_000_000


@pytest.mark.parametrize(
    ("trial_ms", "ahead"),
    [
        (30, 2),  # 6 ms are paid for by 120 ms, of which 60 have passed
        (20, 3),
        (1, 60),
        (0.1, 100),  # it is asked again from time to time
        (0, 1),  # no trial has passed that was not profiled
    ],
)
def test_trials_are_profiled_again_once_their_time_has_paid(trial_ms: float, ahead: int) -> None:
    watched = Watched("trials", None, Accounts(lambda: 0, 0), print, lambda: None)
    watched.count, watched.own_ns = 2, 60 * MS
    watched._profiling_ns, watched._usual_ns = 6 * MS, int(trial_ms * MS)
    assert not watched._chooses()
    assert watched.ahead == ahead
    watched.ahead, watched.own_ns = 0, 120 * MS
    assert watched._chooses()
