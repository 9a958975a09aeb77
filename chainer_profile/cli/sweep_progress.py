"""What is said while a sweep goes on, on standard error."""

from __future__ import annotations

import shutil
import sys
from time import monotonic
from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_duration, format_significant, roughly
from chainer_profile.basics.words import PROG
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from chainer_profile.record.digest import Run

#: Clears the line of a terminal, and goes to its begin.
_CLEAR = "\r\x1b[K"


class SweepProgress:
    """A line for every case that has ended; on a terminal one more, which is redrawn.

    Redrawn only every few seconds: the machine is measuring.
    """

    def __init__(self, total: int, done: int, quiet: bool) -> None:
        self._total, self._done, self._quiet = total, done, quiet
        self._live = not quiet and sys.stderr.isatty()
        self._seconds: list[float] = []
        self._running: dict[str, float] = {}
        self._workers = 1
        self._said_none = False

    def __enter__(self) -> SweepProgress:
        if self._done:
            self.say(f"{self._done} of {self._total} cases are done already")
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def say(self, text: str) -> None:
        """A line of its own."""
        if not self._quiet:
            self._clear()
            print(f"{PROG}: {printable(text)}", file=sys.stderr, flush=True)

    def begun(self, name: str) -> None:
        """A case was handed to a worker."""
        self._running[name] = monotonic()
        self._draw()

    def waiting(self, workers: int) -> None:
        """Nothing was heard for some seconds, from so many workers."""
        if not workers and not self._said_none:
            self.say("no worker is there; waiting for one")
        self._said_none = not workers
        self._workers = max(1, workers)
        self._draw()

    def again(self, name: str, error: str) -> None:
        """A case is tried once more."""
        self._running.pop(name, None)
        self.say(f"{name}: {error}; it is tried once more")

    def ended(self, result: Run, seconds: float) -> None:
        """A case has come to its end, and took so long."""
        self._running.pop(result.name, None)
        self._done += 1
        self._seconds.append(seconds)
        if result.error:
            said = f"failed: {result.error}"
        else:
            digest = result.digest
            times = format_duration(digest.median_s), format_duration(digest.std_s)
            said = f"{times[0]}, std {times[1]}, {format_significant(digest.fps)} FPS"
        left = self._left()
        self.say(f"[{self._done}/{self._total}] {result.name}: {said}{left and f' ({left})'}")

    def _left(self) -> str:
        """About how long it will take, by the cases so far; empty while nobody knows."""
        count = self._total - self._done
        if not self._seconds or not count:
            return ""
        # Several cases at a time: so many have their time at once.
        workers = max(1, min(max(len(self._running), self._workers), count))
        seconds = sum(self._seconds) / len(self._seconds) * count / workers
        return f"about {roughly(seconds)} left"

    def _draw(self) -> None:
        if not self._live or not self._running:
            return
        now = monotonic()
        running = ", ".join(
            f"{name} ({roughly(now - begin)})" for name, begin in self._running.items()
        )
        left = self._left()
        text = f"{self._done} of {self._total} done{left and f', {left}'}; running {running}"
        width = shutil.get_terminal_size().columns - 1
        print(f"{_CLEAR}{printable(text)[:width]}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._live:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
