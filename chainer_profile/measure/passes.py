"""A pass: what is measured beside the timed trials, after them, and is a part of the recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.warning import warn_user
from chainer_profile.measure.clock import Clock, TimeLimit
from chainer_profile.measure.session import Session
from chainer_profile.measure.step import Step
from chainer_profile.measure.trials import Say, Stop
from chainer_profile.record.recording import Recording


@dataclass(frozen=True)
class Timed:
    """What a pass is given: the trials that were timed, and what it may take."""

    step: Step
    session: Session
    recording: Recording
    clock: Clock
    pass_s: float  # of a structure pass
    trials_s: float  # of the profiled trials together
    left_s: float  # infinite without a limit, negative where it is reached
    asked: Any  # of the runner: True, or None for as little as may be
    stop: Stop


@dataclass(frozen=True)
class Pass:
    """What is measured beside the timed trials."""

    part: str
    measure: Callable[[Timed], Any]
    fails: str  # with the reason in place of {}
    # Seconds of a time limit that are kept for it, but no larger a part of it; it does with less.
    seconds: float = 0.0
    limit_part: float = 1.0
    calls: int = 0  # the time of so many structure passes is kept in any case
    on_device: bool = True

    def wanted(self, asked: Mapping[str, Any], clock: Clock) -> bool:
        """Whether it is to be made, by what the runner was asked for of each part."""
        return asked.get(self.part) is not False and (self.on_device or clock.device is None)

    def kept_s(self, pass_s: float, limit: TimeLimit) -> float:
        """Seconds that the trials leave for it, by the time of a structure pass."""
        return limit.at_most_s(self.seconds, self.limit_part) + self.calls * pass_s

    def find(self, timed: Timed, warn: Say = warn_user) -> Any:
        """The part of the recording; None where there is no time, or it fails, which is said."""
        try:
            return self.measure(timed)
        except Exception as error:  # the network's own, or there is no way
            why = str(error) if isinstance(error, ProfileError) else one_line(error)
            warn(self.fails.format(why))
            return None
