"""What to do next: what its words are is in the goldens, what none of them may be is here."""

from __future__ import annotations

from typing import Any

import pytest

from chainer_profile.analyse.findings import STEP
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Recording
from tests.analyse.test_checks import findings
from tests.conftest import make_training
from tests.report.devicing import DEVICE_BOUND, make_device_recording
from tests.report.scaled import scaled


def next_steps(recording: Recording) -> str:
    """What may take less time, a line each."""
    found = [one for one in summarise(recording).findings if one.severity == STEP]
    return "\n".join(one.said(full=True) for one in found)


@pytest.mark.parametrize(
    ("recording", "words"),
    [
        (
            scaled([60, 40], ["Convolution2DFunction", "ReLU"], framework_ns=50_000),
            ("ackward", "pdate", "forward", "belong", "data"),
        ),
        (make_training(), ("gradients of variables", "Loading of data")),
        # The host sets the pace, whose framework is the launching.
        (make_device_recording(), ("twice as fast", "(framework)")),
        (make_device_recording(DEVICE_BOUND, wait_us=26_300), ("launch", "Python take the time")),
    ],
)
def test_nothing_is_advised_without_a_reason(recording: Recording, words: tuple[str, ...]) -> None:
    steps = next_steps(recording)
    assert steps
    assert not [word for word in words if word in steps]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"data": True},
        {"trial_ns": None, "start_ns": None},
        {"phases": (), "framework_ns": None},
        {"links": ()},
    ],
)
def test_what_is_not_known_is_not_said(changes: dict[str, Any]) -> None:
    findings(make_training(**changes))


def test_the_launching_step_comes_before_all_others() -> None:
    found = summarise(make_device_recording()).findings
    assert next(one for one in found if one.severity == STEP).code == "launch-bound"
