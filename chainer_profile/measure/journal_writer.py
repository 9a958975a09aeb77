"""Writes iterations to a journal as they are folded, and before each of them the rows it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from chainer_profile.measure.order import Order
from chainer_profile.measure.rows import Iteration, Rows
from chainer_profile.record.journal import PROFILED, Journal, Trial
from chainer_profile.record.journal import Rows as RowsFound
from chainer_profile.record.recording import Conditions, LinkCalls, Recording, Settings


class JournalWriter:
    """Knows which rows a journal has."""

    def __init__(
        self,
        journal: Journal,
        rows: Rows,
        links: Callable[[], tuple[LinkCalls, ...]],
        settings: Callable[[], Settings],
    ) -> None:
        self._journal, self._rows, self._links, self._settings = journal, rows, links, settings
        self._order: Order | None = None  # whose rows were written
        self._written = (0, 0)

    @property
    def by_link(self) -> bool:
        """Whether rows are by link."""
        return self._order is None

    def begin(self, order: Order | None) -> None:
        """Write the rows that iterations are expected to have."""
        if order is not None and (rows := self._new_rows(order)):
            self._journal.add(rows)

    def add(self, iterations: Sequence[Iteration]) -> None:
        """Write iterations of one kind."""
        if not iterations:
            return
        order = iterations[0].order
        rows = self._new_rows(order)
        trials = map(_trial_of, iterations)
        self._journal.add(*(rows, *trials) if rows else trials)

    def _new_rows(self, order: Order | None) -> RowsFound | None:
        """Rows that the journal does not have."""
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
        recording = self._journal.recording(conditions, ended)
        if not recording.by_link:
            return replace(recording, links=self._links()) if recording.n_trials else recording
        layers = self._rows.layers()[: len(recording.layers)]
        return replace(recording, layers=layers, links=self._links())


def _trial_of(trial: Iteration) -> Trial:
    samples = {"self_ns": trial.rows_ns.tobytes(), "framework_ns": trial.phases_ns.tobytes()}
    if trial.order is None:
        samples["calls"] = trial.calls.tobytes()
    if len(trial.arrived_ns):
        samples |= {"arrived_ns": trial.arrived_ns.tobytes(), "left_ns": trial.left_ns.tobytes()}
    if trial.number:
        samples["iteration"] = int64(trial.number)
    if trial.device is not None:
        host, gaps, launch_ns, span_ns = trial.device
        samples |= {"host_ns": host.tobytes(), "gap_ns": gaps.tobytes()}
        samples |= {"launch_ns": int64(launch_ns), "span_ns": int64(span_ns)}
    return Trial(PROFILED, trial.start_ns, trial.wall_ns, samples)


def int64(number: int) -> bytes:
    """A sample of a trial; see :class:`Trial`."""
    return number.to_bytes(8, "little", signed=True)
