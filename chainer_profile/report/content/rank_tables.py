"""The tables about the ranks of a training, and their two CSV files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from chainer_profile.basics import units
from chainer_profile.basics.describe import NS
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.comparison.significance import Ints
from chainer_profile.ranks.merging import Ranks, typical_s
from chainer_profile.ranks.stragglers import Straggler
from chainer_profile.record.recording import Layer
from chainer_profile.report import unit
from chainer_profile.report.document import HOT, TOTAL
from chainer_profile.report.tables import Column, Columns, Table, by_key, not_shown, rows_of, to_csv
from chainer_profile.report.text import printable

#: Names of the CSV files.
LAYERS, COLLECTIVES = "ranks.csv", "collectives.csv"
#: Up to this number, all ranks have bars and columns, in the order of their numbers. If there are
#: more, half of this number with the longest computing have them, and half with the shortest.
MAX_BARS = 16

# fmt: off
#: The columns of :data:`LAYERS`, a row for each layer of each rank.
LAYER_COLUMNS = by_key(
    Column("rank", "rank", unit.PLAIN, "Number of the rank"),
    Column("index", "index", unit.PLAIN, "Index of the layer", field="layer.index"),
    Column("path", "path", unit.TEXT, "Path of its link", field="layer.path"),
    Column("function", "function", unit.TEXT, "Name of its function", field="layer.function"),
    Column("phase", "phase", unit.TEXT, "Its phase", field="layer.phase"),
    Column("median", "median", unit.MS, "Median self time on this rank"),
    Column("others", "others", unit.MS,
           meaning="Median over iterations of the other ranks' median; empty for communication"),
    Column("excess", "excess", unit.MS,
           meaning="Median over iterations of the difference between own and others' time; "
                   "likewise"),
    Column("mean_excess", "mean_excess", unit.MS, "Mean of the differences; likewise"),
    Column("late_excess", "late_excess", unit.MS, "Difference of the 95th percentiles; likewise"),
    Column("straggler", "straggler", unit.TEXT, "yes if it takes significantly longer here"),
)
# fmt: on


def _mb_per_s(row: Any) -> float | None:
    return row.nbytes / row.last_rank_s / 1e6 if row.nbytes and row.last_rank_s else None


# fmt: off
#: The columns of :data:`COLLECTIVES`, a row for each collective of each rank.
COLLECTIVE_COLUMNS = by_key(
    Column("order", "#", unit.FIGURE, full="order",
           meaning="Position among an iteration's collectives, from 1"),
    Column("path", "path", unit.TEXT, "Path of the parameter or of the bucket", fold=20),
    Column("function", "function", unit.TEXT, "Name of the collective", fold=14, drop=1),
    Column("nbytes", "size", unit.BYTES, "Bytes of its buffer", field="nbytes", file="nbytes"),
    Column("rank", "rank", unit.PLAIN, "Number of the rank"),
    Column("waiting", "waiting", unit.MS, "Median time that the rank waited for the last one"),
    Column("moving", "moving", unit.MS, "Median of the rest of its time there"),
    Column("last", "last", unit.PERCENT, "Share of iterations in which it arrived last"),
    Column("mb_per_s", "MB/s", unit.NUMBER, value=_mb_per_s,
           meaning="Millions of bytes per second of the last rank's median moving time",
           note="Here moving is that of the last rank to arrive, and MB/s are bytes divided by "
                "it."),
)
_RANK_COLUMNS = by_key(
    Column("rank", "rank", unit.PLAIN, field="rank.number"),
    Column("host", "host", unit.TEXT, field="rank.host", fold=16, drop=1),
    Column("iteration", "iteration", unit.MS, note="Times are medians over the iterations, in ms."),
    Column("computing", "computing", unit.MS),
    Column("waiting", "waiting", unit.MS, note="Waiting is the time until the last rank arrives."),
    Column("moving", "moving", unit.MS, note="Moving is the rest of a collective."),
    Column("between", "between", unit.MS, drop=2,
           note="between is the communication phase without its collectives."),
    Column("last", "last %", unit.PERCENT,
           note="last is the share of iterations in which the others waited for this rank."),
)
_PHASE_COLUMNS = (
    Column("phase", "phase", unit.TEXT, fold=18),
    Column("median", "median ms", unit.MS),
    Column("least", "least ms", unit.MS),
    Column("least_rank", "on rank", unit.PLAIN, field="least.number", drop=1),
    Column("most", "most ms", unit.MS),
    Column("most_rank", "on rank", unit.PLAIN, field="most.number", drop=1),
    Column("ratio", "most / least", unit.FACTOR,
           value=lambda row: row.most_s / row.least_s if row.least_s > 0 else None),
)
_STRAGGLER_COLUMNS = (
    Column("rank", "rank", unit.PLAIN),
    Column("path", "path", unit.TEXT, field="layer.path", fold=20),
    Column("function", "function", unit.TEXT, field="layer.function", fold=20),
    Column("phase", "phase", unit.TEXT, field="layer.phase", fold=10, drop=2),
    Column("there", "there", unit.MS, field="here_s"),
    Column("elsewhere", "elsewhere", unit.MS, drop=3,
           note="elsewhere is the median of the other ranks."),
    Column("longer", "longer by", unit.MS, field="excess_s"),
    Column("mean", "mean", unit.MS,
           note="mean is the mean excess, late the difference of the 95th percentiles."),
    Column("late", "late", unit.MS, drop=1),
    Column("interval", "95 %", unit.FIGURE, full="95 % interval", drop=1,
           value=lambda row: units.format_interval(row.low_s * 1e3, row.high_s * 1e3,
                                                   units.format_significant, "-"),
           note="95 % is the confidence interval of the excess (of the mean excess if the layer is "
                "only sometimes slow)."),
)
# fmt: on
_BY_RANK = by_key(
    Column("path", "path", unit.TEXT, field="layer.path", fold=20),
    Column("function", "function", unit.TEXT, field="layer.function", fold=14),
    Column("phase", "phase", unit.TEXT, field="layer.phase", fold=12),
    Column("median", "median ms", unit.MS),
    Column("least", "least ms", unit.MS),
    Column("most", "most ms", unit.MS),
    Column("most_on", "most on", unit.TEXT, fold=10),
)


def rank_table(ranks: Ranks, limit: int | None, hint: str) -> Table:
    """A row for each rank in the order of their numbers.

    If there are more than :data:`MAX_BARS` ranks, the rank that computes longest comes first.
    """
    waiting, moving = (times.sum(axis=2) for times in (ranks.waiting_ns, ranks.moving_ns))
    parts = (ranks.iteration_ns, ranks.computing_ns, waiting, moving, ranks.between_ns)
    names = ("iteration_s", "computing_s", "waiting_s", "moving_s", "between_s")
    times = dict(zip(names, np.median(parts, axis=2) * NS, strict=True))
    rows = pd.DataFrame({"rank": ranks.ranks, "last": ranks.last, **times})
    hot = {slow.rank for slow in ranks.judged.slow}
    hot |= {straggler.rank for straggler in ranks.judged.stragglers}
    rows["mark"] = [HOT if at in hot else "" for at in rows.index]
    if len(rows) > MAX_BARS:
        rows = rows.sort_values("computing_s", ascending=False, kind="stable")
    omitted = set() if len(ranks.hosts) > 1 else {"host"}
    omitted |= set() if ranks.collectives else {"waiting", "moving", "last"}
    omitted |= set() if COMMUNICATION in ranks.phases else {"between"}
    columns = [column for key, column in _RANK_COLUMNS.items() if key not in omitted]
    return _limited(columns, rows, "An iteration on each rank", limit, hint)


def phase_table(ranks: Ranks) -> Table:
    rows = _over_ranks(ranks, ranks.phase_ns).assign(phase=ranks.phases)
    return Table(_PHASE_COLUMNS, rows, "The phases of an iteration on all ranks")


def straggler_table(ranks: Ranks, limit: int | None, hint: str) -> Iterator[Table]:
    """The stragglers, if there are any."""
    rows = [
        SimpleNamespace(
            **vars(straggler)
            | {
                "layer": straggling_layer(ranks, straggler),
                "rank": ranks.ranks[straggler.rank].number,
            }
        )
        for straggler in ranks.judged.stragglers
    ]
    if rows:
        caption = "Layers that take longer on one rank than on the others"
        yield _limited(_STRAGGLER_COLUMNS, rows, caption, limit, hint)


def straggling_layer(ranks: Ranks, straggler: Straggler) -> Layer:
    return ranks.layers[ranks.computing[straggler.layer]]


def collective_table(ranks: Ranks, limit: int | None, hint: str) -> Iterator[Table]:
    """The collectives after their sum, slowest first; nothing if arrivals are unknown."""
    if not ranks.collectives:
        return
    rows = _collectives(ranks).assign(mark="")
    moving_s = float(np.median(ranks.moving_of_last_ns.sum(axis=1))) * NS
    waiting_s = typical_s(ranks.waiting_ns.sum(axis=2))
    total = {"order": "", "path": "all", "function": "", "nbytes": rows["nbytes"].sum() or None}
    total |= {"waiting_s": waiting_s, "moving_s": moving_s, "last_rank_s": moving_s}
    slowest = (-rows["waiting_s"] - rows["moving_s"]).sort_values(kind="stable").index
    rows = pd.concat([pd.DataFrame([total]).assign(mark=TOTAL), rows.loc[slowest]])
    columns = [column for key, column in COLLECTIVE_COLUMNS.items() if key not in ("rank", "last")]
    yield _limited(columns, rows, "The collectives that take longest", limit, hint)


def _collectives(ranks: Ranks) -> pd.DataFrame:
    """All collectives in order. Waiting is the mean over ranks, moving is the last rank's time."""
    layers = [ranks.layers[index] for index in ranks.collectives]
    moving_s = np.median(ranks.moving_of_last_ns, axis=0) * NS
    return pd.DataFrame(
        {
            "order": [str(i) for i in range(1, len(layers) + 1)],
            "path": [layer.path for layer in layers],
            "function": [layer.function for layer in layers],
            "nbytes": [layer.input_nbytes for layer in layers],
            "waiting_s": np.median(ranks.waiting_ns.mean(axis=0), axis=0) * NS,
            "moving_s": moving_s,
            "last_rank_s": moving_s,
        }
    )


def layers_by_rank(ranks: Ranks) -> Table:
    """The layers, with a column for the median time on each of :func:`shown_ranks`."""
    rows = _over_ranks(ranks, ranks.self_ns).assign(layer=ranks.layers)
    rows["most_on"] = [rank_name(ranks, at) for at in rows["most_at"]]
    slow = {straggling_layer(ranks, straggler).index for straggler in ranks.judged.stragglers}
    return Table(
        [*_BY_RANK.values(), *(_rank_column(ranks, at) for at in shown_ranks(ranks))],
        rows,
        "The layers on every rank",
        [HOT if layer.index in slow else "" for layer in ranks.layers],
        ["Hot rows are stragglers."],
    )


def _rank_column(ranks: Ranks, at: int) -> Column:
    column = _BY_RANK["median"].headed(f"{rank_name(ranks, at)} [ms]")
    return replace(column, value=lambda row: float(row.by_rank_s[at]))


def _over_ranks(ranks: Ranks, times_ns: Ints) -> pd.DataFrame:
    """A table of the median times on each rank, and their median, minimum and maximum.

    Args:
        ranks: The ranks.
        times_ns: Times, (ranks, iterations, rows of the table).
    """
    by_rank_s = np.median(times_ns, axis=1) * NS
    least, most = by_rank_s.argmin(axis=0), by_rank_s.argmax(axis=0)
    return pd.DataFrame(
        {
            "by_rank_s": list(by_rank_s.T),
            "median_s": np.median(by_rank_s, axis=0),
            "least_s": by_rank_s.min(axis=0),
            "most_s": by_rank_s.max(axis=0),
            "least": [ranks.ranks[at] for at in least],
            "most": [ranks.ranks[at] for at in most],
            "most_at": most,
        }
    )


def shown_ranks(ranks: Ranks) -> list[int]:
    """Indices of the ranks with bars and columns; see :data:`MAX_BARS`."""
    computing_ns, half = np.median(ranks.computing_ns, axis=1), MAX_BARS // 2
    if len(computing_ns) <= MAX_BARS:
        return list(range(len(computing_ns)))
    order = np.argsort(-computing_ns, kind="stable").tolist()
    return [*order[:half], *order[-half:]]


def rank_name(ranks: Ranks, at: int) -> str:
    """A rank's name: ``rank 3``, with its host if there are several."""
    rank = ranks.ranks[at]
    return f"rank {rank.number}" + (f" ({printable(rank.host)})" if len(ranks.hosts) > 1 else "")


def _limited(columns: Columns, rows: Any, caption: str, limit: int | None, hint: str) -> Table:
    """A table of the first ``limit`` rows. A note says how many are omitted, and ``hint``."""
    every = rows_of(rows)
    shown = every if limit is None else every[:limit]
    marks = [getattr(row, "mark", "") for row in shown]
    return Table(columns, shown, caption, marks, not_shown(len(every) - len(shown), hint))


def layers_csv(ranks: Ranks) -> str:
    """Every layer of every rank as CSV; see :data:`LAYER_COLUMNS`."""
    judged, medians_s = ranks.judged, np.median(ranks.self_ns, axis=1) * NS
    slow = {(straggler.rank, ranks.computing[straggler.layer]) for straggler in judged.stragglers}
    # Communication has no comparison with other ranks.
    of_computing = (judged.elsewhere_s, judged.excess_s, judged.mean_s, judged.late_s)
    compared_s = np.full((len(of_computing), *medians_s.shape), np.nan)
    compared_s[:, :, ranks.computing] = of_computing
    names = ("median_s", "others_s", "excess_s", "mean_excess_s", "late_excess_s")
    frames = []
    for index, rank in enumerate(ranks.ranks):
        times = dict(zip(names, (medians_s[index], *compared_s[:, index]), strict=True))
        straggles = ["yes" if (index, layer.index) in slow else "" for layer in ranks.layers]
        row_names = {"layer": ranks.layers, "rank": rank.number, "straggler": straggles}
        frames.append(pd.DataFrame(row_names | times))
    return to_csv(LAYER_COLUMNS, pd.concat(frames))


def collectives_csv(ranks: Ranks) -> str:
    """Every collective of every rank as CSV; see :data:`COLLECTIVE_COLUMNS`."""
    waiting_s, moving_s = (
        np.median(times, axis=1) * NS for times in (ranks.waiting_ns, ranks.moving_ns)
    )
    last = (ranks.arrived_ns == ranks.arrived_ns.max(axis=0)).mean(axis=1)
    every = _collectives(ranks)
    frames = [
        every.assign(
            rank=rank.number, waiting_s=waiting_s[index], moving_s=moving_s[index], last=last[index]
        )
        for index, rank in enumerate(ranks.ranks)
    ]
    return to_csv(COLLECTIVE_COLUMNS, pd.concat(frames).sort_index(kind="stable"))
