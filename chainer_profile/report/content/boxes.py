"""Pictures made of boxes: bars of the parts of a trial, and the tree of links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import pandas as pd

from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_duration, format_percent
from chainer_profile.report.document import Box, Boxes
from chainer_profile.report.rows import shares, tree_rows
from chainer_profile.report.text import printable

#: A part of a bar: its name, its amount, the amount as text, and its kind of box.
Part = tuple[str, float, str, str]
#: Most functions with their own colour.
MAX_COLOURS = 7
#: Smallest width of a box as a fraction of the picture; most levels and boxes of a tree.
MIN_WIDTH, _MAX_LEVELS, _MAX_BOXES = 0.0015, 6, 500
#: Smallest width of a box with a name.
_MIN_NAMED_WIDTH = 0.03


def parts(summary: Summary) -> Iterator[Boxes]:
    """A bar of the parts of a trial: functions, the framework, and the rest."""
    all_shares, names = shares(summary), [printable(str(name)) for name in summary.functions.index]
    colours = {name: series(index) for index, name in enumerate(names[:MAX_COLOURS])}
    others = names[MAX_COLOURS:]
    coloured = [
        (name, share, colours.get(name, "between"))
        for name, share in all_shares
        if share >= 0.01 and (name in colours or name not in others)
    ]
    rest = 1 - sum(share for _, share, _ in coloured)
    if all_shares and rest > 0.001:
        coloured.append(("all else", rest, "other"))
    yield from bar(
        "Where the time of a trial goes",
        [(name, share, format_percent(share), kind) for name, share, kind in coloured],
        # Omitted parts leave a gap, so that each part is as wide as its share.
        at_least=1.0,
    )


def series(at: int) -> str:
    """The kind of box of a part; the first :data:`MAX_COLOURS` parts have their own colour."""
    return f"series-{at}" if at < MAX_COLOURS else "other"


def bar(label: str, parts: list[Part], at_least: float = 0.0) -> Iterator[Boxes]:
    """A stacked bar; nothing if all parts are 0.

    The full width is the sum of the parts, or ``at_least`` if that is larger. The sum of shares is
    above 1 if layers overlap.
    """
    whole = sum(amount for _, amount, _, _ in parts)
    if whole:
        boxes = list(stacked(parts, 1 / max(whole, at_least)))
        yield Boxes(label, boxes, [(box.tooltip, box.kind) for box in boxes])


def stacked(
    parts: Iterable[Part], scale: float, left: float = 0.0, row: int = 0, prefix: str = ""
) -> Iterator[Box]:
    """Yield boxes side by side from ``left`` on; ``prefix`` begins their tooltips.

    The width of a box is the amount of its part times ``scale``.
    """
    for name, amount, amount_text, kind in parts:
        yield Box(left, amount * scale, kind, f"{prefix}{name}: {amount_text}", row=row)
        left += amount * scale


def links(summary: Summary) -> Iterator[tuple[str, Boxes]]:
    """Pictures of the tree of links with their titles: for the whole trial and for each phase."""
    links, other_rows = tree_rows(summary, _MAX_LEVELS)
    if len(links) < 2:
        return
    rows = pd.concat([links, other_rows.drop("profiled trial", errors="ignore")])
    phases = summary.phase_names
    yield from _icicle("All phases" if len(phases) > 1 else "Trial", rows, rows["inclusive_s"])
    for phase in phases if len(phases) > 1 else ():
        yield from _icicle(phase.capitalize(), rows, rows[f"{phase}_inclusive_s"], of_phase=True)


def _icicle(
    name: str, rows: pd.DataFrame, times_s: pd.Series[float], of_phase: bool = False
) -> Iterator[tuple[str, Boxes]]:
    """Draw each link with a width proportional to its time, below the link that contains it.

    ``of_phase`` omits exclusive times, which are known for the whole trial only.
    """
    times_s = times_s.clip(lower=0.0)
    whole_s = float(times_s[rows["depth"] == 0].sum())
    if not whole_s:
        return
    min_width = max(MIN_WIDTH, sorted(times_s / whole_s)[-_MAX_BOXES:][0])
    boxes = []
    # The left edge of the next link of each level.
    ends = [0.0] * (_MAX_LEVELS + 2)
    for row, time in zip(rows.itertuples(), times_s.tolist(), strict=True):
        left, width = ends[row.depth], time / whole_s
        ends[row.depth], ends[row.depth + 1] = left + width, left
        if width < min_width:
            continue
        tooltip = f"{printable(row.Index)}: {format_duration(time)}, {format_percent(width)}"
        if not (of_phase or math.isnan(row.exclusive_s)):
            tooltip += f"; exclusive {format_duration(row.exclusive_s)}"
        kind = "link" if row.Index.startswith("/") else "beside"
        kind = "link hot" if row.hot > 0 else kind
        text = printable(row.name or row.Index) if width >= _MIN_NAMED_WIDTH else ""
        boxes.append(Box(left, width, kind, tooltip, text, row.depth))
    yield name, Boxes(f"{name}: each link is as wide as its time", boxes)
