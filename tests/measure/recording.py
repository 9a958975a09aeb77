"""Trials of steps, recorded by sessions."""

from __future__ import annotations

from collections.abc import Callable

from chainer_profile.measure.aggregate import TrialTimes
from chainer_profile.measure.session import Session


def record_trial(session: Session, step: Callable[[], object]) -> TrialTimes:
    """Record one trial of a step and return its times."""
    with session.recording():
        session.begin_trial()
        step()
        session.end_trial()
    (times,) = session.read_own()
    return times
