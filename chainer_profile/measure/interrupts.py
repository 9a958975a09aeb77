"""Ctrl-C while a run is made: it ends after the trial, and nothing that was measured is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from chainer_profile.record.recording import Recording

#: The reason why a run ended if Ctrl-C stopped it.
INTERRUPTED = "interrupted"


@contextmanager
def interrupts_that_stop(*, any_handler: bool = False) -> Iterator[Callable[[], str]]:
    """Let Ctrl-C end a run after its current trial.

    Yields a function that returns a reason to stop, or an empty string. Ctrl-C raises
    KeyboardInterrupt before the first call of this function, because the run has no trials yet, and
    when it is pressed again. A handler of the program, and SIG_IGN, stay installed unless
    ``any_handler`` is true.
    """
    pressed: list[int] = []
    polled: list[bool] = []

    def handle(signum: int, frame: FrameType | None) -> None:
        if pressed or not polled:
            raise KeyboardInterrupt
        pressed.append(signum)

    def stop() -> str:
        if not polled:
            polled.append(True)
        return INTERRUPTED if pressed else ""

    before = signal.getsignal(signal.SIGINT)
    usual = before is signal.default_int_handler or (any_handler and before is not None)
    # Python lets only its main thread handle signals.
    if not usual or threading.current_thread() is not threading.main_thread():
        yield lambda: ""
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    pressed: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda signum, frame: pressed.append((signum, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            before(*pressed[0])


class InterruptedRecording:
    """Attaches what was measured to a KeyboardInterrupt that leaves the block, as ``recording``.

    It attaches :attr:`recording` if that is set, and otherwise the result of ``trials()``: the
    recording of the trials so far.
    """

    def __init__(self, trials: Callable[[], Recording | None]) -> None:
        self.recording: Recording | None = None
        self._trials = trials

    def __enter__(self) -> InterruptedRecording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            error.recording = self.recording or self._trials()  # type: ignore[attr-defined]
