"""Summary -> pictures made of boxes: the parts of a trial, its links, the trial in time.

They are HTML, without a script: they are there at once, and on paper.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from chainer_profile.analyse.timeline import FUNCTION, lay_out, median_trial
from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_duration, format_nbytes, format_percent
from chainer_profile.report.content.answer import shares
from chainer_profile.report.content.budget import budget_rows
from chainer_profile.report.content.memory_section import memory_parts
from chainer_profile.report.rows import phases_of, tree_rows
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.budget import Budget
    from chainer_profile.report.rows import LinkRow

#: Functions that have a colour of their own.
MAX_COLOURS = 7
#: Narrower boxes are left out, and so are more of them or deeper ones.
_LEAST, _LEVELS, _MOST = 0.0015, 6, 500
#: Narrower ones have no name.
_NAMED = 0.03
#: Room for a row's name.
_BESIDE = 0.1


def _colours(summary: Summary) -> dict[str, str]:
    """Classes of the functions that take the most time."""
    names = [printable(str(name)) for name in summary.functions.index[:MAX_COLOURS]]
    return {name: f"series-{at}" for at, name in enumerate(names)}


def parts(summary: Summary) -> Markup:
    """One bar: the functions' parts of a trial and what is between them."""
    colours, found = _colours(summary), shares(summary)
    if not found:
        return Markup("")
    others = {printable(str(name)) for name in summary.functions.index[MAX_COLOURS:]}
    kept = [
        (name, share, colours.get(name, "between"))
        for name, share in found
        if share >= 0.01 and (name in colours or name not in others)
    ]
    rest = 1 - sum(share for _, share, _ in kept)
    if rest > 0.001:
        kept.append(("all else", rest, "other"))
    said = [(f"{name}: {format_percent(share)}", share, colour) for name, share, colour in kept]
    return _stack("Where the time of a trial goes", said)


def budget(budget: Budget) -> Markup:
    """One bar: where the time of a whole program went."""
    rows = [row for row in budget_rows(budget) if row.level == 0][:-1]
    said = [
        (
            f"{row.name}: {format_percent(row.share)}",
            row.share,
            f"series-{at}" if at < MAX_COLOURS else "other",
        )
        for at, row in enumerate(rows)
        if row.share >= _LEAST
    ]
    return _stack("Where the time of the program went", said)


def memory(summary: Summary) -> Markup:
    """One bar: what there is at the peak of a trial; empty where it is not known."""
    found = [
        (f"{name}: {format_nbytes(nbytes)}", float(nbytes), f"series-{at}")
        for at, (name, nbytes) in enumerate(memory_parts(summary))
    ]
    return _stack("Memory at the peak of a trial", found) if found else Markup("")


def _stack(label: str, parts: list[tuple[str, float, str]]) -> Markup:
    """One bar and its legend: of each part what is said, how much it is, and its class."""
    # Where layers overlap, their parts are more than a whole.
    whole = sum(amount for _, amount, _ in parts) or 1.0
    left, boxes, words = 0.0, [], []
    for said, amount, colour in parts:
        boxes.append(_box(left, amount / whole, colour, said))
        words.append(f'<li class="{colour}">{escape(said)}</li>')
        left += amount / whole
    label = escape(f"{label}: {'; '.join(said for said, _, _ in parts)}")
    return Markup(
        f'<div class="boxes one" role="img" aria-label="{label}">{"".join(boxes)}</div>'
        f'<ul class="legend">{"".join(words)}</ul>'
    )


def rows_of_boxes(
    label: str,
    rows: list[tuple[str, list[tuple[str, float, str]]]],
    legend: list[tuple[str, str]],
) -> Markup:
    """A bar for each row on one scale: its name, and of each part what :func:`_stack` takes.

    Args:
        label: What they show.
        rows: The rows.
        legend: The parts' names and classes.
    """
    longest = max((sum(amount for _, amount, _ in parts) for _, parts in rows), default=0.0) or 1.0
    boxes = []
    for row, (name, parts) in enumerate(rows):
        boxes.append(_box(0.0, _BESIDE, "link beside", name, escape(name), row))
        left = _BESIDE
        for said, amount, colour in parts:
            width = (1 - _BESIDE) * amount / longest
            boxes.append(_box(left, width, colour, f"{name}, {said}", row=row))
            left += width
    words = "".join(f'<li class="{colour}">{escape(name)}</li>' for name, colour in legend)
    return Markup(
        f'<div class="boxes" style="height:{24 * len(rows)}px" role="img" '
        f'aria-label="{escape(label)}">{"".join(boxes)}</div>'
        f'<ul class="legend">{words}</ul>'
    )


def icicles(summary: Summary) -> list[tuple[str, str, Markup]]:
    """The tree of links, as wide as its times: for the whole trial, and for every phase."""
    links, beside = tree_rows(summary, _LEVELS)
    if len(links) < 2:
        return []
    phases = phases_of(summary)
    rows = [*links, *(row for row in beside if row.name != "profiled trial")]
    whole = _icicle(rows, None)
    if len(phases) == 1:
        return [("all", "Trial", whole)]
    by_phase = (
        (f"p{at}", printable(phase).capitalize(), _icicle(rows, at))
        for at, phase in enumerate(phases)
    )
    return [("all", "All phases", whole), *by_phase]


def _icicle(rows: list[LinkRow], phase: int | None) -> Markup:
    def time_s(row: LinkRow) -> float:
        return max(0.0, row.inclusive_s if phase is None else row.phases_s[phase])

    whole_s = sum(time_s(row) for row in rows if row.depth == 0)
    if not whole_s:
        return Markup('<p class="muted">No time is known here.</p>')
    widths = [time_s(row) / whole_s for row in rows]
    least = max(_LEAST, min(sorted(widths)[-_MOST:]))
    # Where the next link of each level begins.
    ends = [0.0] * (_LEVELS + 2)
    boxes: list[str] = []
    for row, width in zip(rows, widths, strict=True):
        left = ends[row.depth]
        ends[row.depth] = left + width
        ends[row.depth + 1] = left
        if width < least:
            continue
        time = format_duration(time_s(row))
        said = f"{row.path}: {time}, {format_percent(width)}"
        if row.exclusive_s is not None and phase is None:
            said += f"; by itself {format_duration(row.exclusive_s)}"
        name = escape(row.name or row.path) if width >= _NAMED else ""
        kind = "link hot" if row.hot else "link" if row.path.startswith("/") else "link beside"
        boxes.append(_box(left, width, kind, said, name, row.depth))
    levels = 1 + max(row.depth for row, width in zip(rows, widths, strict=True) if width >= least)
    return Markup(
        f'<div class="boxes" style="height:{24 * levels}px" role="img" aria-label="Tree of links, '
        f'as wide as their times; the table below has the same figures">{"".join(boxes)}</div>'
    )


def timeline(summary: Summary) -> Markup:
    """The median trial in time: a box for every call, and gaps where Python and Chainer run."""
    recording = summary.recording
    if recording.settings.inclusive:
        return Markup("")
    trial = lay_out(recording, median_trial(recording))
    whole = trial.duration_ns
    if not whole:
        return Markup("")
    colours = _colours(summary)
    boxes, rows = [], 1
    for depth, one in trial.walk((FUNCTION,)):
        if one.layer is None or depth > _LEVELS:
            continue
        layer = recording.layers[one.layer]
        said = (
            f"{printable(layer.label)} at {printable(layer.path)}: "
            f"{format_duration(one.duration_ns * NS)}"
        )
        colour = colours.get(printable(layer.function), "other")
        left, width = one.begin_ns / whole, one.duration_ns / whole
        rows = max(rows, 1 + depth)
        boxes.append(_box(left, width, colour, said, row=depth))
    length = format_duration(whole * NS)
    return Markup(
        f'<div class="boxes time" style="height:{24 * rows}px" role="img" '
        f'aria-label="The median trial in time: {length}">'
        f"{''.join(boxes)}</div>"
        f'<p class="caption">The median profiled trial, {length} from left to right: a box for '
        "every call in the colour of its function above, and between them what is none. Lengths "
        "are measured, places are worked out from the order of the calls.</p>"
    )


def _box(left: float, width: float, kind: str, said: str, name: str = "", row: int = 0) -> str:
    top = f";top:{24 * row}px" if row else ""
    return (
        f'<i class="{kind}" style="left:{100 * left:.2f}%;width:{100 * width:.2f}%{top}" '
        f'title="{escape(said)}">{name}</i>'
    )
