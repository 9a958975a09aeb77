"""Times of iterations by link and function, whatever they call: nothing has to repeat.

A row is a function of a link in a phase: ``(path, function, phase)``. The links that are running
are known from :class:`.entries.Entries`, which stands at all their calls. A backward belongs to the
row of its forward, which is noted on the function; what it calls is its own time.

Every window is noted in a log, (entry, time) on entering and the time alone on leaving, which is
folded when the iteration has ended: the time between two reads belongs to one row, so rows and
framework add up to the iteration. What is looked up about a function that is seen for the first
time is a window too, whose time is not the iteration's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from chainer import Function, FunctionHook, FunctionNode
from chainer.function import FunctionAdapter

from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.costs.call import specs_of
from chainer_profile.costs.work import backward_work, forward_work
from chainer_profile.measure.events import Stopwatch
from chainer_profile.measure.facts import (
    ACCUMULATION,
    dtype_of,
    nbytes_of,
    shapes_of,
    sums_gradients,
    work_by,
)
from chainer_profile.measure.hooks import end_when_raising, kind_of, unique_name
from chainer_profile.measure.link_paths import Paths
from chainer_profile.measure.link_rows import (
    MOST_SHAPES,
    Entry,
    Folded,
    Iteration,
    Row,
    facts_of,
    work_of_call,
)
from chainer_profile.measure.links import is_running
from chainer_profile.measure.windows import BACKWARD, FORWARD, Mark
from chainer_profile.record.recording import Layer, LinkCalls

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chainer_profile.measure.clock import NowNs
    from chainer_profile.measure.events import EventPool, TimedTrial
    from chainer_profile.measure.windows import Trial
    from chainer_profile.record.recording import Recording

#: Functions that may add up gradients.
_SUMS = ("Add", "MultiAdd")
_NUMBERS = count()
#: In place of the number of a row: behind all of them.
_NO_ROW = 2**40


class _Fresh(NamedTuple):
    """A call whose end tells what is not known of its entry yet."""

    function: Any
    entry: Entry
    table: dict[Any, Entry] | None = None
    key: Any = None


class Running(Protocol):
    """Knows the links that are running; see :class:`.entries.Entries`."""

    @property
    def links(self) -> list[Any]:
        """Those that are running, outermost first: always the same list."""

    link_calls: dict[int, int] | None
    """Counts the calls of links, by their identity, where it is set."""


class LinkRecorder:
    """Notes the windows of iterations, by link and function.

    Args:
        now_ns: The host's clock.
        trial: What an iteration is.
        running: Knows the links that are running.
        events: Where a device's events are recorded; None where the host does all the work.

    Attributes:
        phases: The phases that were entered, in their order.
        enter: Notes that a window begins that is no function's.
        leave: Notes that it ends.
    """

    def __init__(
        self,
        now_ns: NowNs,
        trial: Trial,
        running: Running,
        events: EventPool | None = None,
    ) -> None:
        self.phases: list[str] = []
        self.log: list[Any] = []
        self._now_ns, self._trial, self._events = now_ns, trial, events
        self._read = now_ns
        self._running, self._links = running, running.links
        self._attribute = f"_chainer_profile_entry_{next(_NUMBERS)}"
        self._rows: list[Row] = []
        self._row_of: dict[tuple[str, str, str], int] = {}
        self._entries: list[Entry] = []
        # Time outside of all windows, and time that is the profiler's.
        self._outside, self._paused = self._new_entry(_NO_ROW), self._new_entry(_NO_ROW)
        # Of every phase the entries of calls by class, path and shapes.
        self._tables: dict[str, dict[Any, Entry]] = {}
        # Of calls that raised, whose next one is to tell what is not known of it yet.
        self._untold: dict[Any, Entry] = {}
        self._of_marks: dict[tuple[str, ...], Entry] = {}
        self._of_old_graphs: dict[str, Entry] = {}
        self._paths = Paths(trial.roots)
        self._weights: dict[int, tuple[str, Any]] = {}
        self._raising: set[type] = set()
        self._iterations = 0
        self._link_calls: dict[str, int] = {}
        self._watch = Stopwatch(now_ns, events)

    # -- an iteration

    @contextmanager
    def recording(self, now_ns: NowNs | None = None) -> Iterator[None]:
        """Within this, windows are noted.

        Args:
            now_ns: What is read in place of the clock, such as a counter of memory.
        """
        self._paths.renew(self._trial.roots)
        self._begin(now_ns or self._now_ns)
        with ExitStack() as stack:
            self._replacements = stack.enter_context(Replacements())
            end_when_raising(self._replacements, self._raising, self)
            stack.enter_context(self._trial.timed(self.enter, self.leave))
            self.hook = stack.enter_context(self._make_hook())
            # A call that begins the iteration is open already.
            self._running.link_calls = {id(link): 1 for link in self._links}
            stack.callback(setattr, self._running, "link_calls", None)
            yield

    def _add_link_calls(self) -> None:
        for link, count_ in (self._running.link_calls or {}).items():
            path = self._paths.by_link.get(link)
            if path is not None:
                self._link_calls[path] = self._link_calls.get(path, 0) + count_

    @property
    def _times(self) -> bool:
        """Whether the clock is read, and not what is read in its place."""
        return self._read is self._now_ns

    def _begin(self, now_ns: NowNs) -> None:
        log: list[Any] = []
        self.log, self._thread = log, get_ident()
        self._read = now_ns
        # The windows that are open, with the frame that runs each: None for a mark.
        self._opened: list[Entry] = []
        self._frames: list[FrameType | None] = []
        # Of these the backwards, and the functions that add up gradients within one.
        self._backwards: list[Entry] = []
        self._sums: list[Any] = []
        # Calls whose end is to be told of; and the places of marks, with the phase around each.
        self._fresh: list[_Fresh] = []
        self._marks: list[tuple[int, str, str]] = []
        self._weights = {
            id(param.array): (path, param)
            for path, param in self._paths.params()
            if param.array is not None
        }
        self._phase, self._bare = FORWARD.phase, "/"
        self._table = self._tables.setdefault(self._phase, {})
        events = self._events if self._times else None
        self._record = None if events is None else events.record
        self._note, self._stamp = _noting(log, now_ns, self._record)

    def start(self) -> None:
        """An iteration begins; within :meth:`recording`."""
        self._watch.begin()

    def close(self) -> None:
        """End the windows that are open."""
        self._end_windows(0)

    def end(self, number: int = 0) -> Iteration:
        """It has ended: how long it took, by row."""
        self.close()
        return self._iteration(number, self._watch.end(len(self.log)))

    def know(self, recording: Recording, raising: Collection[type]) -> list[Iteration]:
        """Count trials as iterations whose rows are single calls; before all others.

        Args:
            recording: The trials, of the host alone and without phases.
            raising: Classes of functions that raise an exception, which the network catches.
        """
        self._raising.update(raising)
        times, trials = recording.self_ns, recording.n_trials
        if not trials:
            return []
        entries: dict[Any, Entry] = {}
        rows: list[int] = []
        for layer, ns in zip(recording.layers, times.sum(axis=0).tolist(), strict=True):
            key = layer.path, layer.function, layer.phase, layer.input_shapes
            if key not in entries:
                refers: dict[str, Any] = {
                    name: None if (index := getattr(layer, name)) is None else rows[index]
                    for name in ("parent", "forward")
                }
                entries[key] = self._entry_of(layer.path, layer.function, layer.phase, **refers)
                entries[key].facts = facts_of(layer)
                entries[key].work = work_of_call(layer)
            entries[key].calls += int(layer.calls) * trials
            entries[key].ns += ns
            rows.append(entries[key].row)
        for link in recording.links:
            known = self._link_calls.get(link.path, 0)
            self._link_calls[link.path] = known + int(link.calls) * trials
        self._iterations += trials
        of_rows = np.zeros((trials, len(self._rows)), np.int64)
        np.add.at(of_rows.T, rows, times.T)
        calls = np.zeros(len(self._rows), np.int64)
        np.add.at(calls, rows, [int(layer.calls) for layer in recording.layers])
        none = np.zeros(0, np.int64)
        assert recording.start_ns is not None
        assert recording.trial_ns is not None
        spans = zip(recording.start_ns.tolist(), recording.trial_ns.tolist(), of_rows, strict=True)
        return [
            Iteration(0, start_ns, wall_ns, 0, rows_ns, calls, none, none, none)
            for start_ns, wall_ns, rows_ns in spans
        ]

    def pauses(self) -> NDArray[np.int64]:
        """When looking functions up began and ended in the last iteration, (pauses, 2)."""
        folded = self.fold()
        at = np.flatnonzero(folded.enters & (folded.owners == self._paused.number))
        return np.stack([folded.stamps[at], folded.stamps[at + 1]], axis=1)

    # -- windows

    def enter(self, mark: Mark) -> None:
        """Note that a window begins that is no function's."""
        if get_ident() != self._thread:
            return
        key = (mark.phase, mark.path, mark.function, mark.of)
        entry = self._of_marks.get(key)
        if entry is None:
            began = self._read()
            entry = self._entry_of_mark(mark)
            if entry is not self._outside:
                self._of_marks[key] = entry
            self._pause(began)
        self._marks.append((len(self._frames), self._phase, self._bare))
        self._frames.append(None)
        self._opened.append(entry)
        if not mark.function:
            self._phase = mark.phase
            if mark == FORWARD:
                self._bare = "loss"
            self._table = self._tables.setdefault(mark.phase, {})
        self._note(entry)

    def leave(self) -> None:
        """Note that it ends."""
        if not self._marks or get_ident() != self._thread:  # of one that began before
            return
        depth, self._phase, self._bare = self._marks[-1]
        self._end_windows(depth)
        self._table = self._tables[self._phase]

    def position(self) -> int:
        """Number of the windows that are open."""
        return len(self._frames)

    def running(self, position: int) -> int:
        """Number of windows that were left open since then by an exception, which this ends."""
        self._end_windows(position)
        return 0

    def _end_windows(self, depth: int) -> None:
        """End the windows beyond so many, the innermost first.

        Functions among them have raised: from now on is seen when they do.
        """
        while len(self._frames) > depth:
            frame = self._frames.pop()
            if frame is None:
                self._marks.pop()
            else:
                self._note_raising(frame)
            self._opened.pop()
            self._stamp()
        opened = set(map(id, self._opened))
        while self._fresh and id(self._fresh[-1].entry) not in opened:
            one = self._fresh.pop()
            # The next call is to tell.
            if one.table is not None and one.table.pop(one.key, None) is not None:
                self._untold[id(one.table), one.key] = one.entry
        self._backwards[:] = [one for one in self._backwards if id(one) in opened]
        sums = sum(self._function_of(one) == ACCUMULATION for one in self._opened)
        del self._sums[sums:]

    def _uncover(self, frame: FrameType) -> bool:
        """End the windows within that of a frame; False where it has none, of before."""
        if frame not in self._frames:
            return False
        self._end_windows(self._frames.index(frame) + 1)
        return True

    def _note_raising(self, frame: FrameType) -> None:
        function = frame.f_locals.get("self")
        kind = kind_of(function)
        if isinstance(function, FunctionNode | Function) and kind not in self._raising:
            self._raising.add(kind)
            end_when_raising(self._replacements, [kind], self)

    def _function_of(self, entry: Entry) -> str:
        return self._rows[entry.row].function if 0 <= entry.row < len(self._rows) else ""

    def _end_dead(self) -> None:
        """End the windows of functions that have raised."""
        depth = len(self._frames)
        while depth and (frame := self._frames[depth - 1]) is not None and not is_running(frame):
            depth -= 1
        self._end_windows(depth)

    def _make_hook(self) -> FunctionHook:
        """The hook of functions: methods that find what they need in closure cells are fastest."""
        recorder, links, now_ns, record = self, self._links, self._read, self._record
        note, stamp = self.log.extend, self.log.append
        frames, opened = self._frames, self._opened
        backwards, fresh, sums = self._backwards, self._fresh, self._sums
        paths, holders, weights = self._paths.by_link, self._paths.holders, self._weights
        attribute = self._attribute
        get_frame, adapter = sys._getframe, FunctionAdapter

        def forward_preprocess(self: Any, function: Any, in_data: Any) -> None:
            frame = get_frame(1)
            if frames and frames[-1] is not None and not is_running(frames[-1]):
                recorder._end_dead()
            kind = type(function)
            if backwards:  # its own time, but for sums of gradients
                setattr(function, attribute, backwards[-1])
                if kind.__name__ in _SUMS and sums_gradients(frame):
                    recorder._within_backward(function, in_data, frame)
                return
            if kind is adapter:
                kind = type(function.function)
            try:
                path = paths[id(links[-1])] if links else recorder._bare
                shapes = tuple([array.shape for array in in_data])
            except (KeyError, AttributeError):  # a link of no network so far; no array
                path = recorder._path_of_running()
                shapes = tuple([getattr(array, "shape", None) for array in in_data])
            if path in holders and not weights.keys().isdisjoint(map(id, in_data)):
                path = recorder._path_of_call(path, in_data)
            entry = recorder._table.get((kind, path, shapes))
            if entry is None:
                entry = recorder._entry_of_call(function, kind, path, shapes, in_data)
            setattr(function, attribute, entry)
            frames.append(frame)
            opened.append(entry)
            if record is not None:
                record()
            note((entry, now_ns()))

        def forward_postprocess(self: Any, function: Any, in_data: Any) -> None:
            if backwards:
                if sums:
                    recorder._left_within_backward(function, in_data)
                return
            frame = get_frame(1)
            if (not frames or frames[-1] is not frame) and not recorder._uncover(frame):
                return
            frames.pop()
            opened.pop()
            stamp(now_ns())
            if record is not None:
                record()
            if fresh and fresh[-1].function is function:
                recorder._learn_forward(function, in_data, frame)

        def backward_preprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            if frames and frames[-1] is not None and not is_running(frames[-1]):
                recorder._end_dead()
            forward = getattr(function, attribute, None)
            entry = None if forward is None else forward.backward
            if entry is None:
                entry = recorder._entry_of_backward(function, forward, out_grad)
            frames.append(get_frame(1))
            opened.append(entry)
            backwards.append(entry)
            if record is not None:
                record()
            note((entry, now_ns()))

        def backward_postprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            frame = get_frame(1)
            if (not frames or frames[-1] is not frame) and not recorder._uncover(frame):
                return
            frames.pop()
            opened.pop()
            backwards.pop()
            stamp(now_ns())
            if record is not None:
                record()

        callbacks = {
            one.__name__: one
            for one in (
                forward_preprocess,
                forward_postprocess,
                backward_preprocess,
                backward_postprocess,
            )
        }
        hook: FunctionHook = type("LinkRecorderHook", (FunctionHook,), callbacks)()
        hook.name = unique_name("LinkRecorder")
        return hook

    def _within_backward(self, function: Any, in_data: Any, frame: FrameType) -> None:
        """A function that adds up gradients is called within a backward."""
        around = self._backwards[-1]
        self._sums.append(function)
        path = "/" if around is self._outside else self._rows[around.row].path
        entry = self._entry_of_sum(function, path, in_data)
        self._frames.append(frame)
        self._opened.append(entry)
        self._note(entry)

    def _left_within_backward(self, function: Any, in_data: Any) -> None:
        if self._sums and self._sums[-1] is function:
            self._sums.pop()
            self._frames.pop()
            self._opened.pop()
            self._stamp()
            if self._fresh and self._fresh[-1].function is function:
                self._learn_forward(function, in_data, sys._getframe(2))

    # -- what is looked up once

    def _pause(self, began: int) -> None:
        """What passed since then was the profiler's."""
        if self._record is not None:
            self._record()
        self.log.extend((self._paused, began))
        self._stamp()

    def _new_entry(self, row: int) -> Entry:
        entry = Entry(len(self._entries), row)
        self._entries.append(entry)
        return entry

    def _entry_of(self, path: str, function: str, phase: str, **more: Any) -> Entry:
        """A new entry of a row; what has no row when no times are read stays outside of all."""
        key = (path, function, phase)
        number = self._row_of.get(key)
        if number is None:
            if not self._times:
                return self._outside
            number = self._row_of[key] = len(self._rows)
            self._rows.append(Row(path, function, phase, **more))
        entry = self._new_entry(number)
        self._rows[number].entries.append(entry)
        return entry

    def _entry_of_mark(self, mark: Mark) -> Entry:
        if not mark.function:
            if mark.phase not in self.phases:
                if not self._times:
                    return self._outside
                self.phases.append(mark.phase)
            return self._new_entry(-1 - self.phases.index(mark.phase))
        entry = self._entry_of(mark.path, mark.function, mark.phase)
        if entry is self._outside:
            return entry
        params = self._paths.parameters(mark.path) if mark.phase == "update" else ()
        shapes = shapes_of(params)
        entry.facts = {"input_shapes": shapes, "output_shapes": shapes, "dtype": dtype_of(params)}
        if mark.moved is not None:
            shapes = (mark.moved.shape,)
            entry.facts |= {"input_shapes": shapes, "output_shapes": shapes}
            entry.facts |= {"dtype": mark.moved.dtype, "input_nbytes": mark.moved.nbytes}
        if mark.work is not None:
            entry.work = work_by(mark.function, mark.work)
        return entry

    def _path_of_running(self) -> str:
        """Path of the innermost running link; a link of no network so far becomes a root."""
        path = "/" if self._links else self._bare
        for link in self._links:
            path = self._paths.by_link.get(id(link)) or self._adopt(link, path)
        return path

    def _adopt(self, link: Any, above: str) -> str:
        began = self._read()
        path = self._paths.adopt(link, above)
        self._pause(began)
        return path

    def _path_of_call(self, path: str, in_data: Sequence[Any]) -> str:
        """Path of the link whose parameters a call takes, where that lies below this one.

        No entry is passed for ``link.forward(x)``, or for functions that are given ``link.W``.
        """
        below = "/" if path == self._bare else path.rstrip("/") + "/"
        for array in in_data:
            owner, param = self._weights.get(id(array), ("", None))
            if (
                param is not None
                and param.array is array
                and owner != "/"
                and owner.startswith(below)
            ):
                return owner
        return path

    def _entry_of_call(
        self, function: Any, kind: type, path: str, shapes: Any, in_data: Sequence[Any]
    ) -> Entry:
        began = self._read()
        name, phase = str(function._impl_name), self._phase
        if phase == BACKWARD.phase and name in _SUMS and sums_gradients(sys._getframe(2)):
            name = ACCUMULATION
        parents = [one.row for one in self._opened if 0 <= one.row < _NO_ROW]
        of_row = self._row_of.get((path, name, phase))
        crowded = of_row is not None and len(self._rows[of_row].entries) >= MOST_SHAPES
        key = (kind, path, None) if crowded else (kind, path, shapes)
        entry = self._table.get(key)
        if entry is None:
            entry = self._untold.pop((id(self._table), key), None)
            if entry is None:
                parent = parents[-1] if parents else None
                entry = self._entry_of(path, name, phase, parent=parent)
            if entry is not self._outside:
                self._table[key] = entry
                self._fresh.append(_Fresh(function, entry, table=self._table, key=key))
                entry.facts = self._facts_of_inputs(in_data)
        self._pause(began)
        return entry

    def _facts_of_inputs(self, in_data: Sequence[Any]) -> dict[str, Any]:
        facts: dict[str, Any] = {"input_shapes": shapes_of(in_data)}
        if self._phase == FORWARD.phase:
            own = [array for array in in_data if id(array) not in self._weights]
            taken = [array for array in in_data if id(array) in self._weights]
            facts |= {"input_nbytes": nbytes_of(own), "parameter_nbytes": nbytes_of(taken)}
        return facts

    def _entry_of_sum(self, function: Any, path: str, in_data: Sequence[Any]) -> Entry:
        key = (ACCUMULATION, path, tuple(array.shape for array in in_data))
        entry = self._table.get(key)
        if entry is None:
            began = self._read()
            entry = self._entry_of(path, ACCUMULATION, BACKWARD.phase)
            if entry is not self._outside:
                entry.facts = {"input_shapes": shapes_of(in_data)}
                self._table[key] = entry
                self._fresh.append(_Fresh(function, entry))
            self._pause(began)
        return entry

    def _learn_forward(self, function: Any, in_data: Sequence[Any], frame: FrameType) -> None:
        """A function was called for the first time: its outputs, and its work."""
        began = self._read()
        entry = self._fresh.pop().entry
        outputs = frame.f_locals.get("outputs", ())
        entry.facts |= {"output_shapes": shapes_of(outputs), "dtype": dtype_of(outputs)}
        if self._rows[entry.row].phase == FORWARD.phase:
            entry.facts["output_nbytes"] = nbytes_of(outputs)
        specs = specs_of(in_data), specs_of(outputs)
        entry.facts["specs"] = specs
        name = str(function._impl_name)
        entry.work = work_by(name, partial(forward_work, function, *specs))
        self._pause(began)

    def _entry_of_backward(self, function: Any, forward: Entry | None, out_grad: Any) -> Entry:
        began = self._read()
        of = None if forward is None or forward is self._outside else self._rows[forward.row]
        path, name = (of.path, of.function) if of else ("/", str(function._impl_name))
        first = forward.row if forward is not None and of and of.phase != BACKWARD.phase else None
        # A function of a graph that was there before has no entry.
        entry = self._of_old_graphs.get(name) if of is None else None
        if entry is None:
            entry = self._entry_of(path, name, BACKWARD.phase, forward=first)
            if entry is not self._outside and (of is None or of.phase != BACKWARD.phase):
                self._learn_gradients(function, entry, forward, out_grad)
                if of is None:
                    self._of_old_graphs[name] = entry
        if forward is not None and of is not None and entry is not self._outside:
            forward.backward = entry
        self._pause(began)
        return entry

    def _learn_gradients(
        self, function: Any, entry: Entry, forward: Entry | None, out_grad: Any
    ) -> None:
        needed = tuple(node for node in function.inputs if node.requires_grad)
        entry.facts = {
            "input_shapes": shapes_of(out_grad),
            "output_shapes": shapes_of(needed),
            "dtype": dtype_of(needed),
        }
        # Of a graph that was there before its nodes know the inputs.
        before = specs_of(function.inputs), specs_of(out_grad)
        inputs, outputs = before if forward is None else forward.facts.get("specs", before)
        asked = tuple(bool(node.requires_grad) for node in function.inputs)
        entry.work = work_by(
            str(function._impl_name), lambda: backward_work(function, inputs, outputs, asked)
        )

    # -- folding

    def fold(self) -> Folded:
        """The log of the iteration, by its reads."""
        stamps: list[int] = []
        owners: list[int] = []
        enters: list[bool] = []
        running = [self._outside.number]
        items = iter(self.log)
        for item in items:
            is_entry = type(item) is Entry
            if is_entry:
                running.append(item.number)
                stamps.append(next(items))
            else:
                running.pop()
                stamps.append(item)
            owners.append(running[-1])
            enters.append(is_entry)
        return Folded(
            np.array(stamps, np.int64), np.array(owners, np.intp), np.array(enters, np.bool_)
        )

    def owners(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """What the time behind each read of the log belongs to, and which reads begin a window.

        An index of rows, behind these one of phases, and -1 for all else.
        """
        folded = self.fold()
        rows = self._row_numbers()
        of_entries = np.where(rows < 0, len(self._rows) - 1 - rows, rows)
        of_entries[rows == _NO_ROW] = -1
        return of_entries[folded.owners], folded.enters

    def _iteration(self, number: int, timed: TimedTrial) -> Iteration:
        folded = self.fold()
        rows = self._row_numbers()
        host = self._by_entry(folded.stamps, folded.owners)
        paused_ns = int(host[self._paused.number])
        calls = np.bincount(folded.owners[folded.enters], minlength=len(self._entries))
        times, device = host, None
        if timed.device is not None:
            stamps, owners = timed.device, np.concatenate([[self._outside.number], folded.owners])
            times = self._by_entry(stamps, owners)
            waited_ns = int(times[self._paused.number])
            device = (
                self._by_row(host, rows),
                self._gaps(stamps, owners),
                timed.launch_ns - paused_ns,
                int(stamps[-1] - stamps[0]) - waited_ns,
            )
        self._iterations += 1
        self._add_link_calls()
        for at in np.flatnonzero(calls).tolist():
            entry = self._entries[at]
            entry.calls += int(calls[at])
            entry.ns += int(times[at])
        phases = np.zeros(len(self.phases), np.int64)
        np.add.at(phases, -1 - rows[rows < 0], times[rows < 0])
        arrived, left = self._collectives(folded)
        return Iteration(
            number,
            timed.start_ns,
            timed.wall_ns - paused_ns,
            paused_ns,
            self._by_row(times, rows),
            self._by_row(calls, rows),
            phases,
            arrived,
            left,
            device,
        )

    def _row_numbers(self) -> NDArray[np.int64]:
        """The row of every entry; below 0 for phases."""
        return np.array([entry.row for entry in self._entries], np.int64)

    def _by_entry(self, stamps: NDArray[np.int64], owners: NDArray[np.intp]) -> NDArray[np.int64]:
        times = np.zeros(len(self._entries), np.int64)
        np.add.at(times, owners[:-1] if len(owners) == len(stamps) else owners, np.diff(stamps))
        return times

    def _by_row(self, values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        of_rows = (rows >= 0) & (rows < _NO_ROW)
        sums = np.zeros(len(self._rows), np.int64)
        np.add.at(sums, rows[of_rows], values[of_rows])
        return sums

    def _gaps(self, stamps: NDArray[np.int64], owners: NDArray[np.intp]) -> NDArray[np.int64]:
        """What passed on the device before each row, since the row before."""
        gaps = np.zeros(len(self._rows) + 1, np.int64)
        following = len(self._rows)
        for owner, span in zip(owners[::-1].tolist(), np.diff(stamps)[::-1].tolist(), strict=True):
            row = self._entries[owner].row
            if 0 <= row < _NO_ROW:
                following = row
            elif owner != self._paused.number:
                gaps[following] += span
        return gaps[:-1]

    def _collectives(self, folded: Folded) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """When each row of communication was entered first, and left last."""
        rows = [n for n, row in enumerate(self._rows) if row.phase == COMMUNICATION]
        arrived, left = (np.zeros(len(rows), np.int64) for _ in range(2))
        if not rows:
            return arrived, left
        places = {row: place for place, row in enumerate(rows)}
        running: list[int | None] = []
        for stamp, owner, enters in zip(*(part.tolist() for part in folded), strict=True):
            if enters:
                place = places.get(self._entries[owner].row)
                running.append(place)
                if place is not None and not arrived[place]:
                    arrived[place] = stamp
            elif (place := running.pop()) is not None:
                left[place] = stamp
        return arrived, left

    # -- what came out

    @property
    def n_rows(self) -> int:
        """Number of rows so far."""
        return len(self._rows)

    def layers(self, begin: int = 0) -> tuple[Layer, ...]:
        """The rows from one on: means over the iterations so far, shapes of most of the time."""
        return tuple(
            row.layer(number, self._iterations or 1)
            for number, row in enumerate(self._rows[begin:], begin)
        )

    def links(self) -> tuple[LinkCalls, ...]:
        """The links of the networks, with their mean calls in an iteration."""
        return self._paths.links(self._link_calls, self._iterations or 1)


def _noting(
    log: list[Any], now_ns: NowNs, record: Callable[[], None] | None
) -> tuple[Callable[[Entry], None], Callable[[], None]]:
    """What notes the begin of a window, and an end; a device's event stands outside of both."""
    extend, append = log.extend, log.append

    def note(entry: Entry) -> None:
        extend((entry, now_ns()))

    def stamp() -> None:
        append(now_ns())

    if record is None:
        return note, stamp

    def note_event(entry: Entry) -> None:
        record()
        extend((entry, now_ns()))

    def stamp_event() -> None:
        append(now_ns())
        record()

    return note_event, stamp_event
