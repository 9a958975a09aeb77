"""When trials are enough: a rule that may look again and again without being fooled by luck."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.describe import CONFIDENCE, trials_interval

#: Trials before the first look, and how many times as many there are at every further one.
FIRST_LOOK = 200
GROWTH = 1.5


class PreciseEnough:
    """Whether the median is known to a wanted fraction (half an interval), asked during the trials.

    Who looks often enough sees a narrow interval by chance. So there are few looks, each at 1.5
    times as many trials as the one before; and the k-th asks for an interval that misses the median
    with a chance of at most 5 % / (k (k + 1)). These add up to 5 %, however many looks there are
    (spending the error: Lan and DeMets, Biometrika 70, 1983). ``benchmarks/coverage.py`` shows how
    often the interval that is then reported is right.
    """

    def __init__(self, wanted: float) -> None:
        self.wanted = wanted
        self._looks = 0
        self._next = FIRST_LOOK

    def due(self, count: int) -> bool:
        """Whether the next look is at so many trials."""
        return count >= self._next

    def reached(self, samples: NDArray[np.int64]) -> bool:
        """Look, if it is time to; samples are all the trials so far, in their order, (trials,)."""
        if not self.due(len(samples)):
            return False
        self._looks += 1
        self._next = ceil(GROWTH * len(samples))
        chance = (1 - CONFIDENCE) / (self._looks * (self._looks + 1))
        low, high = trials_interval(samples, 1 - chance)
        return bool((high - low) / 2 <= self.wanted * np.median(samples))
