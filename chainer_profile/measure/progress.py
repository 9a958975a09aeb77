"""The progress bar of a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_duration

if TYPE_CHECKING:
    from chainer_profile.measure.trials import Progress


class ProgressBar:
    """A progress bar on standard error, where that is a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._hidden = quiet or not sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._hidden:
            return lambda done, total, mean_s: None
        from time import monotonic

        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        # Redrawn between trials only: a thread of its own would disturb them.
        self._bar = Progress(
            TextColumn("profiling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("mean {task.fields[mean]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._bar.start()
        begin = shown = monotonic()
        task = self._bar.add_task("", total=None, rate="", mean="-")

        def update(done: int, total: int, mean_s: float) -> None:
            nonlocal shown
            now = monotonic()
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
        if not self._hidden:
            self._bar.stop()
