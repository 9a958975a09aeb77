"""What a profiled trial runs under: clock reads on entering and leaving, and nothing else.

On a device that works beside the host, an event in its queue goes with every clock read.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from chainer import FunctionHook

from chainer_profile.measure.events import TimedTrial

if TYPE_CHECKING:
    from collections.abc import Callable

    from chainer_profile.measure.clock import NowNs
    from chainer_profile.measure.events import EventPool
    from chainer_profile.measure.structure import Entry, Step
    from chainer_profile.measure.windows import Mark

_NAME = "chainer_profile.Recorder"
_DEVICE_WINDOWS = 200


class Recorder:
    """One clock read on entering and on leaving every function, and every other window.

    It keeps the function's class, never the function itself. Everything else is known from the
    structure pass (:func:`chainer_profile.measure.structure.learn_structure`).

    Args:
        now_ns: The host's clock.
        step: What a trial runs.
        events: Where a device's events are recorded; None where the host does all the work.

    Attributes:
        stamps: Clock reads in nanoseconds, in the order of the events.
        entries: What was entered, in order: classes of functions, and marks.
        backwards: Class of the function of every backward that was entered, in order.
    """

    def __init__(self, now_ns: NowNs, step: Step, events: EventPool | None = None) -> None:
        self.stamps: list[int] = []
        self.entries: list[Entry] = []
        self.backwards: list[type] = []
        self._step = step
        self._now_ns = now_ns
        self._events = events
        entering, leaving = _reads(now_ns, self.stamps, events)
        noted = self.entries, self.backwards
        self._hook = (
            _host_hook(now_ns, self.stamps, *noted)
            if events is None
            else _device_hook(entering, leaving, *noted)
        )
        self._stack = ExitStack()
        note = self.entries.append

        def enter(mark: Mark) -> None:
            note(mark)
            entering()

        self._enter, self._leave = enter, leaving

    def __enter__(self) -> Recorder:
        with ExitStack() as stack:
            stack.enter_context(self._step.timed(self._enter, self._leave))
            stack.enter_context(self._hook)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def trial(self) -> TimedTrial:
        """Run the step, and say how long it took; within ``with recorder``."""
        step, now_ns, events = self._step, self._now_ns, self._events
        device, launch_ns = None, 0
        start_ns = now_ns()
        if events is not None:
            events.record()
        step()
        if events is not None:
            events.record()
            launch_ns = now_ns() - start_ns
            events.wait()
        wall_ns = now_ns() - start_ns
        if events is not None:
            device = events.times_ns()
            events.clear()
        end = len(self.stamps), len(self.entries), len(self.backwards)
        return TimedTrial(start_ns, wall_ns, end, launch_ns, device)

    def clear(self) -> None:
        """Forget the trial, also one that an exception left unfinished."""
        self.stamps.clear()
        self.entries.clear()
        self.backwards.clear()
        if self._events is not None:
            self._events.clear()

    def window_ns(self, calls: int = 2000) -> float:
        """Median time that the recorder shows for a function that does nothing."""
        self.clear()
        if self._events is not None:
            calls = min(calls, _DEVICE_WINDOWS)
            # Behind other work the device would find all events at once, with nothing in between.
            self._events.wait()
        for _ in range(calls):
            self._hook.forward_preprocess(self, ())
            self._hook.forward_postprocess(self, ())
        stamps = np.array(self.stamps, np.int64)
        if self._events is not None:
            self._events.wait()
            stamps = self._events.times_ns()
        self.clear()
        return float(np.median(stamps[1::2] - stamps[::2]))


def _reads(
    now_ns: NowNs, stamps: list[int], events: EventPool | None
) -> tuple[Callable[[], None], Callable[[], None]]:
    """What is done on entering a window, and on leaving it.

    The device's event stands outside of the host's clock reads, so that recording it counts for no
    layer's host time.
    """
    stamp = stamps.append
    if events is None:

        def read() -> None:
            stamp(now_ns())

        return read, read
    record = events.record

    def enter() -> None:
        record()
        stamp(now_ns())

    def leave() -> None:
        stamp(now_ns())
        record()

    return enter, leave


def _host_hook(
    now_ns: NowNs, stamps: list[int], entries: list[Entry], backwards: list[type]
) -> FunctionHook:
    """The hook of a recorder on the host.

    This runs in every window of every trial. Methods of a class that find all they need in
    closure cells are the fastest callbacks: the interpreter caches their look-up, which it does
    not for functions kept on the instance. One more call in each would double what they take.
    """
    stamp, note_class, note_backward = stamps.append, entries.append, backwards.append

    class RecordingHook(FunctionHook):
        name = _NAME

        def forward_preprocess(self, function: Any, in_data: Any) -> None:
            note_class(type(function))
            stamp(now_ns())

        def forward_postprocess(self, function: Any, in_data: Any) -> None:
            stamp(now_ns())

        def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
            note_backward(type(function))
            stamp(now_ns())

        def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
            stamp(now_ns())

    return RecordingHook()


def _device_hook(
    enter: Callable[[], None],
    leave: Callable[[], None],
    entries: list[Entry],
    backwards: list[type],
) -> FunctionHook:
    """The hook of a recorder that records events as well."""
    note_class, note_backward = entries.append, backwards.append

    class RecordingHook(FunctionHook):
        name = _NAME

        def forward_preprocess(self, function: Any, in_data: Any) -> None:
            note_class(type(function))
            enter()

        def forward_postprocess(self, function: Any, in_data: Any) -> None:
            leave()

        def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
            note_backward(type(function))
            enter()

        def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
            leave()

    return RecordingHook()
