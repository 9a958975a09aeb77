"""A pass: what is measured beside the timed trials, after them, and is a part of the recording.

Each stands in the file that measures it; the list of them is ``PASSES`` in :mod:`.runner`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, one_line

if TYPE_CHECKING:
    from chainer_profile.measure.by_link import ByLink
    from chainer_profile.measure.clock import Clock
    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.time_limit import TimeLimit
    from chainer_profile.measure.trials import Say, Stop
    from chainer_profile.measure.windows import Step
    from chainer_profile.record.recording import Recording


@dataclass(frozen=True)
class Timed:
    """What a pass is given: the trials that were timed, and what it may take.

    Attributes:
        step: What a trial runs, within its configuration.
        structure: What each trial calls; None where rows are by link.
        by_link: Times trials by link; None where each trial makes the same calls.
        recording: The trials, and what the passes before have found.
        clock: The run's clock.
        pass_s: Time of a structure pass, in seconds.
        trials_s: Time of the profiled trials together, in seconds.
        left_s: Seconds that are left for the pass; infinite without a limit, and negative where
            the limit is reached.
        asked: What the runner was asked for of the pass: True, or None for as little as may be.
        stop: Asked after every trial whether to stop.
    """

    step: Step
    structure: Structure | None
    by_link: ByLink | None
    recording: Recording
    clock: Clock
    pass_s: float
    trials_s: float
    left_s: float
    asked: Any
    stop: Stop


@dataclass(frozen=True)
class Pass:
    """What is measured beside the timed trials.

    Attributes:
        part: The field of the recording that it gives.
        measure: Gives that part; None where the time does not allow it.
        fails: What to say where it fails, with the reason in place of ``{}``.
        seconds: So many seconds of a time limit are kept for it; it does with less.
        limit_part: They are no larger a part of the limit than this.
        calls: It takes as long as so many structure passes, which are kept for it in any case.
        on_device: Whether it is made on a GPU too.
    """

    part: str
    measure: Callable[[Timed], Any]
    fails: str
    seconds: float = 0.0
    limit_part: float = 1.0
    calls: int = 0
    on_device: bool = True

    def wanted(self, asked: Mapping[str, Any], clock: Clock) -> bool:
        """Whether it is to be made, by what the runner was asked for of each part."""
        return asked.get(self.part) is not False and (self.on_device or clock.device is None)

    def kept_s(self, pass_s: float, limit: TimeLimit) -> float:
        """Seconds that the trials leave for it, by the time of a structure pass."""
        return limit.at_most_s(self.seconds, self.limit_part) + self.calls * pass_s

    def find(self, timed: Timed, warn: Say = warnings.warn) -> Any:
        """The part of the recording; None where there is no time, or it fails, which is said."""
        try:
            return self.measure(timed)
        except Exception as error:  # the network's own, or there is no way
            why = str(error) if isinstance(error, ProfileError) else one_line(error)
            warn(self.fails.format(why))
            return None
