"""The times of a whole trial; those of another engine's in its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

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


class Total(NamedTuple):
    """A time of a whole trial: what it is, its value, and what is to be said beside it."""

    name: str
    figure: str
    more: str = ""


def totals(summary: Summary) -> list[Total]:
    """The times of a whole trial that are known."""
    return [total for total in _all(summary) if total.figure != NOT_KNOWN]


def total_rows(summary: Summary) -> list[Row]:
    """The same in two columns: ``6.722 ms (95 % interval 6.718 to 6.726 ms, 1,000 trials)``."""
    return [
        (total.name, f"{total.figure} ({total.more})" if total.more else total.figure)
        for total in totals(summary)
    ]


def _all(summary: Summary) -> Iterator[Total]:
    found, recording = summary.totals, summary.recording
    clean, profiled, trial = found.clean, found.profiled, found.trial
    which = "Clean" if clean else "Profiled"
    if found.every is not None:
        which, clean = "Any", found.every
    yield Total(f"{which} trial, median", *_median(trial))
    yield Total(f"{which} trial, 95th percentile", format_duration(trial.p95_s if trial else None))
    mean_of = which if clean else "Clean"
    yield Total(f"{mean_of} trial, mean", format_duration(clean.mean_s if clean else None))
    if found.fps is not None:
        of = "" if clean else "profiled trials"
        yield Total("Inputs per second (FPS)", format_significant(found.fps), of)
    yield Total("Profiled trial, mean", format_duration(profiled.mean_s if profiled else None))
    engine, on_device = recording.settings.engine, recording.on_device
    share, framework, part = found.framework_share, found.framework, "of the profiled trial"
    known = found.layers_s is not None and framework is not None and share is not None
    yield Total(
        f"Sum of the {'nodes' if engine else 'layers'}" + (", on the GPU" if on_device else ""),
        format_duration(found.layers_s),
        f"{format_percent(1 - share)} {part}" if known and share is not None else "",
    )
    if known and framework is not None:
        where = "between the functions"
        if engine or on_device:
            where = "between the nodes" if engine else "beside the layers"
        yield Total(
            f"{between(summary.recording).capitalize()} ({where})",
            format_duration(framework.mean_s),
            f"{format_percent(share)} {part}",
        )
    if found.overhead is not None:
        low, high = format_change(found.overhead.low), format_change(found.overhead.high)
        interval = "" if low == NOT_KNOWN else f"95 % interval {low} to {high}"
        yield Total("Added by the recorder", format_change(found.overhead.fraction), interval)


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
