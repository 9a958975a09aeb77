"""Trials that repeat calls whose order is known: they note clocks, and what shows the order holds.

A call notes its class, its link, a key (the identity of its last input, which is a parameter where
it has any, added to the size of its first), and the clock when it begins and, as its complement,
when it ends. This takes a third of what the tape adds to a trial. Nothing is kept of a trial that
made other calls: those behind it are the tape's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import compress, pairwise
from threading import get_ident
from typing import Any

import numpy as np
from chainer import FunctionHook
from numpy.typing import NDArray

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.events import EventPool, TimedTrial, timed_trial
from chainer_profile.measure.hooks import defines_call, hook_of, wrap_link_calls
from chainer_profile.measure.order import Order, last_row
from chainer_profile.measure.row import BACKWARD, CALL, INNER, SUM
from chainer_profile.measure.rows import Iteration, Taped
from chainer_profile.measure.stretch import Stretch
from chainer_profile.measure.tape import MANY_EVENTS, Tape
from chainer_profile.measure.windows import Enter, Leave, Mark, Trial
from chainer_profile.record.recording import Layer

#: What a noted value is.
_CLASS, _KEY, _CLOCK = "class or link", "key", "clock"


class Repeats:
    """Trials within ``recording()``, each from ``start()`` to ``stop()``; see :class:`Tape`."""

    def __init__(self, tape: Tape, order: Order, now_ns: NowNs, trial: Trial) -> None:
        self.order = order
        self._tape, self._now_ns, self._trial = tape, now_ns, trial
        #: Trials that made other calls, of which nothing is kept.
        self.unlike = 0
        self._expected = _Expected(order, tape)
        # What was noted, the links that were called, the trials, and where each ends in both.
        self._values: list[Any] = []
        self._called: list[int] = []
        self._timed: list[TimedTrial] = []
        self._ends: list[tuple[int, int]] = []
        self._begin = self._start_ns = 0
        # The last exception that left a window with a mark, and the values before.
        self._left_by = 0, 0
        self._events: EventPool | None = tape.events
        self._hook, self._enter, self._leave, self._through = self._make()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within this, windows are noted."""
        with Replacements() as replacements:
            wrap_link_calls(replacements, self._through)
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
        self._begin, self._left_by = len(self._values), (0, 0)
        if self._events is not None:
            self._events.clear()
            self._events.record()
        self._start_ns = self._now_ns()
        self._values.append(self._start_ns)

    def stop(self) -> None:
        """It has ended."""
        end_ns, now_ns = self._now_ns(), self._now_ns
        self._values.append(~end_ns)
        n_events = len(self.order.codes)
        self._timed.append(timed_trial(self._events, self._start_ns, end_ns, n_events, now_ns))
        self._ends.append((len(self._values), len(self._called)))

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
        trials, length = len(self._ends), self._expected.length
        return len(self._values) != trials * length or trials * len(self.order.codes) >= MANY_EVENTS

    def fold(self) -> list[Iteration]:
        """The trials since the last time, without those that made other calls."""
        kept: list[TimedTrial] = []
        stamps: list[NDArray[np.int64]] = []
        called: Counter[int] = Counter()
        for timed, (begin, end) in zip(self._timed, pairwise([(0, 0), *self._ends]), strict=True):
            of_trial = self._expected.stamps(self._values[begin[0] : end[0]])
            if of_trial is None:
                self.unlike += 1
                continue
            kept.append(timed)
            stamps.append(of_trial)
            called.update(self._called[begin[1] : end[1]])
        # Behind them there may be values of a trial that did not end.
        for noted in (self._values, self._called, self._ends, self._timed):
            noted.clear()
        if not kept:
            return []
        for link, calls in called.items():
            if (path := self._tape.paths.by_link.get(link)) is not None:
                self._tape.paths.calls[path] += calls
        length, rows = len(self.order.codes), self._tape.rows
        ends = np.arange(1, len(kept) + 1) * length
        device = [trial.device for trial in kept if trial.device is not None]
        stretch = Stretch(
            np.tile(self.order.codes, len(kept)),
            np.concatenate(stamps),
            ends,
            np.concatenate(device) if device else None,
        )
        return rows.fold(stretch, [Taped(0, 0, trial, rows) for trial in kept])

    def failed(self, error: BaseException) -> tuple[Layer | None, bool]:
        """The layer that an exception left, or else the last one before; and whether it left it."""
        identity, end = self._left_by
        values = self._values[self._begin : end if identity == id(error) else None]
        count = self._expected.count(values)
        return last_row(self.order.layers, self.order.columns[:count])

    def _make(self) -> tuple[FunctionHook, Enter, Leave, Callable[[type, Any], Any]]:
        """What notes windows: it runs in every one of them, and takes as few steps as may be."""
        note, note_all, now_ns = self._values.append, self._values.extend, self._now_ns
        record = None if self._events is None else self._events.record
        repeats, thread, note_link = self, get_ident(), self._called.append
        running = 0  # identity of the innermost link that is called

        def forward_preprocess(self: Any, function: Any, in_data: Any) -> None:
            try:
                key = id(in_data[-1]) + in_data[0].size
            except (IndexError, AttributeError):  # no inputs, or no array
                key = 0
            if record is not None:
                record()
            note_all((function.__class__, running, key, now_ns()))

        def forward_postprocess(self: Any, function: Any, in_data: Any) -> None:
            note(~now_ns())
            if record is not None:
                record()

        def backward_preprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            if record is not None:
                record()
            note_all((function.__class__, now_ns()))

        def backward_postprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            note(~now_ns())
            if record is not None:
                record()

        def enter(mark: Mark) -> None:
            if get_ident() == thread:
                if record is not None:
                    record()
                note(now_ns())

        def leave() -> None:
            if get_ident() == thread:
                note(~now_ns())
                if record is not None:
                    record()
                error = sys.exc_info()[1]
                if error is not None and id(error) != repeats._left_by[0]:
                    repeats._left_by = id(error), len(repeats._values) - 1

        def through(kind: type, method: Any) -> Any:
            @wraps(method)
            def through_link(link: Any, *args: Any, **kwargs: Any) -> Any:
                nonlocal running
                if get_ident() != thread:
                    return method(link, *args, **kwargs)
                around, own = running, id(link)
                # A class's own __call__ may call that of the class before it.
                if own != around or defines_call(type(link)) is kind:
                    note_link(own)
                running = own
                try:
                    return method(link, *args, **kwargs)
                finally:
                    running = around

            return through_link

        hook = hook_of(
            forward_preprocess, forward_postprocess, backward_preprocess, backward_postprocess
        )
        return hook, enter, leave, through


class _Expected:
    """What trials note that make the calls of an order."""

    def __init__(self, order: Order, tape: Tape) -> None:
        calls, backwards = iter(order.first.calls), iter(order.first.backwards)
        classes: list[type | int | None] = []
        keys: list[int] = []
        self.parameters: set[int] = set()
        kinds: list[str] = []  # what each value is
        for code in order.codes.tolist():
            kind = tape.rows.entries[code].kind if code >= 0 else ""
            if kind == BACKWARD:
                kinds.append(_CLASS)
                classes.append(next(backwards))
            elif kind == CALL:
                kinds += [_CLASS, _CLASS, _KEY]
                called, place, parameter, size = next(calls)
                classes += [called, tape.paths.link_at(place)]
                keys.append(parameter + size)
                self.parameters.add(parameter)
            elif kind in (INNER, SUM):  # which follows from the backward that calls it
                kinds += [_CLASS, _CLASS, _KEY]
                classes += [None, None]
                keys.append(0)
            kinds.append(_CLOCK)
        self.parameters.discard(0)  # of calls without any
        self.length = len(kinds)
        self._places = {kind: [other == kind for other in kinds] for kind in set(kinds)}
        self._enters = order.codes >= 0
        # Those of all functions are known from the first trial on that made these calls.
        self._classes: list[Any] = classes
        self._checked = np.flatnonzero(keys)
        self._keys = np.array(keys, np.int64)[self._checked]

    def _of(self, kind: str, values: list[Any]) -> compress[Any]:
        return compress(values, self._places.get(kind, ()))

    def stamps(self, values: list[Any]) -> NDArray[np.int64] | None:
        """The clocks that a trial noted which made these calls; None if it made others."""
        if len(values) != self.length:
            return None
        classes = list(self._of(_CLASS, values))
        if classes != self._classes:
            if any(
                expected not in (None, noted)
                for expected, noted in zip(self._classes, classes, strict=True)
            ):
                return None
            self._classes = classes
        try:
            keys = np.fromiter(self._of(_KEY, values), np.int64)
            stamps = np.fromiter(self._of(_CLOCK, values), np.int64)
        except TypeError:  # other kinds of values in their places
            return None
        enters = stamps >= 0
        if (enters != self._enters).any() or (keys[self._checked] != self._keys).any():
            return None
        return np.where(enters, stamps, ~stamps)

    def count(self, values: list[Any]) -> int:
        """The events in the values of a trial that did not end; 0 if it made other calls."""
        noted = list(self._of(_CLOCK, values))
        expected = self._enters[: len(noted)].tolist()
        alike = all(isinstance(value, int) for value in noted)
        return len(noted) if alike and [value >= 0 for value in noted] == expected else 0
