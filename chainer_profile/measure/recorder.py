"""What a profiled trial runs under: clock reads on entering and leaving, and hardly more."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack

import numpy as np
from chainer import FunctionHook

from chainer_profile.measure.calls import Log, read
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.events import EventPool, Stopwatch, TimedTrial
from chainer_profile.measure.hooks import recording_hook, watching, windows
from chainer_profile.measure.windows import Trial

_DEVICE_WINDOWS = 200


class Recorder:
    """One clock read on entering and on leaving every function, and every other window."""

    def __init__(
        self,
        now_ns: NowNs,
        trial: Trial,
        events: EventPool | None = None,
        raising: Collection[type] = (),
    ) -> None:
        self.log: Log = []
        self.raising = raising
        self._trial = trial
        self._now_ns = now_ns
        self._events = events
        self._record = None if events is None else events.record
        self.enter, self.leave = windows(now_ns, self.log, self._record)
        self._stack = ExitStack()
        self._watch = Stopwatch(now_ns, events)

    def __enter__(self) -> Recorder:
        self._stack.enter_context(watching(self._trial, self, self.raising))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def hook(self) -> FunctionHook:
        return recording_hook(self._now_ns, self.log, self._record)

    def position(self) -> int:
        return len(self.log)

    def running(self, position: int) -> int:
        """Number of windows that were entered since the log was so long, and not left."""
        return len(read(self.log, position).running)

    def begin(self) -> None:
        self._watch.begin()

    def end(self) -> TimedTrial:
        return self._watch.end(len(self.log))

    def clear(self) -> None:
        """Forget the trial, also one that an exception left unfinished."""
        self.log.clear()
        if self._events is not None:
            self._events.clear()

    def window_ns(self, calls: int = 2000) -> float:
        """Median time that the recorder shows for a function that does nothing."""
        self.clear()
        if self._events is not None:
            calls = min(calls, _DEVICE_WINDOWS)
            # Behind other work the device would find all events at once, with nothing in between.
            self._events.wait()
        hook, inputs = self.hook, (np.empty(0),)
        for _ in range(calls):
            hook.forward_preprocess(self, inputs)
            hook.forward_postprocess(self, inputs)
        stamps = np.array([self.log[3::5], self.log[4::5]], np.int64).T.ravel()
        if self._events is not None:
            self._events.wait()
            stamps = self._events.times_ns()
        self.clear()
        return float(np.median(stamps[1::2] - stamps[::2]))
