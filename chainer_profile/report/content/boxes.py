"""Pictures made of boxes: the parts of a trial, and its links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import pandas as pd

from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_duration, format_percent
from chainer_profile.report.document import Box, Boxes
from chainer_profile.report.rows import shares, tree_rows
from chainer_profile.report.text import printable

#: A part of a bar: its name, how much it is, that in words, and its kind.
Part = tuple[str, float, str, str]
#: Functions that have a colour of their own.
MAX_COLOURS = 7
#: Narrower boxes are left out, and so are more of them or deeper ones.
LEAST_WIDTH, _MOST_LEVELS, _MOST_BOXES = 0.0015, 6, 500
#: Narrower ones have no name.
_LEAST_NAMED_WIDTH = 0.03


def parts(summary: Summary) -> Iterator[Boxes]:
    """One bar: the parts of a trial that functions and the framework take."""
    every, names = shares(summary), [printable(str(name)) for name in summary.functions.index]
    colours = {name: series(at) for at, name in enumerate(names[:MAX_COLOURS])}
    others = names[MAX_COLOURS:]
    kept = [
        (name, share, colours.get(name, "between"))
        for name, share in every
        if share >= 0.01 and (name in colours or name not in others)
    ]
    rest = 1 - sum(share for _, share, _ in kept)
    if every and rest > 0.001:
        kept.append(("all else", rest, "other"))
    yield from bar(
        "Where the time of a trial goes",
        [(name, share, format_percent(share), kind) for name, share, kind in kept],
        # What is left out leaves a gap, so each part is as wide as its share.
        at_least=1.0,
    )


def series(at: int) -> str:
    """The kind of a part: a colour of its own, for the first ones."""
    return f"series-{at}" if at < MAX_COLOURS else "other"


def bar(label: str, parts: list[Part], at_least: float = 0.0) -> Iterator[Boxes]:
    """One bar, whose width is the sum of its parts, but no less than an amount.

    Where layers overlap, their shares are more than 1 in sum.
    """
    whole = sum(amount for _, amount, _, _ in parts)
    if whole:
        boxes = list(laid(parts, 1 / max(whole, at_least)))
        yield Boxes(label, boxes, [(box.words, box.kind) for box in boxes])


def laid(
    parts: Iterable[Part], scale: float, left: float = 0.0, row: int = 0, of: str = ""
) -> Iterator[Box]:
    for name, amount, words, kind in parts:
        yield Box(left, amount * scale, kind, f"{of}{name}: {words}", row=row)
        left += amount * scale


def links(summary: Summary) -> Iterator[tuple[str, Boxes]]:
    """The tree of links, as wide as its times: for the whole trial, and for every phase."""
    links, beside = tree_rows(summary, _MOST_LEVELS)
    if len(links) < 2:
        return
    rows = pd.concat([links, beside.drop("profiled trial", errors="ignore")])
    phases = summary.phase_names
    yield from _icicle("All phases" if len(phases) > 1 else "Trial", rows, rows["inclusive_s"])
    for phase in phases if len(phases) > 1 else ():
        yield from _icicle(phase.capitalize(), rows, rows[f"{phase}_inclusive_s"], of_phase=True)


def _icicle(
    name: str, rows: pd.DataFrame, times_s: pd.Series[float], of_phase: bool = False
) -> Iterator[tuple[str, Boxes]]:
    times_s = times_s.clip(lower=0.0)
    whole_s = float(times_s[rows["depth"] == 0].sum())
    if not whole_s:
        return
    least = max(LEAST_WIDTH, sorted(times_s / whole_s)[-_MOST_BOXES:][0])
    boxes = []
    # Where the next link of each level begins.
    ends = [0.0] * (_MOST_LEVELS + 2)
    for row, time in zip(rows.itertuples(), times_s.tolist(), strict=True):
        left, width = ends[row.depth], time / whole_s
        ends[row.depth], ends[row.depth + 1] = left + width, left
        if width < least:
            continue
        words = f"{printable(row.Index)}: {format_duration(time)}, {format_percent(width)}"
        if not (of_phase or math.isnan(row.exclusive_s)):
            words += f"; exclusive {format_duration(row.exclusive_s)}"
        kind = "link" if row.Index.startswith("/") else "beside"
        kind = "link hot" if row.hot > 0 else kind
        shown = printable(row.name or row.Index) if width >= _LEAST_NAMED_WIDTH else ""
        boxes.append(Box(left, width, kind, words, shown, row.depth))
    yield name, Boxes(f"{name}: each link is as wide as its time", boxes)
