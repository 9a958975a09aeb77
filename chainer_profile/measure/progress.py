"""How far a run is, on standard error: a bar on a terminal, and else a line now and then."""

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

#: Seconds from line to line where standard error is no terminal.
_LINE_SECONDS = 10.0


class ProgressBar:
    """Shows how far a run is."""

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
        if not self._quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """A line of its own, also where nothing else is shown."""
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
        begin = said = self._monotonic()

        def update(done: int, total: int, mean_s: float) -> None:
            nonlocal said
            now = self._monotonic()
            if now - said >= _LINE_SECONDS and done < total:
                said = now
                left = min(mean_s * (total - done), max(0.0, self._max_seconds - (now - begin)))
                self.say(
                    f"{format_count(done)} of {plural(total, 'trial')}, mean "
                    f"{format_duration(mean_s)}; about {roughly(left)} left"
                )

        return update

    def _on_terminal(self) -> Progress:
        from rich import console, progress

        text = progress.TextColumn
        # Redrawn between trials only: a thread of its own would disturb them.
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
        begin = shown = self._monotonic()
        task = self._bar.add_task("", total=None, rate="", mean="-")

        def update(done: int, total: int, mean_s: float) -> None:
            nonlocal shown
            now = self._monotonic()
            if now - shown >= 0.5 or done == total:
                shown = now
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
