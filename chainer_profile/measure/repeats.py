"""Trials that repeat calls whose order is known: they note clocks, and what shows the order holds.

A call notes its class, the identity of its last input, which is a parameter where it has any, added
to the size of its first, and the clock when it begins and, as its complement, when it ends. This
takes a third of what the tape adds to a trial. Nothing is kept of a trial that made other calls:
those behind it are the tape's.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np
from chainer import FunctionHook
from numpy.typing import NDArray

from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.events import EventPool, TimedTrial
from chainer_profile.measure.hooks import hook_of
from chainer_profile.measure.order import Order
from chainer_profile.measure.row import BACKWARD, CALL, INNER, SUM
from chainer_profile.measure.rows import Iteration, Taped
from chainer_profile.measure.stretch import Stretch
from chainer_profile.measure.tape import Tape
from chainer_profile.measure.windows import Enter, Leave, Mark, Trial
from chainer_profile.record.recording import Layer

#: Trials are folded together that have so many events.
_MANY_EVENTS = 8000


class Repeats:
    """Trials within ``recording()``, each from ``start()`` to ``stop()``; see :class:`Tape`."""

    def __init__(
        self, tape: Tape, order: Order, link_calls: dict[str, int], now_ns: NowNs, trial: Trial
    ) -> None:
        self.order = order
        self._tape, self._link_calls, self._now_ns, self._trial = tape, link_calls, now_ns, trial
        #: Trials that made other calls, of which nothing is kept.
        self.unlike = 0
        self._expected = _Expected(order, tape)
        self._stamps, self._inputs = array("q"), array("q")
        self._classes: list[type] = []
        self._timed: list[TimedTrial] = []
        # At the end of each trial how many there are of all three.
        self._noted: list[tuple[int, int, int]] = []
        self._begin = self._start_ns = 0
        # The last exception that left a window with a mark, and the events before.
        self._left_by = 0, 0
        self._events: EventPool | None = tape.events
        self._hook, self._enter, self._leave = self._make()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within this, windows are noted."""
        with self._trial.timed(self._enter, self._leave), self._hook:
            yield

    @property
    def holds(self) -> bool:
        """Whether trials may repeat the calls."""
        # Where a parameter has another array than when they were noted, all would differ.
        paths = self._tape.paths
        paths.know_parameters()
        return not self.unlike and self._expected.parameters <= paths.weights.keys()

    def start(self) -> None:
        """A trial begins."""
        self._begin, self._left_by = len(self._stamps), (0, 0)
        if self._events is not None:
            self._events.clear()
            self._events.record()
        self._start_ns = self._now_ns()
        self._stamps.append(self._start_ns)

    def stop(self) -> None:
        """It has ended."""
        events, launch_ns, device = self._events, 0, None
        end_ns = self._now_ns()
        self._stamps.append(~end_ns)
        if events is not None:
            events.record()
            launch_ns = end_ns - self._start_ns
            events.wait()
            end_ns = self._now_ns()
            device = events.times_ns()
        wall_ns, end = end_ns - self._start_ns, len(self._stamps)
        self._timed.append(TimedTrial(self._start_ns, wall_ns, end, launch_ns, device))
        self._noted.append((end, len(self._classes), len(self._inputs)))

    @property
    def last(self) -> TimedTrial:
        """The trial that ended last and is not folded."""
        return self._timed[-1]

    @property
    def begun(self) -> bool:
        """Whether the device has begun with the trial that runs."""
        return self._events is not None and self._events.begun

    @property
    def is_long(self) -> bool:
        """Whether trials are to be folded behind this one."""
        unlike = len(self._stamps) != len(self._noted) * len(self.order.codes)
        return unlike or len(self._stamps) >= _MANY_EVENTS

    def fold(self) -> list[Iteration]:
        """The trials since the last time, without those that made other calls."""
        length, rows = len(self.order.codes), self._tape.rows
        if not self._timed:
            return []
        # Behind these there may be what a trial noted that did not end.
        n_stamps, n_classes, n_inputs = self._noted[-1]
        alike, stamps = self._expected.alike(
            self._noted,
            np.array(self._stamps[:n_stamps], np.int64),
            self._classes[:n_classes],
            np.array(self._inputs[:n_inputs], np.int64),
        )
        timed = [self._timed[place] for place in alike]
        self.unlike += len(self._timed) - len(timed)
        del self._stamps[:], self._inputs[:]
        self._classes.clear()
        self._timed, self._noted = [], []
        if not timed:
            return []
        begins = np.arange(len(timed)) * length
        on_device = [trial.device for trial in timed if trial.device is not None]
        stretch = Stretch(
            np.tile(self.order.codes, len(timed)),
            np.where(stamps < 0, ~stamps, stamps),
            begins + length,
            np.concatenate(on_device) if on_device else None,
        )
        for path, calls in self._link_calls.items():
            self._tape.paths.calls[path] += calls * len(timed)
        taped = [
            Taped(0, at, trial, rows) for at, trial in zip(begins.tolist(), timed, strict=True)
        ]
        return rows.fold_ordered(stretch, taped, np.zeros(len(timed), np.int64))

    def failed(self, error: BaseException) -> tuple[Layer | None, bool]:
        """The layer that an exception left, or else the last one before; and whether it left it."""
        identity, count = self._left_by
        if identity != id(error):
            count = len(self._stamps)
        enters = np.array(self._stamps[self._begin : count], np.int64) >= 0
        if not np.array_equal(enters, self.order.codes[: len(enters)] >= 0):
            return None, False
        columns, layers = self.order.columns[: len(enters)], self.order.layers
        if columns[-1] < len(layers):
            return layers[columns[-1]], True
        rows = columns[columns < len(layers)]
        return (layers[rows[-1]] if len(rows) else None), False

    def _make(self) -> tuple[FunctionHook, Enter, Leave]:
        """What notes windows: it runs in every one of them, and takes as few steps as may be."""
        stamp, of_input = self._stamps.append, self._inputs.append
        of_class, now_ns = self._classes.append, self._now_ns
        record = None if self._events is None else self._events.record
        repeats, thread = self, get_ident()

        def forward_preprocess(self: Any, function: Any, in_data: Any) -> None:
            of_class(function.__class__)
            try:
                of_input(id(in_data[-1]) + in_data[0].size)
            except (IndexError, AttributeError):  # no inputs, or no array
                of_input(0)
            if record is not None:
                record()
            stamp(now_ns())

        def forward_postprocess(self: Any, function: Any, in_data: Any) -> None:
            stamp(~now_ns())
            if record is not None:
                record()

        def backward_preprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            of_class(function.__class__)
            if record is not None:
                record()
            stamp(now_ns())

        def backward_postprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            stamp(~now_ns())
            if record is not None:
                record()

        def enter(mark: Mark) -> None:
            if get_ident() == thread:
                if record is not None:
                    record()
                stamp(now_ns())

        def leave() -> None:
            if get_ident() == thread:
                stamp(~now_ns())
                if record is not None:
                    record()
                error = sys.exc_info()[1]
                if error is not None and id(error) != repeats._left_by[0]:
                    repeats._left_by = id(error), len(repeats._stamps) - 1

        hook = hook_of(
            forward_preprocess, forward_postprocess, backward_preprocess, backward_postprocess
        )
        return hook, enter, leave


class _Expected:
    """The classes and the parameters of the functions of an order."""

    def __init__(self, order: Order, tape: Tape) -> None:
        calls, backwards = iter(order.first.calls), iter(order.first.backwards)
        classes: list[type | None] = []
        inputs: list[int] = []
        self.parameters: set[int] = set()
        entries = tape.rows.entries
        for code in order.codes.tolist():
            kind = entries[code].kind if code >= 0 else ""
            if kind == BACKWARD:
                classes.append(next(backwards))
            elif kind == CALL:
                called, parameter, size = next(calls)
                classes.append(called)
                inputs.append(parameter + size)
                self.parameters.add(parameter)
            elif kind in (INNER, SUM):  # which follows from the backward that calls it
                classes.append(None)
                inputs.append(0)
        self._lengths = np.array([len(order.codes), len(classes), len(inputs)])
        self._enters = order.codes >= 0
        self._checked = np.array([kind is not None for kind in classes], bool)
        self._classes = _objects(classes)[self._checked]
        # Those of all functions of a trial that made these calls, to hold others against at once.
        self._seen: list[type] = []
        self._params = np.flatnonzero(inputs)
        self.parameters.discard(0)  # of calls without any
        self._param_ids = np.array(inputs, np.int64)[self._params]

    def alike(
        self,
        noted: list[tuple[int, int, int]],
        stamps: NDArray[np.int64],
        classes: list[type],
        inputs: NDArray[np.int64],
    ) -> tuple[list[int], NDArray[np.int64]]:
        """Which trials made these calls, by what all of them noted; and the stamps of these."""
        lengths = np.diff(np.array(noted, np.int64), axis=0, prepend=np.zeros((1, 3), np.int64))
        whole = np.flatnonzero((lengths == self._lengths).all(axis=1))
        if len(whole) == len(noted) and classes == self._seen * len(noted):
            of_stamps, of_inputs = stamps.reshape(len(noted), -1), inputs.reshape(len(noted), -1)
            same = np.ones(len(noted), bool)
        else:
            begins = np.cumsum(lengths, axis=0) - lengths
            of_stamps, of_classes, of_inputs = (
                values[begins[whole, kind, None] + np.arange(self._lengths[kind])]
                for kind, values in enumerate((stamps, _objects(classes), inputs))
            )
            same = (of_classes[:, self._checked] == self._classes).all(axis=1)
            self._seen = of_classes[same.argmax()].tolist() if same.any() else []
        same &= ((of_stamps >= 0) == self._enters).all(axis=1)
        same &= (of_inputs[:, self._params] == self._param_ids).all(axis=1)
        return whole[same].tolist(), of_stamps[same].ravel()


def _objects(values: list[Any]) -> NDArray[np.object_]:
    array_of = np.empty(len(values), object)
    array_of[:] = values
    return array_of
