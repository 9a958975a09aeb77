"""The times of a whole trial; those of another engine's in its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_change,
    format_duration,
    format_interval,
    format_percent,
    format_significant,
    plural,
)
from chainer_profile.report.text import between

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.basics.describe import Statistics
    from chainer_profile.report.text import Row


def total_rows(summary: Summary) -> Iterator[Row]:
    """The times of a whole trial that are known, and beside each what is to be said of it."""
    for name, figure, more in _all(summary):
        if figure != NOT_KNOWN:
            yield name, f"{figure} ({more})" if more else figure


def _all(summary: Summary) -> Iterator[tuple[str, str, str]]:
    found, recording = summary.totals, summary.recording
    clean, profiled, trial = found.clean, found.profiled, found.trial
    which = "Clean" if clean else "Profiled"
    if found.every is not None:
        which, clean = "Any", found.every
    mean_of = which if clean else "Clean"
    yield f"{which} trial, median", *_median(trial)
    yield f"{which} trial, 95th percentile", format_duration(trial.p95_s if trial else None), ""
    yield f"{mean_of} trial, mean", format_duration(clean.mean_s if clean else None), ""
    if found.fps is not None:
        of = "" if clean else "profiled trials"
        yield "Inputs per second (FPS)", format_significant(found.fps), of
    yield "Profiled trial, mean", format_duration(profiled.mean_s if profiled else None), ""
    engine, on_device = recording.settings.engine, recording.on_device
    share, framework, part = found.framework_share, found.framework, "of the profiled trial"
    known = found.layers_s is not None and share is not None
    yield (
        f"Sum of the {'nodes' if engine else 'layers'}" + (", on the GPU" if on_device else ""),
        format_duration(found.layers_s),
        f"{format_percent(1 - share)} {part}" if known and share is not None else "",
    )
    if known and framework is not None:
        where = "between the functions"
        if engine or on_device:
            where = "between the nodes" if engine else "beside the layers"
        time, of_trial = format_duration(framework.mean_s), f"{format_percent(share)} {part}"
        yield f"{between(recording).capitalize()} ({where})", time, of_trial
    if found.overhead is not None:
        low, high = format_change(found.overhead.low), format_change(found.overhead.high)
        interval = "" if low == NOT_KNOWN else f"95 % interval {low} to {high}"
        yield "Added by the recorder", format_change(found.overhead.fraction), interval


def _median(statistics: Statistics | None) -> tuple[str, str]:
    """A median; its interval, and of how many trials."""
    if statistics is None:
        return NOT_KNOWN, ""
    interval = format_interval(statistics.ci_low_s, statistics.ci_high_s)
    trials = plural(statistics.count, "trial")
    said = f"95 % interval {interval}, {trials}"
    if interval == NOT_KNOWN:
        said = f"{trials}: too few for an interval"
    return format_duration(statistics.median_s), said
