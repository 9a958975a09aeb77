"""Writes iterations to a journal as they are folded, and before each of them the rows it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from chainer_profile.measure.order import Order
from chainer_profile.measure.rows import Iteration, Rows
from chainer_profile.record.journal import PROFILED, Journal, Trial
from chainer_profile.record.journal import Rows as RowsFound
from chainer_profile.record.recording import Conditions, LinkCalls, Recording, Settings


class Told:
    """What a journal was told of a tape's rows."""

    def __init__(
        self,
        journal: Journal,
        rows: Rows,
        links: Callable[[], tuple[LinkCalls, ...]],
        settings: Callable[[], Settings],
    ) -> None:
        self._journal, self._rows, self._links, self._settings = journal, rows, links, settings
        self._order: Order | None = None  # whose rows were told
        self._written = (0, 0)

    @property
    def by_link(self) -> bool:
        """Whether rows are by link."""
        return self._order is None

    def begin(self, order: Order | None) -> None:
        """Tell of the rows that iterations are expected to have."""
        if order is not None and (found := self._rows_found(order)):
            self._journal.add(found)

    def add(self, iterations: Sequence[Iteration]) -> None:
        """Write iterations of one kind."""
        if not iterations:
            return
        order = iterations[0].order
        found = self._rows_found(order)
        trials = map(_trial_of, iterations)
        self._journal.add(*(found, *trials) if found else trials)

    def _rows_found(self, order: Order | None) -> RowsFound | None:
        """Rows that the journal was not told of."""
        rows, links, settings = self._rows, self._links, self._settings
        if order is not None:
            if order is self._order:
                return None
            self._order = order
            return RowsFound(order.layers, tuple(rows.phases), links(), settings())
        anew, self._order = self._order is not None, None
        written = (0, 0) if anew else self._written
        self._written = len(rows), len(rows.phases)
        if self._written == written:
            return None
        layers, phases = rows.layers(written[0]), tuple(rows.phases[written[1] :])
        return RowsFound(layers, phases, links(), settings(), anew)

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """All iterations so far, with rows as they are by now, without those of none here."""
        found = self._journal.recording(conditions, ended)
        if not found.by_link:
            return replace(found, links=self._links()) if found.n_trials else found
        layers = self._rows.layers()[: len(found.layers)]
        return replace(found, layers=layers, links=self._links())


def _trial_of(one: Iteration) -> Trial:
    samples = {"self_ns": one.rows_ns.tobytes(), "framework_ns": one.phases_ns.tobytes()}
    if one.order is None:
        samples["calls"] = one.calls.tobytes()
    if len(one.arrived_ns):
        samples |= {"arrived_ns": one.arrived_ns.tobytes(), "left_ns": one.left_ns.tobytes()}
    if one.number:
        samples["iteration"] = np.int64(one.number).tobytes()
    if one.device is not None:
        host, gaps, launch_ns, span_ns = one.device
        samples |= {"host_ns": host.tobytes(), "gap_ns": gaps.tobytes()}
        samples |= {"launch_ns": np.int64(launch_ns).tobytes()}
        samples |= {"span_ns": np.int64(span_ns).tobytes()}
    return Trial(PROFILED, one.start_ns, one.wall_ns, samples)
