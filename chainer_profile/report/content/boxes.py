"""Pictures made of boxes: the parts of a trial, its links, the trial in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.analyse.timeline import FUNCTION, lay_out, median_trial
from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_duration, format_nbytes, format_percent
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.ranks.merging import OUTSIDE
from chainer_profile.report.content.answer import shares
from chainer_profile.report.content.budget import budget_rows
from chainer_profile.report.content.memory_section import memory_parts
from chainer_profile.report.document import Box, Boxes
from chainer_profile.report.rows import tree_rows
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.ranks.merging import Ranks
    from chainer_profile.record.budget import Budget
    from chainer_profile.report.rows import LinkRow

    #: A part of a bar: its name, how much it is, that in words, and its kind.
    Part = tuple[str, float, str, str]

#: Functions that have a colour of their own.
MAX_COLOURS = 7
#: Narrower boxes are left out, and so are more of them or deeper ones.
_LEAST, _LEVELS, _MOST = 0.0015, 6, 500
#: Narrower ones have no name.
_NAMED = 0.03
#: Room for a row's name.
_BESIDE = 0.1
#: Ranks that have a bar; of more those that compute longest and those that do shortest.
_MOST_BARS = 16
_BETWEEN = "between collectives"


def _colours(summary: Summary) -> dict[str, str]:
    """The functions that take the most time, and their kinds."""
    names = [printable(str(name)) for name in summary.functions.index[:MAX_COLOURS]]
    return {name: f"series-{at}" for at, name in enumerate(names)}


def parts(summary: Summary) -> Iterator[Boxes]:
    """One bar: the functions' parts of a trial and what is between them."""
    colours, found = _colours(summary), shares(summary)
    others = {printable(str(name)) for name in summary.functions.index[MAX_COLOURS:]}
    kept = [
        (name, share, colours.get(name, "between"))
        for name, share in found
        if share >= 0.01 and (name in colours or name not in others)
    ]
    rest = 1 - sum(share for _, share, _ in kept)
    if found and rest > 0.001:
        kept.append(("all else", rest, "other"))
    yield from _bar(
        "Where the time of a trial goes",
        [(name, share, format_percent(share), kind) for name, share, kind in kept],
    )


def program(budget: Budget) -> Iterator[Boxes]:
    """One bar: where the time of a whole program went."""
    rows = [row for row in budget_rows(budget) if row.level == 0][:-1]
    yield from _bar(
        "Where the time of the program went",
        [
            (row.name, row.share, format_percent(row.share), _series(at))
            for at, row in enumerate(rows)
            if row.share >= _LEAST
        ],
    )


def memory(summary: Summary) -> Iterator[Boxes]:
    """One bar: what there is at the peak of a trial; nothing where it is not known."""
    yield from _bar(
        "Memory at the peak of a trial",
        [
            (name, float(nbytes), format_nbytes(nbytes), _series(at))
            for at, (name, nbytes) in enumerate(memory_parts(summary))
        ],
    )


def _series(at: int) -> str:
    return f"series-{at}" if at < MAX_COLOURS else "other"


def _bar(label: str, parts: list[Part]) -> Iterator[Boxes]:
    """One bar, as wide as there is room; where layers overlap, its parts are more than a whole."""
    whole = sum(amount for _, amount, _, _ in parts)
    if whole:
        boxes = list(_laid(parts, 1 / whole))
        yield Boxes(label, boxes, [(box.said, box.kind) for box in boxes])


def _laid(
    parts: Iterable[Part], scale: float, left: float = 0.0, row: int = 0, of: str = ""
) -> Iterator[Box]:
    """Parts one behind the other."""
    for name, amount, said, kind in parts:
        yield Box(left, amount * scale, kind, f"{of}{name}: {said}", row=row)
        left += amount * scale


def ranks(ranks: Ranks) -> Boxes:
    """One bar a rank: the phases of its iteration, communication as waiting and moving."""
    parts, chosen, half = list(_rank_parts(ranks)), shown_ranks(ranks), _MOST_BARS // 2
    said = "An iteration on each rank."
    if len(chosen) < len(ranks.ranks):
        said = (
            f"The {half} of {len(ranks.ranks)} ranks that compute longest, and the {half} shortest."
        )
    longest = max(sum(times[at] for _, _, times in parts) for at in chosen) or 1.0
    boxes: list[Box] = []
    for row, at in enumerate(chosen):
        name = f"rank {ranks.ranks[at].number}"
        boxes.append(Box(0.0, _BESIDE, "beside", name, name, row))
        of_rank = [
            (part, float(times[at]), format_duration(times[at]), kind)
            for part, kind, times in parts
        ]
        boxes += _laid(of_rank, (1 - _BESIDE) / longest, _BESIDE, row, f"{name}, ")
    legend = [(name, kind) for name, kind, _ in parts]
    return Boxes(said, boxes, legend, f"{said} Medians of the iterations.")


def shown_ranks(ranks: Ranks) -> list[int]:
    """Places of the ranks; of many those that compute longest and those that do shortest."""
    busy, half = np.median(ranks.computing_ns, axis=1), _MOST_BARS // 2
    if len(busy) <= _MOST_BARS:
        return list(range(len(busy)))
    order = np.argsort(-busy, kind="stable").tolist()
    return [*order[:half], *order[-half:]]


def _rank_parts(ranks: Ranks) -> Iterator[tuple[str, str, np.ndarray]]:
    """The parts of an iteration, their kinds and their median times on every rank."""
    number = 0
    for at, phase in enumerate(ranks.phases):
        found = {printable(phase): ranks.phase_ns[:, :, at]}
        if phase == COMMUNICATION and ranks.collectives:
            waiting, moving = (x.sum(axis=2) for x in (ranks.waiting_ns, ranks.moving_ns))
            found = {"waiting": waiting, "moving": moving, _BETWEEN: ranks.between_ns}
        for name, times in found.items():
            kind = "between" if name in (OUTSIDE, _BETWEEN) else f"series-{number % MAX_COLOURS}"
            yield name, kind, np.median(times, axis=1) * NS
            number += kind != "between"


def links(summary: Summary) -> Iterator[tuple[str, Boxes]]:
    """The tree of links, as wide as its times: for the whole trial, and for every phase."""
    rows, beside = tree_rows(summary, _LEVELS)
    if len(rows) < 2:
        return
    rows += [row for row in beside if row.name != "profiled trial"]
    phases = summary.phase_names
    wholes = [("All phases" if len(phases) > 1 else "Trial", None)]
    by_phase = [(printable(phase).capitalize(), at) for at, phase in enumerate(phases)]
    for name, at in wholes + (by_phase if len(phases) > 1 else []):
        boxes = list(_icicle(rows, at))
        if boxes:
            yield name, Boxes(f"{name}: links, as wide as their times", boxes)


def _icicle(rows: list[LinkRow], phase: int | None) -> Iterator[Box]:
    times = [max(0.0, row.inclusive_s if phase is None else row.phases_s[phase]) for row in rows]
    whole_s = sum(time for row, time in zip(rows, times, strict=True) if row.depth == 0)
    if not whole_s:
        return
    least = max(_LEAST, min(sorted(time / whole_s for time in times)[-_MOST:]))
    # Where the next link of each level begins.
    ends = [0.0] * (_LEVELS + 2)
    for row, time in zip(rows, times, strict=True):
        left, width = ends[row.depth], time / whole_s
        ends[row.depth], ends[row.depth + 1] = left + width, left
        if width < least:
            continue
        said = f"{row.path}: {format_duration(time)}, {format_percent(width)}"
        if row.exclusive_s is not None and phase is None:
            said += f"; by itself {format_duration(row.exclusive_s)}"
        kind = "link hot" if row.hot else "link" if row.path.startswith("/") else "beside"
        name = row.name or row.path
        yield Box(left, width, kind, said, name if width >= _NAMED else "", row.depth)


def timeline(summary: Summary) -> Iterator[Boxes]:
    """The median trial in time: a box for every call, and gaps where Python and Chainer run."""
    recording = summary.recording
    if recording.settings.inclusive:
        return
    trial = lay_out(recording, median_trial(recording))
    whole, colours = trial.duration_ns, _colours(summary)
    boxes = []
    for depth, one in trial.walk((FUNCTION,)) if whole else ():
        if one.layer is None or depth > _LEVELS:
            continue
        layer = recording.layers[one.layer]
        time = format_duration(one.duration_ns * NS)
        said = f"{printable(layer.label)} at {printable(layer.path)}: {time}"
        kind = colours.get(printable(layer.function), "other")
        boxes.append(Box(one.begin_ns / whole, one.duration_ns / whole, kind, said, row=depth))
    if boxes:
        length = format_duration(whole * NS)
        yield Boxes(
            f"The median trial in time: {length}",
            boxes,
            caption=f"The median profiled trial, {length} from left to right: a box for every call "
            "in the colour of its function above, and between them what is none. Lengths are "
            "measured, places are worked out from the order of the calls.",
        )
