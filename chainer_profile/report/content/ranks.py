"""The ranks of a training -> what is said of them, the answer first; and their two CSV files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_bare_percent,
    format_count,
    format_duration,
    format_exact,
    format_exact_ms,
    format_exact_percent,
    format_factor,
    format_ms,
    format_nbytes,
    format_percent,
    format_significant,
    plural,
)
from chainer_profile.comparison.compare import MIN_TRIALS
from chainer_profile.report.csv_file import safe, table_text
from chainer_profile.report.document import (
    HOT,
    TOTAL,
    Column,
    Heading,
    file,
    strong,
    text,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.text import model_name, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chainer_profile.ranks.merging import Ranks
    from chainer_profile.ranks.stragglers import Straggler
    from chainer_profile.report.document import Block

#: The files beside the report.
LAYERS, COLLECTIVES, TRACE = "ranks.csv", "collectives.csv", "ranks-trace.json"
#: Findings that the answer names.
_NAMED = 3
#: Smaller parts of the longest straggler are not among them: they may be what it brings about.
_LARGE = 0.2

#: The columns of :data:`LAYERS`, a row for each layer of each rank.
LAYER_COLUMNS = {
    "rank": "Number of the rank",
    "index": "Index of the layer",
    "path": "Path of its link",
    "function": "Name of its function",
    "phase": "Its phase",
    "median_ms": "Median self time on this rank",
    "others_ms": "Median over the iterations of the other ranks' median; empty for communication",
    "excess_ms": "Median of the difference in every iteration; likewise",
    "mean_excess_ms": "Mean of the difference; likewise",
    "late_excess_ms": "Difference of the 95th percentiles; likewise",
    "straggler": "yes where it takes longer here beyond noise",
}
#: The columns of :data:`COLLECTIVES`, a row for each collective of each rank.
COLLECTIVE_COLUMNS = {
    "order": "Place among the collectives of an iteration, from 1",
    "path": "Path of the parameter or of the bucket",
    "function": "Name of the collective",
    "nbytes": "Bytes of its buffer",
    "rank": "Number of the rank",
    "waiting_ms": "Median time that the rank waited for the last one",
    "moving_ms": "Median of the rest of its time there",
    "last_percent": "Part of the iterations in which it came last",
    "mb_per_s": "Bytes over the median moving time of the last to come, in millions a second",
}


def report(ranks: Ranks, limit: int | None = None) -> list[Block]:
    """The report of the ranks; see :func:`merged`."""
    return [
        Heading(1, title(ranks)),
        *merged(ranks, limit),
        text(
            *("All layers of all ranks, with all digits: ", file(LAYERS), "; the collectives: "),
            *(file(COLLECTIVES), "; one iteration in time, for Perfetto: ", file(TRACE)),
        ),
    ]


def title(ranks: Ranks) -> str:
    """What was run: ``net on 4 ranks``."""
    return f"{model_name(ranks.settings)} on {plural(ranks.size, 'rank')}"


def rank_name(ranks: Ranks, at: int) -> str:
    """A rank's name: ``rank 3``, with its host where there are several."""
    rank = ranks.ranks[at]
    return f"rank {rank.number}" + (f" ({printable(rank.host)})" if len(ranks.hosts) > 1 else "")


def merged(ranks: Ranks, limit: int | None = None, hint: str = "") -> Iterator[Block]:
    """What is slow where, how much is communication, and the tables.

    Args:
        ranks: The ranks.
        limit: Rows of a table at most; None for all.
        hint: How to see the rows that a limit leaves out, if there is a way.
    """
    yield text(strong(verdict(ranks)))
    for line in answer(ranks):
        yield text(line, below=True)
    for line in doubts(ranks):
        yield text(line, note=True, below=True)
    yield Heading(2, "Ranks")
    yield _shown(_rank_columns(ranks), _rank_rows(ranks), "An iteration on each rank", limit, hint)
    yield Heading(2, "Phases")
    yield Table(_PHASE_COLUMNS, _phase_rows(ranks), "The phases of an iteration on all ranks")
    if ranks.judged.stragglers:
        yield Heading(2, "Stragglers")
        found = ranks.judged.stragglers
        caption = "Layers that take longer on one rank than on the others"
        yield _shown(_straggler_columns(ranks), found, caption, limit, hint)
    if ranks.collectives:
        yield Heading(2, "Collectives")
        rows = _collective_rows(ranks)
        yield _shown(_COLLECTIVE_COLUMNS, rows, "The collectives that take longest", limit, hint)


def _shown(
    columns: Sequence[Column], rows: Sequence[object], caption: str, limit: int | None, hint: str
) -> Table:
    shown = rows if limit is None else rows[:limit]
    legend = [("", "Times are medians of the iterations, in ms."), *_LEGEND]
    if hidden := len(rows) - len(shown):
        legend.insert(0, ("", f"{plural(hidden, 'row')} not shown{f' ({hint})' if hint else ''}."))
    marks = [getattr(row, "mark", "") for row in shown]
    return Table(columns, shown, caption, marks, legend)


_LEGEND = (
    ("waiting", "Waiting is for the last rank to come, moving the rest of a collective."),
    ("between", "between is the phase of communication without its collectives."),
    ("last %", "last is the part of the iterations in which the others waited for the rank."),
    ("elsewhere", "elsewhere is the median of the other ranks."),
    ("mean", "mean is the mean of what it takes longer, late the difference of 95th percentiles."),
    (
        "95 %",
        "95 % is the interval of what it takes longer, of the mean where it is slow at times only.",
    ),
    ("MB/s", "moving is that of the last to come; MB/s are bytes over it."),
)


def verdict(ranks: Ranks) -> str:
    """The answer: which ranks are slow, else which layers of which rank are."""
    judged = ranks.judged
    if len(ranks.ranks) < 2:
        return f"Rank {ranks.ranks[0].number} is here alone: there is none to set beside it."
    if not judged.judged:
        return f"No verdict: fewer than {MIN_TRIALS} iterations do not tell how much is noise."
    said = [
        f"Rank {ranks.ranks[one.rank].number} is slow as a whole: its layers take "
        f"{format_factor(one.factor)} the time of the others', {format_duration(one.excess_s)} "
        "more an iteration."
        for one in judged.slow[:_NAMED]
    ]
    if more := len(judged.slow) - len(said):
        said.append(f"{format_count(more)} more ranks are slow.")
    longest = max((one.costs_s for one in judged.stragglers), default=0.0)
    large = [one for one in judged.stragglers if one.costs_s >= longest * _LARGE][:_NAMED]
    said += [_straggles(ranks, one) for one in large]
    if more := len(judged.stragglers) - len(large):
        said.append(f"{plural(more, 'straggler')} more below.")
    return " ".join(said) or "No rank and no layer is slower than the others beyond noise."


def _straggles(ranks: Ranks, one: Straggler) -> str:
    layer = ranks.layers[ranks.computing[one.layer]]
    at_times = (
        f" on average, in its slowest iterations {format_duration(one.late_s)} (95th percentile)"
        if one.at_times
        else ""
    )
    return (
        f"{printable(layer.function)} at {printable(layer.path)} in {printable(layer.phase)} takes "
        f"{format_duration(one.costs_s)} longer on rank {ranks.ranks[one.rank].number} than on "
        f"the others{at_times}."
    )


def answer(ranks: Ranks) -> Iterator[str]:
    """How long an iteration is, how much of it is communication, and who comes last."""
    count = len(ranks.iterations)
    whole_s = _typical_s(ranks.iteration_ns)
    start = f"An iteration takes {format_duration(whole_s)}"
    if not ranks.communication_ns.any():
        yield f"{start}; no communication was recorded in it."
        return
    share = format_percent(_typical_s(ranks.communication_ns + ranks.between_ns) / whole_s)
    parts = (
        f": {format_duration(_typical_s(ranks.waiting_ns.sum(axis=2)))} waiting for the last rank, "
        f"{format_duration(_typical_s(ranks.moving_ns.sum(axis=2)))} moving, "
        f"{format_duration(_typical_s(ranks.between_ns))} between collectives"
        if ranks.collectives
        else ""
    )
    yield f"{start}, {share} of it communication{parts} (means of the ranks)."
    if ranks.collectives and len(ranks.ranks) > 1:
        most = int(ranks.last.argmax())
        yield (
            f"Rank {ranks.ranks[most].number} is most often the one waited for: in "
            f"{round(ranks.last[most] * count):,d} of {plural(count, 'iteration')}."
        )
    if ranks.size > 1:
        yield (
            f"{ranks.size} ranks do the work of about {ranks.size * ranks.efficiency:.2f}: "
            f"estimated as {ranks.size} x {format_percent(ranks.efficiency)}, the part of an "
            "iteration that is no communication."
        )


def _typical_s(times_ns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
    """Median over the iterations of the ranks' mean."""
    return float(np.median(times_ns.mean(axis=0))) * NS


def doubts(ranks: Ranks) -> Iterator[str]:
    """What is missing, and what makes the figures doubtful."""
    yield from map(printable, ranks.notes)
    doubt_s = ranks.clock_doubt_s
    if doubt_s == float("inf"):
        yield "The clocks of the hosts could not be compared: waits between hosts are not known."
    elif doubt_s:
        yield (
            f"The clocks of the {len(ranks.hosts)} hosts are known to "
            f"{format_duration(doubt_s)}, and waits are no longer than that: they may "
            "be none."
        )


@dataclass(frozen=True)
class _RankRow:
    """A rank, and what an iteration is on it: whole, computing, waiting, moving, between; in s."""

    number: int
    host: str
    times_s: tuple[float, ...]
    last: float
    mark: str


def _rank_rows(ranks: Ranks) -> list[_RankRow]:
    """A row for each rank, of many those with the longest computing first."""
    waits, moves = (times.sum(axis=2) for times in (ranks.waiting_ns, ranks.moving_ns))
    parts = (ranks.iteration_ns, ranks.computing_ns, waits, moves, ranks.between_ns)
    times = (np.median(parts, axis=2) * NS).T.tolist()
    found = {one.rank for one in ranks.judged.slow}
    found |= {one.rank for one in ranks.judged.stragglers}
    rows = [
        _RankRow(
            rank.number,
            rank.host,
            times[at],
            float(ranks.last[at]),
            HOT if at in found else "",
        )
        for at, rank in enumerate(ranks.ranks)
    ]
    return sorted(rows, key=lambda row: -row.times_s[1]) if len(rows) > MANY else rows


#: From so many ranks on they are not in the order of their numbers.
MANY = 16


def _rank_columns(ranks: Ranks) -> list[Column]:
    host = Column("host", lambda row: printable(row.host), folds=16, drop=1)
    columns = [
        Column("rank", lambda row: str(row.number)),
        *([host] if len(ranks.hosts) > 1 else []),
        Column("iteration", lambda row: format_ms(row.times_s[0])),
        Column("computing", lambda row: format_ms(row.times_s[1])),
    ]
    if ranks.collectives:
        columns += [
            Column("waiting", lambda row: format_ms(row.times_s[2])),
            Column("moving", lambda row: format_ms(row.times_s[3])),
            Column("between", lambda row: format_ms(row.times_s[4]), drop=2),
            Column("last %", lambda row: format_bare_percent(row.last)),
        ]
    return columns


@dataclass(frozen=True)
class _PhaseRow:
    name: str
    median_s: float
    least: tuple[int, float]
    most: tuple[int, float]


def _phase_rows(ranks: Ranks) -> list[_PhaseRow]:
    rows = []
    for at, phase in enumerate(ranks.phases):
        times = np.median(ranks.phase_ns[:, :, at], axis=1) * NS
        ends = [
            (ranks.ranks[place].number, float(times[place]))
            for place in (int(times.argmin()), int(times.argmax()))
        ]
        rows.append(_PhaseRow(printable(phase), float(np.median(times)), *ends))
    return rows


_PHASE_COLUMNS = [
    Column("phase", lambda row: row.name, folds=18),
    Column("median ms", lambda row: format_ms(row.median_s)),
    Column("least ms", lambda row: format_ms(row.least[1])),
    Column("on rank", lambda row: str(row.least[0]), drop=1),
    Column("most ms", lambda row: format_ms(row.most[1])),
    Column("on rank", lambda row: str(row.most[0]), drop=1),
    Column(
        "most / least",
        lambda row: format_factor(row.most[1] / row.least[1]) if row.least[1] > 0 else NOT_KNOWN,
    ),
]


def _straggler_columns(ranks: Ranks) -> list[Column]:
    def layer(one: Straggler) -> tuple[str, str, str]:
        row = ranks.layers[ranks.computing[one.layer]]
        return printable(row.path), printable(row.function), printable(row.phase)

    return [
        Column("rank", lambda one: str(ranks.ranks[one.rank].number)),
        Column("path", lambda one: layer(one)[0], folds=20),
        Column("function", lambda one: layer(one)[1], folds=20),
        Column("phase", lambda one: layer(one)[2], folds=10, drop=2),
        Column("there", lambda one: format_ms(one.here_s)),
        Column("elsewhere", lambda one: format_ms(one.elsewhere_s), drop=3),
        Column("longer by", lambda one: format_ms(one.excess_s)),
        Column("mean", lambda one: format_ms(one.mean_s)),
        Column("late", lambda one: format_ms(one.late_s), drop=1),
        Column("95 %", lambda one: _interval(one.low_s, one.high_s), "95 % interval", drop=1),
    ]


def _interval(low_s: float, high_s: float) -> str:
    if np.isnan(low_s):
        return NOT_KNOWN
    return f"{format_significant(low_s * 1e3)}-{format_significant(high_s * 1e3)}"


@dataclass(frozen=True)
class _CollectiveRow:
    """A collective, or all of them; times in seconds."""

    order: str
    path: str
    function: str
    nbytes: int | None
    waiting_s: float
    moving_s: float
    mark: str = ""

    @property
    def nbytes_per_s(self) -> float | None:
        return self.nbytes / self.moving_s if self.nbytes and self.moving_s else None


def _collectives(ranks: Ranks) -> list[_CollectiveRow]:
    """All collectives in their order; waiting is the mean of the ranks, moving of the last."""
    waiting = np.median(ranks.waiting_ns.mean(axis=0), axis=0) * NS
    moving = np.median(ranks.moving_of_last_ns, axis=0) * NS
    return [
        _CollectiveRow(
            str(at + 1),
            ranks.layers[index].path,
            ranks.layers[index].function,
            ranks.layers[index].input_nbytes,
            float(waiting[at]),
            float(moving[at]),
        )
        for at, index in enumerate(ranks.collectives)
    ]


def _collective_rows(ranks: Ranks) -> list[_CollectiveRow]:
    rows = _collectives(ranks)
    whole = _CollectiveRow(
        "",
        "all",
        "",
        sum(row.nbytes or 0 for row in rows) or None,
        _typical_s(ranks.waiting_ns.sum(axis=2)),
        float(np.median(ranks.moving_of_last_ns.sum(axis=1))) * NS,
        TOTAL,
    )
    return [whole, *sorted(rows, key=lambda row: -row.waiting_s - row.moving_s)]


_COLLECTIVE_COLUMNS = [
    Column("#", lambda row: row.order, "order"),
    Column("path", lambda row: printable(row.path), folds=20),
    Column("function", lambda row: printable(row.function), folds=14, drop=1),
    Column("size", lambda row: format_nbytes(row.nbytes)),
    Column("waiting", lambda row: format_ms(row.waiting_s)),
    Column("moving", lambda row: format_ms(row.moving_s)),
    Column(
        "MB/s",
        lambda row: (
            NOT_KNOWN if row.nbytes_per_s is None else format_significant(row.nbytes_per_s / 1e6)
        ),
    ),
]


def layers_csv(ranks: Ranks) -> str:
    """Every layer of every rank, with all digits; see :data:`LAYER_COLUMNS`."""
    medians = np.median(ranks.self_ns, axis=1) * NS
    judged, place = ranks.judged, {index: at for at, index in enumerate(ranks.computing)}
    found = {(one.rank, one.layer) for one in judged.stragglers}

    def row(rank: int, index: int) -> dict[str, str]:
        layer, at = ranks.layers[index], place.get(index)
        return {
            "rank": str(ranks.ranks[rank].number),
            "index": str(index),
            "path": safe(layer.path),
            "function": safe(layer.function),
            "phase": safe(layer.phase),
            "median_ms": format_exact_ms(float(medians[rank, index])),
            "others_ms": "" if at is None else format_exact_ms(float(judged.elsewhere_s[rank, at])),
            "excess_ms": "" if at is None else format_exact_ms(float(judged.excess_s[rank, at])),
            "mean_excess_ms": "" if at is None else format_exact_ms(float(judged.mean_s[rank, at])),
            "late_excess_ms": "" if at is None else format_exact_ms(float(judged.late_s[rank, at])),
            "straggler": "yes" if (rank, at) in found else "",
        }

    places = ((r, index) for r in range(len(ranks.ranks)) for index in range(len(ranks.layers)))
    return table_text(LAYER_COLUMNS, (row(*one) for one in places))


def collectives_csv(ranks: Ranks) -> str:
    """Every collective of every rank, with all digits; see :data:`COLLECTIVE_COLUMNS`."""
    waiting, moving = (
        np.median(times, axis=1) * NS for times in (ranks.waiting_ns, ranks.moving_ns)
    )
    last = ranks.arrived_ns == ranks.arrived_ns.max(axis=0)
    rows = [
        {
            "order": one.order,
            "path": safe(one.path),
            "function": safe(one.function),
            "nbytes": "" if one.nbytes is None else str(one.nbytes),
            "rank": str(rank.number),
            "waiting_ms": format_exact_ms(float(waiting[place, at])),
            "moving_ms": format_exact_ms(float(moving[place, at])),
            "last_percent": format_exact_percent(float(last[place, :, at].mean())),
            "mb_per_s": "" if one.nbytes_per_s is None else format_exact(one.nbytes_per_s / 1e6),
        }
        for at, one in enumerate(_collectives(ranks))
        for place, rank in enumerate(ranks.ranks)
    ]
    return table_text(COLLECTIVE_COLUMNS, rows)
