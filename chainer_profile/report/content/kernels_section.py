"""Summary -> what the kernels pass says: what the GPU runs for every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.analyse.kernels import kernel_use
from chainer_profile.basics.units import (
    format_bare_percent,
    format_count,
    format_duration,
    format_ms,
    format_percent,
    format_significant,
    plural,
)
from chainer_profile.report.columns import MAX_NAME
from chainer_profile.report.document import Column, Table, text
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.analyse.kernels import KernelUse
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block

#: Names of templates may have thousands of characters; report.json has them all.
_MOST_CHARACTERS = 100
#: Up to here the kernels' sum is no more than the time in which the GPU is busy.
_ALL = 1.02


def kernels(summary: Summary) -> Iterator[Block]:
    """The part of the report on kernels; nothing on a CPU."""
    use = kernel_use(summary.recording)
    if use is None:
        return
    if use.problem:
        yield text(f"Not seen: {use.problem}.")
        return
    yield text(" ".join(_sentences(use)))
    columns = [
        Column("layer", lambda row: _label(summary, row.layer_index), folds=MAX_NAME),
        Column("kernel", lambda row: _short(row.name), folds=MAX_NAME, code=True),
        Column("count", lambda row: _count(row.count)),
        Column("ms", lambda row: format_ms(row.time_s)),
        Column("%", lambda row: format_bare_percent(row.share), bar=lambda row: row.share),
    ]
    yield Table(columns, use.kernels, "What the GPU runs for every layer, a trial")


def _sentences(use: KernelUse) -> Iterator[str]:
    hot = max(use.kernels, key=lambda one: one.time_s)
    yield (
        f"Seen by {use.method} in {plural(use.trials, 'trial')} behind all others: kernels, copies "
        f"and fills run for {format_duration(use.time_s)} a trial. The longest is "
        f"{_short(hot.name)}, {format_percent(hot.share)} of it."
    )
    if use.busy_share is not None:
        rest = (
            "the rest lies between kernels"
            if use.busy_share <= _ALL
            else "that is more than all, so some ran beside others, or its clock was lower here"
        )
        yield (
            f"Those of the layers add up to {format_percent(use.busy_share)} of the time that the "
            f"GPU is busy in the layers; {rest}."
        )
    if use.known_share is not None:
        yield f"{format_percent(use.known_share)} of them have a layer."
    if use.dropped:
        lost = plural(use.dropped, "record")
        yield f"CUPTI had no room for {lost}: what they tell of is missing, or has no layer."


def _count(count: float) -> str:
    return format_count(int(count)) if count.is_integer() else format_significant(count)


def _label(summary: Summary, row: int | None) -> str:
    return "(no layer)" if row is None else printable(summary.recording.layers[row].label)


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}..."
