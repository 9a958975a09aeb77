"""Ranks -> what the page of ranks has beside its report: a bar for each, and one rank's layers."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_duration
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.ranks.merging import OUTSIDE
from chainer_profile.report.content.ranks import rank_name
from chainer_profile.report.page.boxes import MAX_COLOURS, rows_of_boxes
from chainer_profile.report.page.data import to_json
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.ranks.merging import Ranks

#: Ranks that have a bar; of more those that compute longest and those that do shortest.
_MOST_BARS = 16
_BETWEEN = "between collectives"


def with_ranks(context: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """The context of a document with the bars, the choice of a rank, and the data for it."""
    (name, heading, said), *others = context["sections"]
    options = "".join(
        f"<option value={at}>{escape(rank_name(ranks, at))}</option>"
        for at in range(len(ranks.ranks))
    )
    chooser = Markup(
        '<div class="chooser"><label for="rank">Layers of</label><select id="rank">'
        f'<option value="-1">all ranks</option>{options}</select></div>'
        '<div id="rank-table" class="scroll large" tabindex="0" role="group" '
        'aria-label="Layers of the chosen rank"></div>'
        '<p class="caption">Times are medians of the iterations, in ms. Others is the median of '
        "the other ranks. A hot row is a straggler.</p>"
    )
    sections = [(name, heading, said + _bars(ranks)), *others]
    return context | {
        "sections": [*sections, ("layers-by-rank", "Layers by rank", chooser)],
        "data": to_json(_data(ranks)),
    }


def _data(ranks: Ranks) -> dict[str, Any]:
    """Names of the layers, and their times on every rank and elsewhere in ms, a list a rank."""
    times = np.median(ranks.self_ns, axis=1) * NS
    others = np.full_like(times, np.nan)
    others[:, ranks.computing] = ranks.judged.elsewhere_s
    columns = ("path", "function", "phase")
    return {
        "names": {
            name: [printable(getattr(layer, name)) for layer in ranks.layers] for name in columns
        },
        "ranks": [rank_name(ranks, at) for at in range(len(ranks.ranks))],
        "here": _ms(times),
        "others": _ms(others),
        "hot": [[one.rank, ranks.computing[one.layer]] for one in ranks.judged.stragglers],
    }


def _ms(times_s: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[list[float | None]]:
    """Milliseconds with 4 decimals, as tables have them; None where nothing is known."""
    return [
        [None if np.isnan(value) else float(value) for value in row]
        for row in np.round(times_s * 1e3, 4)
    ]


def _bars(ranks: Ranks) -> Markup:
    """One bar a rank: the phases of its iteration, communication as waiting and moving."""
    parts = {name: (colour, times) for name, colour, times in _parts(ranks)}
    busy = np.median(ranks.computing_ns, axis=1)
    chosen = np.arange(len(busy))
    if len(busy) > _MOST_BARS:
        order = np.argsort(-busy, kind="stable")
        chosen = np.concatenate([order[: _MOST_BARS // 2], order[-(_MOST_BARS // 2) :]])
    rows = [
        (
            f"rank {ranks.ranks[at].number}",
            [
                (f"{name}: {format_duration(times[at])}", float(times[at]), colour)
                for name, (colour, times) in parts.items()
            ],
        )
        for at in chosen.tolist()
    ]
    legend = [(name, colour) for name, (colour, _) in parts.items()]
    half = _MOST_BARS // 2
    cut = (
        f"The {half} ranks of {len(busy)} that compute longest, and the {half} that do shortest."
        if len(busy) > _MOST_BARS
        else "An iteration on each rank."
    )
    said = f"{cut} Medians of the iterations."
    return rows_of_boxes(said, rows, legend) + Markup('<p class="caption">{}</p>').format(said)


def _parts(ranks: Ranks) -> Iterator[tuple[str, str, np.ndarray[Any, np.dtype[np.float64]]]]:
    """The parts of an iteration, their colours and their median times on every rank."""
    number = 0
    for at, phase in enumerate(ranks.phases):
        found = {printable(phase): ranks.phase_ns[:, :, at]}
        if phase == COMMUNICATION and ranks.collectives:
            waiting, moving = (x.sum(axis=2) for x in (ranks.waiting_ns, ranks.moving_ns))
            found = {"waiting": waiting, "moving": moving, _BETWEEN: ranks.between_ns}
        for name, times in found.items():
            colour = "between" if name in (OUTSIDE, _BETWEEN) else ""
            yield name, colour or f"series-{number % MAX_COLOURS}", np.median(times, axis=1) * NS
            number += not colour
