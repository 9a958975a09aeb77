"""Trials by link: what times those of a step, what a call costs, and what writes them down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import chainer
import numpy as np

from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.link_recorder import LinkRecorder
from chainer_profile.measure.link_rows import Iteration
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.windows import Step
from chainer_profile.record.journal import Journal, Rows
from chainer_profile.record.recording import Conditions, Recording, Settings

#: Calls, and rounds of so many steps of a recurrent network, by which the cost of a call is told.
_SHOWN, _ROUNDS, _STEPS = 500, 5, 20


class ByLink:
    """Times trials of a step, whatever they call, and writes them to a journal."""

    def __init__(
        self,
        step: Step,
        now_ns: NowNs,
        events: EventPool | None,
        journal: Journal,
        settings: Callable[[], Settings],
    ) -> None:
        self.entries = Entries(getattr(step, "around", _as_it_is))
        self.recorder = LinkRecorder(now_ns, step, self.entries, events)
        self.told = ToldRows(journal, self.recorder, settings)
        self._step = step

    def trial(self) -> Iteration:
        with self.recorder.recording():
            self.recorder.start()
            self._step()
            found = self.recorder.end()
        self.told.add(found)
        return found

    def place(self) -> str:
        """The layer that runs, in words; empty where none does."""
        row = self.recorder.open_row
        if row is None:
            return ""
        layer = self.recorder.rows.layers()[row]
        return f"in layer {layer.label} at {layer.path}"


def _as_it_is(entry: str, owner: Any, call: Callable[[], Any]) -> Any:
    return call()


@cache
def cost_of_a_call(now_ns: NowNs) -> tuple[float, float]:
    """Nanoseconds that are shown for a function that does nothing, and that a call really adds."""
    recorder = LinkRecorder(now_ns, LoopTrial([]), Entries(_as_it_is))
    function, inputs = _Function(), (np.empty(0),)
    with recorder.recording():
        hook = recorder.hook
        for _ in range(_SHOWN):
            hook.forward_preprocess(function, inputs)
            hook.forward_postprocess(function, inputs)
    stamps = recorder.rows.fold(recorder.log).stamps[-2 * _SHOWN :]
    others = chainer.get_function_hooks()
    hooks = dict(others)
    others.clear()  # they are to hear nothing of it
    try:
        with chainer.using_config("enable_backprop", True):
            added = [_added_ns(recorder, now_ns) for _ in range(_ROUNDS)]
    finally:
        others.update(hooks)
    return float(np.median(stamps[1::2] - stamps[::2])), float(np.median(added[1:]))


def _added_ns(recorder: LinkRecorder, now_ns: NowNs) -> float:
    def unrolled() -> int:
        start_ns = now_ns()
        x, weight = (chainer.Variable(np.ones((1, 1), np.float32)) for _ in range(2))
        y = x
        for _ in range(_STEPS):
            y = chainer.functions.relu(chainer.functions.linear(y, weight) + y)
        # No entry of Chainer's that something of ours stands at.
        chainer.grad([y], [x, weight], [chainer.Variable(np.ones((1, 1), np.float32))])
        return now_ns() - start_ns

    plain_ns = unrolled()
    with recorder.recording():
        recorder.start()
        recorded_ns = unrolled()
        start_ns = now_ns()
        found = recorder.end()
    recorded_ns += now_ns() - start_ns - found.paused_ns
    return max(0.0, recorded_ns - plain_ns) / max(1, int(found.calls.sum()))


class _Function:
    _impl_name = "Nothing"


class ToldRows:
    """Writes trials by link to a journal, and before each of them the rows that it found."""

    def __init__(
        self, journal: Journal, recorder: LinkRecorder, settings: Callable[[], Settings]
    ) -> None:
        self._journal, self._recorder, self._settings = journal, recorder, settings
        self._known = (0, 0)

    def add(self, one: Iteration) -> None:
        rows, known = self._recorder.rows, self._known
        self._known = len(rows), len(rows.phases)
        try:
            if self._known != known:
                layers, phases = rows.layers(known[0]), tuple(rows.phases[known[1] :])
                links, settings = self._recorder.links(), self._settings()
                self._journal.add_rows(Rows(layers, phases, links, settings))
        finally:
            parts = [one.rows_ns, one.calls, one.phases_ns, one.arrived_ns, one.left_ns]
            if one.device is not None:
                host, gaps, launch_ns, span_ns = one.device
                parts += [host, gaps, np.array([launch_ns, span_ns], np.int64)]
            counts = one.number, len(one.rows_ns), len(one.phases_ns), len(one.arrived_ns)
            more = b"".join(part.tobytes() for part in parts)
            self._journal.add_iteration(one.start_ns, one.wall_ns, counts, more)

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """All trials so far, with rows as they are by now, without those of no trial here."""
        found = self._journal.recording(conditions, ended)
        layers = self._recorder.rows.layers()[: len(found.layers)]
        return replace(found, layers=layers, links=self._recorder.links())
