"""Writes trials to a journal, and each new row before the first trial that has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from chainer_profile.measure.aggregate import TrialTimes
from chainer_profile.measure.layout import Layout
from chainer_profile.measure.session import Target
from chainer_profile.record.journal import PROFILED, Journal, Rows, Trial
from chainer_profile.record.recording import Conditions, Recording, Settings


class JournalWriter:
    """Writes the trials of a target, and their rows, to a journal.

    Args:
        journal: The journal to append to.
        target: The links and rows of the trials.
        settings: Returns the current settings.
    """

    def __init__(self, journal: Journal, target: Target, settings: Callable[[], Settings]) -> None:
        self._journal, self._target, self._settings = journal, target, settings
        # The layout whose rows were written, while rows are single calls.
        self._layout: Layout | None = None
        # Numbers of rows and phases that were written, if rows are by link.
        self._written = (0, 0)

    @property
    def by_link(self) -> bool:
        """Whether rows are functions of links."""
        return self._layout is None

    def begin(self) -> None:
        """Write the rows of single calls that the trials are expected to have."""
        layout = self._target.aggregator.call_layout
        if layout is not None and (rows := self._new_rows(layout)):
            self._journal.add(rows)

    def add(self, trials: Sequence[TrialTimes]) -> None:
        """Write trials, and their new rows before them."""
        if trials:
            aggregator = self._target.aggregator
            rows = self._new_rows(aggregator.call_layout)
            records = map(_record, trials, [aggregator.call_layout is None] * len(trials))
            self._journal.add(*(rows, *records) if rows else records)

    def _new_rows(self, layout: Layout | None) -> Rows | None:
        """Return the rows that are not in the journal yet; None if there are none.

        Args:
            layout: The layout of all trials, if rows are single calls; else None.
        """
        target, settings = self._target, self._settings
        if layout is not None:
            if layout is self._layout:
                return None
            self._layout = layout
            phases = tuple(layout.index.phases)
            return Rows(layout.layers(), phases, target.link_table(), settings())
        replaces_all, self._layout = self._layout is not None, None
        index, begin = target.aggregator.index, (0, 0) if replaces_all else self._written
        self._written = len(index.rows), len(index.phases)
        if self._written == begin:
            return None
        layers = index.layers(target.aggregator.trials, begin[0])
        phases = tuple(index.phases[begin[1] :])
        return Rows(layers, phases, target.link_table(), settings(), replaces_all)

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """The recording of all trials, with the current rows and links.

        ``ended`` is the reason why the trials ended.
        """
        recording = self._journal.recording(conditions, ended)
        links = self._target.link_table()
        if not recording.by_link:
            return replace(recording, links=links) if recording.n_trials else recording
        layers = self._target.aggregator.layers()[: len(recording.layers)]
        return replace(recording, layers=layers, links=links)


def _record(trial: TrialTimes, by_link: bool) -> Trial:
    """Convert a trial to a record of the journal."""
    samples = {"self_ns": trial.rows_ns.tobytes(), "framework_ns": trial.phases_ns.tobytes()}
    if by_link:
        samples["calls"] = trial.calls.tobytes()
    if len(trial.arrived_ns):
        samples |= {"arrived_ns": trial.arrived_ns.tobytes(), "left_ns": trial.left_ns.tobytes()}
    if trial.number:
        samples["iteration"] = int64(trial.number)
    if trial.host_ns is not None and trial.gap_ns is not None:
        samples |= {"host_ns": trial.host_ns.tobytes(), "gap_ns": trial.gap_ns.tobytes()}
        samples |= {"launch_ns": int64(trial.launch_ns), "span_ns": int64(trial.span_ns)}
    return Trial(PROFILED, trial.start_ns, trial.wall_ns, samples)


def int64(number: int) -> bytes:
    """Encode a number as a sample of a trial; see :class:`Trial`."""
    return number.to_bytes(8, "little", signed=True)
