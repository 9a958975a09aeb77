"""The ranks of a training -> their blocks, the answer first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from chainer_profile.basics import units
from chainer_profile.basics.describe import NS
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.comparison.significance import Floats
from chainer_profile.ranks.merging import OUTSIDE, Ranks
from chainer_profile.report import document as doc
from chainer_profile.report.content import rank_tables as tables
from chainer_profile.report.content.boxes import MAX_COLOURS, stacked
from chainer_profile.report.content.rank_texts import time_texts, title, verdict
from chainer_profile.report.text import printable

#: Width of the names before the bars, as a fraction of the whole width.
_NAME_WIDTH = 0.1
_BETWEEN = "between collectives"


def overview(ranks: Ranks, limit: int | None = None, hint: str = "") -> Iterator[doc.Block]:
    """The blocks of a terminal.

    Args:
        ranks: The ranks.
        limit: Most rows of a table; None for all.
        hint: How to see the omitted rows.
    """
    return doc.blocks_in_form(doc.FULL, _sections(ranks, limit, hint))


def report(ranks: Ranks, limit: int | None = None) -> list[doc.Block]:
    return [doc.Heading(1, title(ranks)), *doc.blocks_in_form(doc.REPORT, _sections(ranks, limit))]


def page(ranks: Ranks, limit: int | None = None) -> list[doc.Block]:
    """The report with a bar for each rank, and the layers of all ranks."""
    return [doc.Heading(1, title(ranks)), *doc.blocks_in_form(doc.PAGE, _sections(ranks, limit))]


def _sections(ranks: Ranks, limit: int | None = None, hint: str = "") -> list[doc.Section]:
    files = doc.text(
        *("All layers of all ranks: ", doc.file(tables.LAYERS), "; the collectives: "),
        doc.file(tables.COLLECTIVES),
    )
    return [
        doc.Section("", _answer(ranks)),
        doc.Section("", _bars(ranks), (doc.PAGE,)),
        doc.Section("Ranks", [tables.rank_table(ranks, limit, hint)]),
        doc.Section("Phases", [tables.phase_table(ranks)]),
        doc.Section("Stragglers", tables.straggler_table(ranks, limit, hint)),
        doc.Section("Collectives", tables.collective_table(ranks, limit, hint)),
        doc.Section("", [files], (doc.REPORT, doc.PAGE)),
        doc.Section("Layers by rank", _layers_by_rank(ranks), (doc.PAGE,)),
    ]


def _answer(ranks: Ranks) -> Iterator[doc.Block]:
    yield doc.text(doc.strong(verdict(ranks)))
    yield from doc.below(time_texts(ranks))
    yield from doc.below(map(printable, ranks.notes), note=True)


def _layers_by_rank(ranks: Ranks) -> Iterator[doc.Block]:
    # Made only for a page: it is large.
    yield tables.layers_by_rank(ranks)


def _bars(ranks: Ranks) -> Iterator[doc.Boxes]:
    """A bar for each rank: the phases of its iteration, communication as waiting and moving."""
    parts, shown, half = list(_rank_parts(ranks)), tables.shown_ranks(ranks), tables.MAX_BARS // 2
    label = "An iteration on each rank."
    if len(shown) < len(ranks.ranks):
        label = (
            f"The {half} of {len(ranks.ranks)} ranks that compute longest, and the {half} shortest."
        )
    longest_s = max(sum(times_s[at] for _, _, times_s in parts) for at in shown) or 1.0
    boxes: list[doc.Box] = []
    for row, at in enumerate(shown):
        name = f"rank {ranks.ranks[at].number}"
        boxes.append(doc.Box(0.0, _NAME_WIDTH, "beside", name, name, row))
        parts_here = [
            (part, float(times_s[at]), units.format_duration(times_s[at]), kind)
            for part, kind, times_s in parts
        ]
        boxes += stacked(parts_here, (1 - _NAME_WIDTH) / longest_s, _NAME_WIDTH, row, f"{name}, ")
    legend = [(name, kind) for name, kind, _ in parts]
    yield doc.Boxes(label, boxes, legend, f"{label} Medians of the iterations.")


def _rank_parts(ranks: Ranks) -> Iterator[tuple[str, str, Floats]]:
    """Name, kind of box, and median seconds on each rank, for each part of an iteration."""
    number = 0
    for index, phase in enumerate(ranks.phases):
        parts_ns = {printable(phase): ranks.phase_ns[:, :, index]}
        if phase == COMMUNICATION and ranks.collectives:
            waiting_ns, moving_ns = (x.sum(axis=2) for x in (ranks.waiting_ns, ranks.moving_ns))
            parts_ns = {"waiting": waiting_ns, "moving": moving_ns, _BETWEEN: ranks.between_ns}
        for name, times_ns in parts_ns.items():
            kind = "between" if name in (OUTSIDE, _BETWEEN) else f"series-{number % MAX_COLOURS}"
            yield name, kind, np.median(times_ns, axis=1) * NS
            number += kind != "between"
