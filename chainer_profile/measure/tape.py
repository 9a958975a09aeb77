"""The tape: every call of iterations by link and function, whatever they call.

On entering a window the number of its entry and the clock are noted, on leaving it the clock and
the complement of the number, and nothing else. An entry is a row with the shapes of its inputs.
NumPy adds up whole iterations at once: the time between two events belongs to the innermost window
that is open. Calls of links are no events: they say where functions are called. What is looked up
of a new call is a window too, whose time is not the iteration's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import get_ident
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import numpy as np
from chainer import FunctionHook
from chainer.function import FunctionAdapter
from numpy.typing import NDArray

from chainer_profile.measure.call_history import History
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool, TimedTrial, timed_trial
from chainer_profile.measure.facts import sums_gradients
from chainer_profile.measure.hooks import hook_of
from chainer_profile.measure.lookup import SUMS, Lookup
from chainer_profile.measure.order import FirstIteration
from chainer_profile.measure.owners import Paths, Place
from chainer_profile.measure.rows import Iteration, Rows, Sums, Taped
from chainer_profile.measure.stretch import OUTSIDE, PAUSED, Stretch, mended
from chainer_profile.measure.windows import FORWARD, Enter, Leave, Mark, Trial
from chainer_profile.record.recording import Layer, LinkCalls

#: Iterations are folded together that have so many events, or take so long.
MANY_EVENTS, GROUP_NS = 8000, 100_000_000
#: A tape with so many events within one iteration is folded there and then: two integers each.
_MOST_EVENTS = 200_000


class Log:
    """A tape's list of pairs; a pass has something else in its place, and reads no clock."""

    def __init__(self, now_ns: NowNs) -> None:
        self.now_ns = now_ns
        self.numbers: list[int] = []
        self.note = self.numbers.extend

    def __len__(self) -> int:
        """Events."""
        return len(self.numbers) // 2

    def events(
        self, begin: int = 0, end: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Codes of events, of which those of leaving are negative, and when they were."""
        part = self.numbers[2 * begin : None if end is None else 2 * end]
        first, second = np.array(part, np.int64).reshape(-1, 2).T
        leaving = second < 0
        return np.where(leaving, second, first), np.where(leaving, first, second)

    def cut(self, begin: int = 0) -> None:
        del self.numbers[2 * begin :]


class _Callbacks(NamedTuple):
    """What notes windows, and finds all that it needs in closure cells."""

    begin: Callable[[], None]
    enter: Enter
    leave: Leave
    hook: FunctionHook


class Tape:
    """Notes iterations within ``recording()``, each from ``start()`` to ``stop()``.

    :meth:`fold` gives them by row. Something that raises ends where it raised: :class:`Entries`
    tells of it.
    """

    #: Trials that it does not keep: it takes all, whatever they call.
    unlike = 0

    def __init__(
        self,
        now_ns: NowNs,
        trial: Trial,
        entries: Entries,
        events: EventPool | None = None,
        single_calls: bool = False,
        history: History | None = None,
    ) -> None:
        self._history = history
        # Whether functions that are called in backwards are noted, too.
        self.all_functions = history is not None or single_calls
        #: What looking up took within the iteration that runs or was the last, and how often.
        self.paused_ns = self._n_pauses = 0
        self._now_ns, self._trial, self.events = now_ns, trial, events
        self._entries, self._running = entries, entries.running
        self._list = Log(now_ns)
        self._lookup = Lookup(
            Rows(single_calls), Paths(trial.roots), self._running, self._paused, self._open_row
        )
        # Calls of links that are not folded.
        self._called: list[Place] = []
        # Iterations that are not folded, where the one that runs begins, and what was folded of it.
        self._taped: list[Taped] = []
        self._begin = self._start_ns = self._begin_called = 0
        self._before: Sums | None = None
        #: Events of the longest iteration so far.
        self.most_events = 0
        self._log: Any = self._list
        # The last exception that left a window, and the events before it left the innermost one.
        self._left_by = 0, 0
        self._record = None if events is None else events.record
        self._of_list = self._make(self._list, self._record)
        self._now = self._of_list
        # What times all that is no function, while windows are noted.
        self._timing: AbstractContextManager[None] | None = None

    @property
    def rows(self) -> Rows:
        return self._lookup.rows

    @property
    def paths(self) -> Paths:
        return self._lookup.paths

    # -- iterations

    @contextmanager
    def recording(self, log: Any = None, hooked: bool = False) -> Iterator[None]:
        """Within this, windows are noted, as between :meth:`attach` and :meth:`detach`."""
        try:
            self.attach(log, hooked)
            yield
        finally:
            self.detach()

    def attach(self, log: Any = None, hooked: bool = False) -> None:
        """Note windows from now on; on request in another log, which reads something else.

        ``hooked``: what tells of functions is registered already.
        """
        self.paths.renew(self._trial.roots)
        self.paths.know_parameters()
        now = self._now = self._of_list if log is None else self._make(log)
        self._record = None if self.events is None or log is not None else self.events.record
        self._log = self._list if log is None else log
        # Where something else is read in the clock's place no rows are found.
        self.rows.grow = log is None
        now.begin()
        self._running.adopt = self._lookup.adopt
        self._running.link_calls = self._called if log is None else []
        self._timing = self._trial.timed(now.enter, now.leave)
        self._timing.__enter__()
        self._entries.tell(None if hooked else now.hook, self._raised, self._raised_backward)

    def detach(self) -> None:
        """Note no more."""
        timing, self._timing = self._timing, None
        if timing is not None:
            self._entries.tell_nobody()
            timing.__exit__(None, None, None)
            self._now, self._log = self._of_list, self._list

    def start(self, of: tuple[Rows, Paths] | None = None) -> None:
        """An iteration begins, maybe of other rows; one that did not end is none."""
        events, log = self.events, self._list
        if self._history is None:
            self._begin = self._taped[-1].timed.end if self._taped else 0
            log.cut(self._begin)
        else:
            self._begin = len(log)
        if of is not None:
            self.use(*of)
        del self._called[self._begin_called :]
        self._before = None
        self._left_by = 0, 0
        self.paused_ns = self._n_pauses = 0
        if self.rows.is_new and not self._taped:
            self._lookup.first = FirstIteration()
        if events is not None:
            events.clear()
            events.record()
        self._start_ns = start_ns = self._now_ns()
        log.note((OUTSIDE, start_ns))

    def stop(self, number: int = 0) -> int:
        """It has ended; gives its number of windows."""
        log, end_ns = self._list, self._now_ns()
        log.note((end_ns, ~OUTSIDE))
        timed = timed_trial(self.events, self._start_ns, end_ns, len(log), self._now_ns)
        first, self._lookup.first = self._lookup.first, None
        n_events = timed.end - self._begin
        self.most_events = max(self.most_events, n_events)
        self._taped.append(Taped(number, self._begin, timed, self.rows, self._before, first))
        self._begin_called = len(self._called)
        folded = 0 if self._before is None else int(self._before.calls.sum())
        return folded + n_events // 2 - 1 - self._n_pauses

    def abandon(self) -> None:
        """The iteration that runs is none: its calls are in the history alone."""
        self._running.backwards.clear()
        self._list.note((self._now_ns(), ~OUTSIDE))
        self._lookup.first = None
        del self._called[self._begin_called :]

    @property
    def last(self) -> TimedTrial:
        """The iteration that ended last and is not folded."""
        return self._taped[-1].timed

    @property
    def begun(self) -> bool:
        """Whether the device has begun with the iteration that runs."""
        return self.events is not None and self.events.begun

    @property
    def hook(self) -> FunctionHook:
        """What tells of functions within ``recording()``."""
        return self._now.hook

    def stamps(self) -> NDArray[np.int64]:
        """The clock reads that are not folded."""
        return self._list.events()[1]

    @property
    def is_long(self) -> bool:
        """Whether it is to be folded behind this iteration."""
        return len(self._list) >= MANY_EVENTS

    def fold(self, call_ns: float = 0.0) -> list[Iteration]:
        """The iterations since the last time, by row; the tape is blank then.

        ``call_ns``: what recording added to a call, which is taken off.
        """
        taped, self._taped = self._taped, []
        # Without those of an iteration that did not end.
        for place, calls in Counter(self._called[: self._begin_called]).items():
            place.calls[place.path] += calls
        self._called.clear()
        self._begin_called = 0
        codes, stamps = self._list.events()
        if self._history is not None:
            self._history.add(codes, stamps, self.rows.entries)
        self._list.cut()
        if not taped:
            return []
        trials = [iteration.timed for iteration in taped]
        device = [trial.device for trial in trials if trial.device is not None]
        bounds = [(iteration.begin, iteration.timed.end) for iteration in taped]
        on_device = np.concatenate(device) if device else None
        stretch = Stretch.of(codes, stamps, bounds, on_device)
        folded: dict[int, Iteration] = {}
        for rows in {id(iteration.rows): iteration.rows for iteration in taped}.values():
            places = [place for place, iteration in enumerate(taped) if iteration.rows is rows]
            some = rows.fold(stretch.some(places), [taped[place] for place in places], call_ns)
            folded.update(zip(places, some, strict=True))
        return [folded[place] for place in range(len(taped))]

    def links(self) -> tuple[LinkCalls, ...]:
        """The links of the networks, with their mean calls in an iteration."""
        return self.paths.links(self.rows.iterations or 1)

    def _fold_within(self) -> None:
        """Fold what the iteration that runs has on the tape so far, in a pause."""
        log = self._list
        if self._log is not log or self.events is not None or self.rows.moves:
            return
        began_ns = self._now_ns()
        codes, stamps = log.events(self._begin)
        sums, opened = self.rows.sums(codes, stamps, began_ns)
        self._before = sums if self._before is None else self._before.plus(sums)
        log.cut(self._begin)
        self._n_pauses = 0
        for number in opened:  # it goes on
            log.note((number, began_ns))
        self._pause(began_ns)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """What passes within this is the profiler's."""
        began = self._log.now_ns()
        if self._record is not None:
            self._record()
        try:
            yield
        finally:
            self._pause(began)

    def _pause(self, began: int) -> None:
        """What passed since then was the profiler's; a device's event then was recorded."""
        log = self._log
        log.note((PAUSED, began))
        end = log.now_ns()
        log.note((end, ~PAUSED))
        if self._record is not None:
            self._record()
        self.paused_ns += end - began
        self._n_pauses += 1

    # -- windows

    def _make(self, log: Any, record: Callable[[], None] | None = None) -> _Callbacks:
        """What notes windows: it runs in every one of them, and takes as few steps as may be."""
        tape, now_ns, note = self, log.now_ns, log.note
        running, backwards = self._running, self._running.backwards
        lookup, attribute = self._lookup, self._lookup.attribute
        of_forwards, of_marks, of_sums = lookup.backwards, lookup.marks, lookup.sums
        inner, fresh = lookup.inner, lookup.fresh
        numbers, most = self._list.numbers, 2 * _MOST_EVENTS
        get_frame, adapter = sys._getframe, FunctionAdapter
        # The numbers of open marks, with the place and the path outside of links around each.
        marks: list[tuple[int, Place, str]] = []
        bare = "/"

        def begin() -> None:
            nonlocal bare
            backwards.clear()
            marks.clear()
            bare = "/"
            tape._go_outside()

        def enter(mark: Mark) -> None:
            """Note that a window begins that is no function's."""
            nonlocal bare
            if get_ident() != running.thread:
                return
            marked, number = of_marks.get(id(mark), (None, OUTSIDE))
            if marked is not mark:
                number = lookup.of_mark(mark)
            place = running.place
            marks.append((number, place, bare))
            if not mark.function:
                if mark == FORWARD:
                    bare = "loss"
                running.places = tape.paths.places(mark.phase)
                path = bare if place.outside else place.path
                running.place = tape.paths.place(path, mark.phase, place.outside)
            if record is not None:
                record()
            note((number, now_ns()))

        def leave() -> None:
            nonlocal bare
            if get_ident() != running.thread or not marks:  # of one that began before
                return
            at = now_ns()
            if sys.exc_info()[1] is not None:
                tape._note_exception()
            number, place, bare = marks.pop()
            running.place, running.places = place, tape.paths.places(place.phase)
            note((at, ~number))
            if record is not None:
                record()

        def in_backward(function: Any, kind: type, in_data: Any, frame: FrameType) -> None:
            """A function is called in a backward, whose own time it is, but for sums."""
            around = backwards[-1]
            if kind.__name__ in SUMS and sums_gradients(frame):
                key = around, len(in_data), in_data[0].shape
                number = of_sums.get(key)
                if number is None:
                    number = lookup.of_sum(key, function, in_data, around)
            elif not tape.all_functions:
                setattr(function, attribute, ~around)
                return
            else:
                number = inner.get((around, kind), -1)
                if number < 0:
                    number = lookup.of_inner(function, kind, around)
            setattr(function, attribute, number)
            if record is not None:
                record()
            note((number, now_ns()))

        def forward_preprocess(self: Any, function: Any, in_data: Any) -> None:
            kind = type(function)
            if kind is adapter:
                kind = type(function.function)
            if backwards:
                in_backward(function, kind, in_data, get_frame(1))
                return
            place = running.place
            try:
                n_inputs = len(in_data)
                if n_inputs == 1:
                    (x,) = in_data
                    number = place[kind, x.shape]
                elif n_inputs == 3:
                    x, weight, bias = in_data
                    number = place[kind, x.shape, weight.shape, bias.shape]
                elif n_inputs == 2:
                    x, other = in_data
                    number = place[kind, x.shape, other.shape]
                else:
                    number = place[(kind, *[array.shape for array in in_data])]
                is_foreign = place.is_foreign
                if is_foreign is not None and not is_foreign(map(id, in_data)):
                    number = lookup.of_call(function, kind, in_data)
            except (KeyError, AttributeError):  # of something new; no array
                if len(numbers) > most:
                    tape._fold_within()
                number = lookup.of_call(function, kind, in_data)
            function._entry = number
            if record is not None:
                record()
            note((number, now_ns()))

        def forward_postprocess(self: Any, function: Any, in_data: Any) -> None:
            try:
                number = function._entry
            except AttributeError:  # it began before
                return
            if number < 0:
                return
            note((now_ns(), ~number))
            if record is not None:
                record()
            if fresh and number in fresh:
                lookup.learn_forward(fresh.pop(number), function, in_data, get_frame(1))

        def backward_preprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            try:
                number = of_forwards[function._entry]
            except (KeyError, AttributeError):
                number = lookup.of_backward(function, out_grad)
            if len(numbers) > most:
                tape._fold_within()
            backwards.append(number)
            if record is not None:
                record()
            note((number, now_ns()))

        def backward_postprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            if not backwards:  # it began before
                return
            number = backwards.pop()
            note((now_ns(), ~number))
            if record is not None:
                record()

        hook = hook_of(
            *(
                _with_attribute(callback, attribute)
                for callback in (
                    forward_preprocess,
                    forward_postprocess,
                    backward_preprocess,
                    backward_postprocess,
                )
            )
        )
        return _Callbacks(begin, enter, leave, hook)

    def use(self, rows: Rows, paths: Paths) -> None:
        """From now on calls are of these rows and networks."""
        paths.know_parameters()
        self._lookup.rows, self._lookup.paths = rows, paths
        self._go_outside()

    def _go_outside(self) -> None:
        """Functions that are called now are outside of all links."""
        self._running.places, self._running.place = self.paths.forward, self.paths.outside

    def _raised(self, function: Any) -> None:
        """A function raised; one that had not begun, or within a backward, has no window."""
        number = getattr(function, self._lookup.attribute, -1)
        if self._lookup.first is not None:
            self._lookup.first.raised = True
        if number >= 0:
            self._end_window(number)

    def _raised_backward(self, depth: int) -> None:
        """Backwards raised: those beyond so many."""
        while len(self._running.backwards) > depth:
            self._end_window(self._running.backwards.pop())

    def _end_window(self, number: int) -> None:
        """An exception leaves a window that nothing else ends."""
        at = self._log.now_ns()
        self._note_exception()
        self._log.note((at, ~number))
        if self._record is not None:
            self._record()

    def _note_exception(self) -> None:
        """An exception is about to leave a window."""
        error = sys.exc_info()[1]
        if error is not None and id(error) != self._left_by[0]:
            self._left_by = id(error), len(self._list)

    def failed(self, error: BaseException) -> tuple[Layer | None, bool]:
        """The layer that an exception left, or else the last one before; and whether it left it."""
        identity, end = self._left_by
        codes, _ = self._list.events(self._begin, end if identity == id(error) else None)
        codes, _, _ = mended(codes[(codes != PAUSED) & (codes != ~PAUSED)])
        return self.rows.last(codes, self._lookup.first)

    def forget(self) -> None:
        """Iterations so far count no more; the tape is blank."""
        self.rows.forget()
        self.paths.calls.clear()

    def _open_row(self) -> int | None:
        """Number of the innermost row that is open."""
        numbers, left = self._list.numbers, 0
        for at in range(len(numbers) - 2, 2 * self._begin - 1, -2):
            if numbers[at + 1] < 0:
                left += 1
            elif left:
                left -= 1
            elif (row := self.rows.entries[numbers[at]].row) in range(len(self.rows)):
                return row
        return None


def _with_attribute(callback: Callable[..., None], attribute: str) -> Callable[..., None]:
    """The same callback with another name in the place of ``_entry``."""
    # A name in the code is found in half of the time that setattr and getattr take.
    code = callback.__code__
    names = tuple(attribute if name == "_entry" else name for name in code.co_names)
    given = callback.__globals__, callback.__name__, callback.__defaults__, callback.__closure__
    return FunctionType(code.replace(co_names=names), *given)
