"""Trials by link: what times those of a step, and what writes such trials to a journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.measure.entries import Entries
from chainer_profile.measure.link_recorder import LinkRecorder
from chainer_profile.record.journal import Rows

if TYPE_CHECKING:
    from chainer_profile.measure.clock import NowNs
    from chainer_profile.measure.events import EventPool
    from chainer_profile.measure.link_rows import Iteration
    from chainer_profile.measure.windows import Step
    from chainer_profile.record.journal import Journal
    from chainer_profile.record.recording import Conditions, Recording, Settings


class ByLink:
    """Times trials of a step, whatever they call."""

    def __init__(self, step: Step, now_ns: NowNs, events: EventPool | None = None) -> None:
        self.entries = Entries(getattr(step, "around", _as_it_is))
        self.recorder = LinkRecorder(now_ns, step, self.entries, events)
        self._step = step

    def trial(self) -> Iteration:
        """Run one, within the entries."""
        with self.recorder.recording():
            self.recorder.start()
            self._step()
            return self.recorder.end()

    def place(self) -> str:
        """The layer that runs, in words; empty where none does."""
        row = self.recorder.open_row
        if row is None:
            return ""
        layer = self.recorder.rows.layers()[row]
        return f"in layer {layer.label} at {layer.path}"


def _as_it_is(entry: str, owner: Any, call: Callable[[], Any]) -> Any:
    return call()


class ToldRows:
    """Writes trials by link to a journal, and before each of them the rows that it found."""

    def __init__(
        self, journal: Journal, recorder: LinkRecorder, settings: Callable[[], Settings]
    ) -> None:
        self._journal, self._recorder, self._settings = journal, recorder, settings
        self._known = (0, 0)

    def add(self, one: Iteration) -> None:
        """Write a trial."""
        try:
            self._tell()
        finally:
            parts = [one.rows_ns, one.calls, one.phases_ns, one.arrived_ns, one.left_ns]
            if one.device is not None:
                host, gaps, launch_ns, span_ns = one.device
                parts += [host, gaps, np.array([launch_ns, span_ns], np.int64)]
            counts = one.number, len(one.rows_ns), len(one.phases_ns), len(one.arrived_ns)
            more = b"".join(part.tobytes() for part in parts)
            self._journal.add_iteration(one.start_ns, one.wall_ns, counts, more)

    def _tell(self) -> None:
        rows, known = self._recorder.rows, self._known
        self._known = len(rows), len(rows.phases)
        if self._known != known:
            layers, phases = rows.layers(known[0]), tuple(rows.phases[known[1] :])
            self._journal.add_rows(Rows(layers, phases, self._recorder.links(), self._settings()))

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """All trials so far, with rows as they are by now, without those of no trial here."""
        found = self._journal.recording(conditions, ended)
        layers = self._recorder.rows.layers()[: len(found.layers)]
        return replace(found, layers=layers, links=self._recorder.links())
