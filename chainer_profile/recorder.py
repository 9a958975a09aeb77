"""What a profiled trial runs under: clock reads on entering and leaving, and nothing else."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from chainer import FunctionHook

if TYPE_CHECKING:
    from chainer_profile.clock import NowNs
    from chainer_profile.structure import Entry, Step
    from chainer_profile.windows import Mark


class Recorder:
    """One clock read on entering and on leaving every function, and every other window.

    It keeps the function's class, never the function itself. Everything else is known from the
    structure pass (:func:`chainer_profile.structure.learn_structure`).

    Attributes:
        stamps: Clock reads in nanoseconds, in the order of the events.
        entries: What was entered, in order: classes of functions, and marks.
        backwards: Class of the function of every backward that was entered, in order.
    """

    def __init__(self, now_ns: NowNs, step: Step) -> None:
        self.stamps: list[int] = []
        self.entries: list[Entry] = []
        self.backwards: list[type] = []
        self._step = step
        self._hook = _recording_hook(now_ns, self.stamps, self.entries, self.backwards)
        self._stack = ExitStack()
        note, stamp = self.entries.append, self.stamps.append

        def enter(mark: Mark) -> None:
            note(mark)
            stamp(now_ns())

        def leave() -> None:
            stamp(now_ns())

        self._enter, self._leave = enter, leave

    def __enter__(self) -> Recorder:
        with ExitStack() as stack:
            stack.enter_context(self._step.timed(self._enter, self._leave))
            stack.enter_context(self._hook)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def clear(self) -> None:
        """Forget the trial, also one that an exception left unfinished."""
        self.stamps.clear()
        self.entries.clear()
        self.backwards.clear()

    def window_ns(self, calls: int = 2000) -> float:
        """Median time that the recorder shows for a function that does nothing."""
        self.clear()
        for _ in range(calls):
            self._hook.forward_preprocess(self, ())
            self._hook.forward_postprocess(self, ())
        stamps = np.array(self.stamps, np.int64)
        self.clear()
        return float(np.median(stamps[1::2] - stamps[::2]))


def _recording_hook(
    now_ns: NowNs, stamps: list[int], entries: list[Entry], backwards: list[type]
) -> FunctionHook:
    """The hook of a recorder.

    This runs in every window of every trial. Methods of a class that find all they need in
    closure cells are the fastest callbacks: the interpreter caches their look-up, which it does
    not for functions kept on the instance.
    """
    stamp, note_class, note_backward = stamps.append, entries.append, backwards.append

    class RecordingHook(FunctionHook):
        name = "chainer_profile.Recorder"

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
