"""Whose everything is that passes between two events of an iteration: a row, a phase, or none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainer_profile.record.recording import Layer


@dataclass(frozen=True, eq=False)
class Owned:
    """The events of one iteration."""

    layers: tuple[Layer, ...]
    phases: tuple[str, ...]
    #: Owner of what follows each event: an index of layers, ``len(layers)`` and on for phases, -1
    #: for all else.
    owners: NDArray[np.int64]

    def sums(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counters read at each event, (events,), as what rows and then phases have of them."""
        # What is between two reads belongs to one owner: nothing counts twice, and nothing is lost.
        spans, owners = np.diff(values), self.owners[:-1]
        sums = np.zeros(len(self.layers) + len(self.phases), np.int64)
        np.add.at(sums, owners[owners >= 0], spans[owners >= 0])
        return sums
