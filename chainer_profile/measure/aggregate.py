"""Aggregation: from the logs of trials to the times and calls of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.attribution import Contexts
from chainer_profile.measure.call_sites import CallSite
from chainer_profile.measure.layout import Ints, Layout
from chainer_profile.measure.rows import Row, RowIndex
from chainer_profile.measure.spans import PAUSE, match_spans, without_pauses
from chainer_profile.record.recording import Layer

#: Spans in all layouts that are remembered. A span takes about 200 bytes.
_MAX_SPANS = 200_000
#: Contexts that are remembered.
_MAX_CONTEXTS = 100_000


@dataclass(frozen=True, eq=False)
class LoggedTrial:
    """The log of one trial.

    Attributes:
        event_ids: Its events, (events,).
        values: The host's clock at these events, and the device's if there is one,
            (clocks, events).
        forward_events: For each backward, the index of the begin event of its forward call. The
            index is out of range if that call is not in this log.
        number: The trial's number.
        wall_ns: Duration on the host, until the device is done.
        launch_ns: Duration until the host has launched all work; 0 without a device.
    """

    event_ids: Ints
    values: Ints
    forward_events: Ints
    number: int
    wall_ns: int
    launch_ns: int = 0


@dataclass(frozen=True, eq=False)
class TrialTimes:
    """Times and calls of one trial by row, for the rows that were known when it was added.

    Attributes:
        number: The trial's number.
        start_ns: Begin on the host's clock.
        wall_ns: Duration without pauses, and without the recorder's cost where that is subtracted.
        paused_ns: Duration of pauses.
        rows_ns: Self times of the rows; the device's times if there is a device.
        calls: Calls of the rows.
        phases_ns: Framework times of the phases.
        arrived_ns: For each row of communication, the begin of its first span; 0 without a span.
        left_ns: For each row of communication, the end of its last span; 0 without a span.
        host_ns: With a device, the host's self times.
        gap_ns: With a device, its time before each row, since the end of the previous row.
        launch_ns: With a device, the duration until all was launched.
        span_ns: With a device, the duration from its first event to its last.
        layout: The layout of its rows.
    """

    number: int
    start_ns: int
    wall_ns: int
    paused_ns: int
    rows_ns: Ints
    calls: Ints
    phases_ns: Ints
    arrived_ns: Ints
    left_ns: Ints
    layout: Layout
    host_ns: Ints | None = None
    gap_ns: Ints | None = None
    launch_ns: int = 0
    span_ns: int = 0


@dataclass
class Aggregator:
    """Adds up trials by row.

    Rows are single calls while all trials make the same calls, if ``single_calls`` asks for that;
    else, and from the first trial that differs on, a row is a function of a link in a phase.
    """

    sites: Sequence[CallSite]
    single_calls: bool = False
    network_is_phase: bool = False
    #: Rows by link.
    index: RowIndex = field(default_factory=RowIndex)
    #: The layout of all trials, where rows are single calls.
    call_layout: Layout | None = None
    #: The number of trials that were added.
    trials: int = 0

    def __post_init__(self) -> None:
        self._layouts: dict[tuple[bytes, bytes], Layout] = {}
        self._n_spans = 0  # in these layouts
        self._contexts: Contexts | None = None
        self._call_key: tuple[bytes, bytes] | None = None

    def add(self, trials: Iterable[LoggedTrial], call_ns: float = 0.0) -> list[TrialTimes]:
        """Add trials, and return the times of each.

        Args:
            trials: Logs of trials in their order.
            call_ns: Time that the recorder adds to a call; subtracted from the framework time.
        """
        prepared = [_prepare(trial) for trial in trials]
        if self.single_calls and prepared:
            self._check_calls(prepared)
        times: list[TrialTimes] = []
        for _, group in groupby(prepared, key=lambda trial: trial.key):
            times += self._add_equal_trials(list(group), call_ns)
        return times

    def layout(self, trial: LoggedTrial) -> Layout:
        """Return the layout of a trial, which may add rows, but does not count the trial."""
        return self._layout(_prepare(trial))

    def known_layout(self, trial: LoggedTrial) -> tuple[Layout, Ints]:
        """Return the layout of a trial and the host's clock at its events, and add no rows.

        The time of new rows has the owner ``outside``. Events of pauses are left out.

        Raises:
            ProfileError: Rows are single calls, and this trial makes others.
        """
        prepared = _prepare(trial)
        if self.call_layout is not None:
            if prepared.key != self._call_key:
                raise ProfileError("its trial made different calls from the earlier ones")
            return self.call_layout, prepared.original_ns
        self.index.grows = False
        try:
            return self._layout(prepared), prepared.original_ns
        finally:
            self.index.grows = True

    def layers(self) -> tuple[Layer, ...]:
        """Describe the current rows, with means over the trials."""
        if self.call_layout is not None:
            return self.call_layout.layers()
        return self.index.layers(self.trials)

    @property
    def _current_index(self) -> RowIndex:
        return self.index if self.call_layout is None else self.call_layout.index

    @property
    def rows(self) -> list[Row]:
        """The current rows; each has the sums of its call sites."""
        return self._current_index.rows

    @property
    def phases(self) -> list[str]:
        return self._current_index.phases

    def forget(self) -> None:
        """Set the number of trials and the sums of all rows to 0; the rows stay."""
        self.trials = 0
        for row in self.index.rows:
            row.sums.clear()
        if self.call_layout is not None:
            for row in self.call_layout.index.rows:
                row.sums.clear()

    # -- private

    def _check_calls(self, trials: list[_Prepared]) -> None:
        """Use rows by link from now on if any of these trials makes other calls."""
        if self._call_key is None:
            self._call_key = trials[0].key
            self.call_layout = self._new_layout(trials[0], RowIndex(), single_calls=True)
        if any(trial.key != self._call_key for trial in trials):
            self.single_calls = False
            layout, self.call_layout = self.call_layout, None
            assert layout is not None
            for row in layout.index.rows:
                number = self.index.number(row.key, type(row)(*row.key))
                for sums in row.sums.values():
                    assert number is not None
                    total = self.index.rows[number].sums_of(sums.site)
                    total.calls += sums.calls
                    total.self_ns += sums.self_ns
            for phase in layout.index.phases:
                self.index.phase_number(phase)

    def _layout(self, trial: _Prepared) -> Layout:
        if self.single_calls:
            if self.call_layout is not None and trial.key == self._call_key:
                return self.call_layout
            return self._new_layout(trial, RowIndex(), single_calls=True)
        layout = self._layouts.get(trial.key)
        if layout is None:
            layout = self._new_layout(trial, self.index, single_calls=False)
            if self.index.grows:
                self._remember(trial, layout)
        return layout

    def _remember(self, trial: _Prepared, layout: Layout) -> None:
        """Keep a layout for the next trials with the same events."""
        n_spans = len(layout.contexts)
        if self._n_spans + n_spans > _MAX_SPANS:
            self._layouts.clear()
            self._n_spans = 0
        self._layouts[trial.key] = layout
        self._n_spans += n_spans

    def _new_layout(self, trial: _Prepared, index: RowIndex, single_calls: bool) -> Layout:
        spans = match_spans(trial.event_ids.tolist())
        contexts = self._contexts_by_link()
        if single_calls or not index.grows:
            contexts = self._new_contexts(index, single_calls)
        return Layout(spans, contexts.of_spans(spans, trial.forward_events), index)

    def _contexts_by_link(self) -> Contexts:
        """The contexts so far, of rows by link."""
        known = self._contexts
        if known is None or known.index is not self.index or len(known) > _MAX_CONTEXTS:
            self._contexts = known = self._new_contexts(self.index, single_calls=False)
        return known

    def _new_contexts(self, index: RowIndex, single_calls: bool) -> Contexts:
        return Contexts(
            self.sites,
            index,
            single_calls=single_calls,
            network_is_phase=self.network_is_phase,
        )

    def _add_equal_trials(self, trials: list[_Prepared], call_ns: float) -> list[TrialTimes]:
        """Add trials with equal events."""
        layout = self._layout(trials[0])
        index = layout.index
        n_rows, n_phases = len(index.rows), len(index.phases)
        values = np.stack([trial.values for trial in trials], axis=1)  # (clocks, trials, events)
        cell_sums = [layout.sums(clock) for clock in values]
        times = [layout.by_owner(sums, n_rows, n_phases) for sums in cell_sums]
        host_ns, rows_ns = times[0][0], times[-1][0]
        phases_ns = times[-1][1]
        self._add_to_rows(layout, cell_sums[-1].sum(axis=0), len(trials))
        calls = layout.by_owner(layout.cell_calls[None], n_rows, n_phases)[0][0]
        added_ns = _recorder_cost(phases_ns, len(layout.spans.event_ids) - 1, call_ns)
        phases_ns = phases_ns - added_ns
        on_device = len(values) > 1
        gaps = layout.gaps(values[-1], n_rows) if on_device else None
        collectives = layout.collectives()
        result = []
        for i, trial in enumerate(trials):
            clock = trial.original_ns
            arrived, left = (
                np.array([clock[pair[n]] if pair[n] >= 0 else 0 for pair in collectives], np.int64)
                for n in (0, 1)
            )
            log = trial.log
            result.append(
                TrialTimes(
                    number=log.number,
                    start_ns=int(clock[0]),
                    wall_ns=log.wall_ns - trial.paused_ns - int(added_ns[i].sum()),
                    paused_ns=trial.paused_ns,
                    rows_ns=rows_ns[i],
                    calls=calls,
                    phases_ns=phases_ns[i],
                    arrived_ns=arrived,
                    left_ns=left,
                    layout=layout,
                    host_ns=host_ns[i] if on_device else None,
                    gap_ns=None if gaps is None else gaps[i],
                    launch_ns=log.launch_ns - trial.paused_ns if on_device else 0,
                    span_ns=int(values[-1, i, -1] - values[-1, i, 0]) if on_device else 0,
                )
            )
        self.trials += len(trials)
        return result

    def _add_to_rows(self, layout: Layout, cell_ns: Ints, n_trials: int) -> None:
        """Add the time of each cell, and its calls in these trials, to the sums of its row."""
        cells = zip(
            layout.cell_owners.tolist(),
            layout.cell_sites,
            cell_ns.tolist(),
            layout.cell_calls.tolist(),
            strict=True,
        )
        for owner, site, self_ns, calls in cells:
            if owner >= 0:
                sums = layout.index.rows[owner].sums_of(site)
                sums.calls += calls * n_trials
                sums.self_ns += self_ns


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A trial without its pauses.

    Attributes:
        key: Equal for trials with the same layout.
        forward_events: As in :class:`LoggedTrial`, but -1 for every call that is not in the log.
        values: Clocks that stop during pauses, (clocks, events).
        original_ns: The host's clock, which does not stop during pauses.
    """

    log: LoggedTrial
    key: tuple[bytes, bytes]
    event_ids: Ints
    forward_events: Ints
    values: Ints
    original_ns: Ints
    paused_ns: int


def _prepare(trial: LoggedTrial) -> _Prepared:
    """Remove the pauses of a trial from its events and clocks."""
    event_ids, values, paused = without_pauses(trial.event_ids, trial.values)
    original_ns, forward_events = trial.values[0], trial.forward_events
    if len(event_ids) < len(trial.event_ids):
        is_outside = (trial.event_ids != PAUSE) & (trial.event_ids != ~PAUSE)
        original_ns = original_ns[is_outside]
        new_index = np.cumsum(is_outside) - 1
        is_in_log = (forward_events >= 0) & (forward_events < len(is_outside))
        forward_events = np.where(is_in_log, new_index[np.where(is_in_log, forward_events, 0)], -1)
    else:
        outside = (forward_events < 0) | (forward_events >= len(event_ids))
        if outside.any():
            forward_events = np.where(outside, -1, forward_events)
    key = event_ids.tobytes(), forward_events.tobytes()
    paused_ns = int(paused[0])
    return _Prepared(trial, key, event_ids, forward_events, values, original_ns, paused_ns)


def _recorder_cost(phases_ns: Ints, n_spans: int, call_ns: float) -> Ints:
    """The time that recording added to the phases of each trial, (trials, phases).

    Rows contain hardly any of it, because the clock is read next to the functions. The time is
    divided among the phases in proportion to their framework times.
    """
    framework_ns = phases_ns.clip(min=0)
    total_ns = np.maximum(1, framework_ns.sum(axis=1))
    part = np.minimum(1.0, call_ns * n_spans / total_ns)
    cost_ns: Ints = (framework_ns * part[:, None]).astype(np.int64)
    return cost_ns
