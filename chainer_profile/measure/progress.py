"""The progress of a run on standard error: a bar on a terminal, or else lines."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.units import format_count, format_duration, plural, roughly
from chainer_profile.basics.words import PROG

if TYPE_CHECKING:
    from chainer_profile.measure.trials import Progress

#: Seconds between lines if standard error is not a terminal.
_LINE_SECONDS = 10.0
#: Seconds between updates of the bar.
_BAR_SECONDS = 0.5


class ProgressBar:
    """Shows the progress of a run, and messages without damaging the bar."""

    def __init__(
        self,
        quiet: bool,
        max_seconds: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quiet = quiet
        self._max_seconds = math.inf if max_seconds is None else max_seconds
        self._monotonic = monotonic
        self._bar: Any = None

    def say(self, text: str) -> None:
        """Print a line unless ``quiet``."""
        if not self._quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a line, even if ``quiet``."""
        text = f"{PROG}: {text}"
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(text, markup=False, highlight=False)

    def __enter__(self) -> Progress:
        if self._quiet:
            return lambda done, total, mean_s: None
        return self._on_terminal() if sys.stderr.isatty() else self._in_lines()

    def _in_lines(self) -> Progress:
        """Return a function that prints a line every few seconds."""
        begin = last = self._monotonic()

        def update(done: int, total: int, mean_s: float) -> None:
            nonlocal last
            now = self._monotonic()
            if now - last >= _LINE_SECONDS and done < total:
                last = now
                left = min(mean_s * (total - done), max(0.0, self._max_seconds - (now - begin)))
                self.say(
                    f"{format_count(done)} of {plural(total, 'trial')}, mean "
                    f"{format_duration(mean_s)}; about {roughly(left)} left"
                )

        return update

    def _on_terminal(self) -> Progress:
        """Start the bar, and return a function that updates it."""
        from rich import console, progress

        text = progress.TextColumn
        # Refreshed between trials only: a refreshing thread would disturb them.
        self._bar = progress.Progress(
            text("profiling"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            text("{task.fields[rate]}"),
            text("mean {task.fields[mean]}"),
            text("left"),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._bar.start()
        begin = last = self._monotonic()
        task = self._bar.add_task("", total=None, rate="", mean="-")

        def update(done: int, total: int, mean_s: float) -> None:
            nonlocal last
            now = self._monotonic()
            if now - last >= _BAR_SECONDS or done == total:
                last = now
                self._bar.update(
                    task,
                    completed=done,
                    total=total,
                    rate=f"{done / (now - begin):.0f} trials/s",
                    mean=format_duration(mean_s),
                    refresh=True,
                )

        return update

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
