"""Protocols for what one trial runs: its networks, inputs and the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class TrialInfo(Protocol):
    """The networks and inputs of a trial."""

    @property
    def roots(self) -> Sequence[tuple[str, Any]]:
        """The networks whose links give the paths, each with the prefix of its paths."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The arrays among the network's arguments."""


class Step(TrialInfo, Protocol):
    """A callable that one trial runs; see :mod:`chainer_profile.measure.steps`."""

    @property
    def network_is_phase(self) -> bool:
        """Whether an outermost call of a network is the forward phase: see :class:`.Session`."""

    def __call__(self) -> Any:
        """Run the step once; returns the network's output, or None."""
