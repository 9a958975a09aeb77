"""Passes: measurements after the timed trials, each of which adds a part to the recording."""

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
class PassInput:
    """The input of a pass: the timed trials, and the time that the pass may take."""

    step: Step
    session: Session
    #: The recording of the trials. Its first call frees large blocks, after which glibc keeps freed
    #: memory: then trials have fewer page faults.
    recording: Callable[[], Recording]
    clock: Clock
    pass_s: float  # time of a structure pass
    trials_s: float  # time of all profiled trials
    left_s: float  # time until the limit: infinite without a limit, negative after it
    requested: Any  # the runner's argument: True, or None for the shortest useful pass
    stop: Stop


@dataclass(frozen=True)
class Pass:
    """A measurement after the timed trials."""

    part: str  # name of the recording's field for the result
    measure: Callable[[PassInput], Any]
    failure: str  # the warning after a failure, with {} for the reason
    # Time that is reserved for the pass before a time limit: seconds, at most this fraction of the
    # limit. The pass also works with less.
    seconds: float = 0.0
    limit_part: float = 1.0
    calls: int = 0  # the time of this number of structure passes is always reserved
    on_device: bool = True  # whether the pass is possible for a network on a device

    def wanted(self, requested: Mapping[str, Any], clock: Clock) -> bool:
        """Whether to make the pass. ``requested`` has the runner's argument for each part."""
        return requested.get(self.part) is not False and (self.on_device or clock.device is None)

    def reserved_s(self, pass_s: float, limit: TimeLimit) -> float:
        """Seconds to reserve for the pass. A structure pass takes ``pass_s``."""
        return limit.at_most_s(self.seconds, self.limit_part) + self.calls * pass_s

    def find(self, timed: PassInput, warn: Say = warn_user) -> Any:
        """Make the pass and return its part of the recording.

        Returns None if there is no time left, or with a warning if the pass fails.
        """
        try:
            return self.measure(timed)
        except Exception as error:  # the network may raise any exception
            why = str(error) if isinstance(error, ProfileError) else one_line(error)
            warn(self.failure.format(why))
            return None
