"""Results of a run that are stored in other files than its recording."""

from __future__ import annotations

from dataclasses import dataclass

from chainer_profile.advice.results import Advice
from chainer_profile.analyse.program import ProgramTime


@dataclass(frozen=True)
class RelatedResults:
    """The changes that were tried on a run's network, and the time of its program, if known."""

    advice: Advice | None = None
    program: ProgramTime | None = None
