"""SIGINT and SIGTERM: during the trials they end the run in good order, otherwise the program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(BaseException):
    """A signal ended the program.

    Attributes:
        signum: The signal; the exit code is 128 + signum, as a shell would give it.
        hint: What the user can do now, to end a message with; or empty.
    """

    hint = ""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Interrupts:
    """Handles SIGINT and SIGTERM within its ``with``; then whoever did before does again.

    Attributes:
        signum: The signal that ended the trials; 0 if none did.
    """

    def __init__(self) -> None:
        self.signum = 0
        self._measuring = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(self, *raised: object) -> None:
        for signum, handler in self._before.items():
            # None is a handler that C set, which cannot be told to Python.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Within this, whoever handled signals before does so again."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        # The first signal waits for the end of the running trial; a second one does not.
        if not self._measuring or self.signum:
            raise Interrupted(signum)
        self.signum = signum

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Within this, a signal does not raise: :meth:`reason` tells of it."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def reason(self) -> str:
        """Why to stop the trials, or an empty text."""
        return f"interrupted by {signal.Signals(self.signum).name}" if self.signum else ""
