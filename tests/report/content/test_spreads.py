"""How a layer's times are spread over the trials."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.report.content.layer_section import spreads
from chainer_profile.report.tables import SPREAD, Spread
from tests.conftest import make_recording


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
