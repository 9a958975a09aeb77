"""The ranks of a training -> their blocks, the answer first; and their two CSV files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace as Row
from typing import Any

import numpy as np
import pandas as pd

from chainer_profile.basics import units
from chainer_profile.basics.describe import NS
from chainer_profile.basics.sentences import fill
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.comparison.significance import MIN_TRIALS, Ints
from chainer_profile.ranks.merging import OUTSIDE, Ranks
from chainer_profile.ranks.stragglers import Straggler
from chainer_profile.report import document as doc
from chainer_profile.report import unit
from chainer_profile.report.content.boxes import MAX_COLOURS, laid
from chainer_profile.report.tables import Column, Columns, Table, by_key, not_shown, rows_of, to_csv
from chainer_profile.report.text import model_name, printable

#: The files beside the report.
LAYERS, COLLECTIVES = "ranks.csv", "collectives.csv"
#: Slow ranks, and stragglers, that the answer names at most.
_MOST_NAMED = 3
#: More ranks are in the order of their computing, and those that compute longest and shortest have
#: bars: so many in all.
_MOST_BARS = 16
#: The part of the width for a row's name beside its bar.
_NAME_WIDTH = 0.1
_BETWEEN = "between collectives"
#: The answer names no straggler below this part of the longest: that may bring it about.
_LEAST_SHARE_OF_LONGEST = 0.2

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
    return row.nbytes / row.of_last_s / 1e6 if row.nbytes and row.of_last_s else None


# fmt: off
#: The columns of :data:`COLLECTIVES`, a row for each collective of each rank.
COLLECTIVE_COLUMNS = by_key(
    Column("order", "#", unit.FIGURE, full="order",
           meaning="Place among an iteration's collectives, from 1"),
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
# fmt: on


def sections(ranks: Ranks, limit: int | None = None, hint: str = "") -> list[doc.Section]:
    """The report's sections; a table has at most ``limit`` rows, and ``hint`` shows the others."""
    files = doc.text(
        *("All layers of all ranks: ", doc.file(LAYERS), "; the collectives: "),
        doc.file(COLLECTIVES),
    )
    return [
        doc.Section("", _answer(ranks)),
        doc.Section("", bars(ranks), (doc.PAGE,)),
        doc.Section("Ranks", _ranks(ranks, limit, hint)),
        doc.Section("Phases", _phases(ranks)),
        doc.Section("Stragglers", _stragglers(ranks, limit, hint)),
        doc.Section("Collectives", _slow_collectives(ranks, limit, hint)),
        doc.Section("", [files], (doc.REPORT, doc.PAGE)),
        doc.Section("Layers by rank", _by_rank(ranks), (doc.PAGE,)),
    ]


def merged(ranks: Ranks, limit: int | None = None, hint: str = "") -> Iterator[doc.Block]:
    """The blocks of a terminal."""
    return doc.shown_in(doc.FULL, sections(ranks, limit, hint))


def report(ranks: Ranks, limit: int | None = None) -> list[doc.Block]:
    return [doc.Heading(1, title(ranks)), *doc.shown_in(doc.REPORT, sections(ranks, limit))]


def page(ranks: Ranks, limit: int | None = None) -> list[doc.Block]:
    """The report with a bar for each rank, and the layers of all ranks."""
    return [doc.Heading(1, title(ranks)), *doc.shown_in(doc.PAGE, sections(ranks, limit))]


def bars(ranks: Ranks) -> Iterator[doc.Boxes]:
    """One bar a rank: the phases of its iteration, communication as waiting and moving."""
    parts, chosen, half = list(_rank_parts(ranks)), _shown_ranks(ranks), _MOST_BARS // 2
    label = "An iteration on each rank."
    if len(chosen) < len(ranks.ranks):
        label = (
            f"The {half} of {len(ranks.ranks)} ranks that compute longest, and the {half} shortest."
        )
    longest = max(sum(times[at] for _, _, times in parts) for at in chosen) or 1.0
    boxes: list[doc.Box] = []
    for row, at in enumerate(chosen):
        name = f"rank {ranks.ranks[at].number}"
        boxes.append(doc.Box(0.0, _NAME_WIDTH, "beside", name, name, row))
        of_rank = [
            (part, float(times[at]), units.format_duration(times[at]), kind)
            for part, kind, times in parts
        ]
        boxes += laid(of_rank, (1 - _NAME_WIDTH) / longest, _NAME_WIDTH, row, f"{name}, ")
    legend = [(name, kind) for name, kind, _ in parts]
    yield doc.Boxes(label, boxes, legend, f"{label} Medians of the iterations.")


def _shown_ranks(ranks: Ranks) -> list[int]:
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
        times_of = {printable(phase): ranks.phase_ns[:, :, at]}
        if phase == COMMUNICATION and ranks.collectives:
            waiting, moving = (x.sum(axis=2) for x in (ranks.waiting_ns, ranks.moving_ns))
            times_of = {"waiting": waiting, "moving": moving, _BETWEEN: ranks.between_ns}
        for name, times in times_of.items():
            kind = "between" if name in (OUTSIDE, _BETWEEN) else f"series-{number % MAX_COLOURS}"
            yield name, kind, np.median(times, axis=1) * NS
            number += kind != "between"


_BY_RANK = by_key(
    Column("path", "path", unit.TEXT, field="layer.path", fold=20),
    Column("function", "function", unit.TEXT, field="layer.function", fold=14),
    Column("phase", "phase", unit.TEXT, field="layer.phase", fold=12),
    Column("median", "median ms", unit.MS),
    Column("least", "least ms", unit.MS),
    Column("most", "most ms", unit.MS),
    Column("most_on", "most on", unit.TEXT, fold=10),
)


def _by_rank(ranks: Ranks) -> Iterator[doc.Block]:
    """The layers, and their times on every rank; of very many ranks those of the longest."""
    rows = _on_ranks(ranks, ranks.self_ns).assign(layer=ranks.layers)
    rows["most_on"] = [rank_name(ranks, at) for at in rows["most_at"]]
    slow = {ranks.computing[straggler.layer] for straggler in ranks.judged.stragglers}
    yield Table(
        [*_BY_RANK.values(), *(_on(ranks, at) for at in _shown_ranks(ranks))],
        rows,
        "The layers on every rank",
        [doc.HOT if layer.index in slow else "" for layer in ranks.layers],
        ["Hot rows are stragglers."],
    )


def _on(ranks: Ranks, at: int) -> Column:
    column = _BY_RANK["median"].headed(f"{rank_name(ranks, at)} [ms]")
    return replace(column, value=lambda row: float(row.on_s[at]))


def _on_ranks(ranks: Ranks, times_ns: Ints) -> pd.DataFrame:
    """The median time of every row on each rank, of (ranks, iterations, rows), and their ends."""
    on_s = np.median(times_ns, axis=1) * NS
    least, most = on_s.argmin(axis=0), on_s.argmax(axis=0)
    return pd.DataFrame(
        {
            "on_s": list(on_s.T),
            "median_s": np.median(on_s, axis=0),
            "least_s": on_s.min(axis=0),
            "most_s": on_s.max(axis=0),
            "least": [ranks.ranks[at] for at in least],
            "most": [ranks.ranks[at] for at in most],
            "most_at": most,
        }
    )


def title(ranks: Ranks) -> str:
    """The network and its ranks: ``net on 4 ranks``."""
    return f"{model_name(ranks.settings)} on {units.plural(ranks.size, 'rank')}"


def rank_name(ranks: Ranks, at: int) -> str:
    """A rank's name: ``rank 3``, with its host where there are several."""
    rank = ranks.ranks[at]
    return f"rank {rank.number}" + (f" ({printable(rank.host)})" if len(ranks.hosts) > 1 else "")


def _answer(ranks: Ranks) -> Iterator[doc.Block]:
    yield doc.text(doc.strong(verdict(ranks)))
    yield from doc.below(answer(ranks))
    yield from doc.below(map(printable, ranks.notes), note=True)


def _shown(columns: Columns, rows: Any, caption: str, limit: int | None, hint: str) -> Table:
    every = rows_of(rows)
    shown = every if limit is None else every[:limit]
    marks = [getattr(row, "mark", "") for row in shown]
    return Table(columns, shown, caption, marks, not_shown(len(every) - len(shown), hint))


def verdict(ranks: Ranks) -> str:
    """The answer: which ranks are slow, else which layers of which rank are."""
    judged = ranks.judged
    if len(ranks.ranks) < 2:
        number = ranks.ranks[0].number
        return f"Only rank {number} is recorded, so there is nothing to compare it with."
    if not judged.judged:
        return f"No verdict: fewer than {MIN_TRIALS} iterations do not show how much is noise."
    sentences = [
        fill(
            "Rank {rank} is slow as a whole: its layers take {factor:x} the time of the other "
            "ranks' layers, {excess_s:s} more in each iteration.",
            **vars(slow) | {"rank": ranks.ranks[slow.rank].number},
        )
        for slow in judged.slow[:_MOST_NAMED]
    ]
    if more := len(judged.slow) - len(sentences):
        sentences.append(f"{units.format_count(more)} more ranks are slow.")
    longest_s = max((straggler.costs_s for straggler in judged.stragglers), default=0.0)
    least_s = longest_s * _LEAST_SHARE_OF_LONGEST
    large = [each for each in judged.stragglers if each.costs_s >= least_s][:_MOST_NAMED]
    sentences += [_straggles(ranks, straggler) for straggler in large]
    if more := len(judged.stragglers) - len(large):
        sentences.append(fill("{more:other straggler} {more:is|are} listed below.", more=more))
    return " ".join(sentences) or "No rank and no layer is significantly slower than the others."


def _facts(ranks: Ranks, straggler: Straggler) -> dict[str, Any]:
    """The fields of a straggler, with its layer and the number of its rank."""
    layer = ranks.layers[ranks.computing[straggler.layer]]
    of_rank = {"layer": layer, "rank": ranks.ranks[straggler.rank].number}
    return vars(straggler) | of_rank | {"costs_s": straggler.costs_s}


def _straggles(ranks: Ranks, straggler: Straggler) -> str:
    sentence = "{layer.function} at {layer.path} in {layer.phase} takes "
    if straggler.at_times:
        sentence += (
            "on average {costs_s:s} longer on rank {rank} than on the others, and {late_s:s} "
            "longer in its slowest iterations (95th percentile)."
        )
    else:
        sentence += "{costs_s:s} longer on rank {rank} than on the others."
    return printable(fill(sentence, **_facts(ranks, straggler)))


def answer(ranks: Ranks) -> Iterator[str]:
    """How long an iteration is, how much of it is communication, and who comes last."""
    count = len(ranks.iterations)
    parts = {
        "whole_s": _typical_s(ranks.iteration_ns),
        "communication_s": _typical_s(ranks.communication_ns + ranks.between_ns),
        "waiting_s": _typical_s(ranks.waiting_ns.sum(axis=2)),
        "moving_s": _typical_s(ranks.moving_ns.sum(axis=2)),
        "between_s": _typical_s(ranks.between_ns),
    }
    sentence = "An iteration takes {whole_s:s}"
    if not ranks.communication_ns.any():
        yield fill(sentence + "; no communication was recorded.", **parts)
        return
    sentence += ", {share:%} of it communication"
    if ranks.collectives:
        sentence += (
            ": {waiting_s:s} waiting for the last rank, {moving_s:s} moving, {between_s:s} "
            "between collectives"
        )
    share = parts["communication_s"] / parts["whole_s"]
    yield fill(sentence + " (means of the ranks).", share=share, **parts)
    if ranks.collectives and len(ranks.ranks) > 1:
        most = int(ranks.last.argmax())
        yield (
            f"The others most often wait for rank {ranks.ranks[most].number}: in "
            f"{round(ranks.last[most] * count):,d} of {units.plural(count, 'iteration')}."
        )
    if ranks.size > 1:
        yield (
            f"{ranks.size} ranks are about {ranks.size * ranks.efficiency:.2f} times as fast "
            f"as one (estimate: {ranks.size} x {units.format_percent(ranks.efficiency)}, the share "
            "of an iteration without communication)."
        )


def _typical_s(times_ns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
    """Median over the iterations of the ranks' mean."""
    return float(np.median(times_ns.mean(axis=0))) * NS


# fmt: off
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
# fmt: on


def _ranks(ranks: Ranks, limit: int | None, hint: str) -> Iterator[doc.Block]:
    """A row for each rank, of many those with the longest computing first."""
    waits, moves = (times.sum(axis=2) for times in (ranks.waiting_ns, ranks.moving_ns))
    parts = (ranks.iteration_ns, ranks.computing_ns, waits, moves, ranks.between_ns)
    names = ("iteration_s", "computing_s", "waiting_s", "moving_s", "between_s")
    times = dict(zip(names, np.median(parts, axis=2) * NS, strict=True))
    rows = pd.DataFrame({"rank": ranks.ranks, "last": ranks.last, **times})
    named = {slow.rank for slow in ranks.judged.slow}
    named |= {straggler.rank for straggler in ranks.judged.stragglers}
    rows["mark"] = [doc.HOT if at in named else "" for at in rows.index]
    if len(rows) > _MOST_BARS:
        rows = rows.sort_values("computing_s", ascending=False, kind="stable")
    left_out = set() if len(ranks.hosts) > 1 else {"host"}
    left_out |= set() if ranks.collectives else {"waiting", "moving", "last"}
    left_out |= set() if COMMUNICATION in ranks.phases else {"between"}
    shown = [column for key, column in _RANK_COLUMNS.items() if key not in left_out]
    yield _shown(shown, rows, "An iteration on each rank", limit, hint)


# fmt: off
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


def _phases(ranks: Ranks) -> Iterator[doc.Block]:
    rows = _on_ranks(ranks, ranks.phase_ns).assign(phase=ranks.phases)
    yield Table(_PHASE_COLUMNS, rows, "The phases of an iteration on all ranks")


def _stragglers(ranks: Ranks, limit: int | None, hint: str) -> Iterator[doc.Block]:
    rows = [Row(**_facts(ranks, straggler)) for straggler in ranks.judged.stragglers]
    if rows:
        caption = "Layers that take longer on one rank than on the others"
        yield _shown(_STRAGGLER_COLUMNS, rows, caption, limit, hint)


def _collectives(ranks: Ranks) -> pd.DataFrame:
    """All collectives in their order; waiting is the mean of the ranks, moving of the last."""
    layers = [ranks.layers[index] for index in ranks.collectives]
    moving_s = np.median(ranks.moving_of_last_ns, axis=0) * NS
    return pd.DataFrame(
        {
            "order": [str(at) for at in range(1, len(layers) + 1)],
            "path": [layer.path for layer in layers],
            "function": [layer.function for layer in layers],
            "nbytes": [layer.input_nbytes for layer in layers],
            "waiting_s": np.median(ranks.waiting_ns.mean(axis=0), axis=0) * NS,
            "moving_s": moving_s,
            "of_last_s": moving_s,
        }
    )


def _slow_collectives(ranks: Ranks, limit: int | None, hint: str) -> Iterator[doc.Block]:
    """All of them added up, and each, those that take longest first."""
    if not ranks.collectives:
        return
    rows = _collectives(ranks).assign(mark="")
    moving_s = float(np.median(ranks.moving_of_last_ns.sum(axis=1))) * NS
    waiting_s = _typical_s(ranks.waiting_ns.sum(axis=2))
    whole = {"order": "", "path": "all", "function": "", "nbytes": rows["nbytes"].sum() or None}
    whole |= {"waiting_s": waiting_s, "moving_s": moving_s, "of_last_s": moving_s}
    slowest = (-rows["waiting_s"] - rows["moving_s"]).sort_values(kind="stable").index
    rows = pd.concat([pd.DataFrame([whole]).assign(mark=doc.TOTAL), rows.loc[slowest]])
    columns = [column for key, column in COLLECTIVE_COLUMNS.items() if key not in ("rank", "last")]
    yield _shown(columns, rows, "The collectives that take longest", limit, hint)


def layers_csv(ranks: Ranks) -> str:
    """Every layer of every rank as CSV; see :data:`LAYER_COLUMNS`."""
    judged, medians = ranks.judged, np.median(ranks.self_ns, axis=1) * NS
    slow = {(at.rank, ranks.computing[at.layer]) for at in judged.stragglers}
    # Of layers that compute, at their places among all layers.
    of_computing = (judged.elsewhere_s, judged.excess_s, judged.mean_s, judged.late_s)
    apart = np.full((len(of_computing), *medians.shape), np.nan)
    apart[:, :, ranks.computing] = of_computing
    names = ("median_s", "others_s", "excess_s", "mean_excess_s", "late_excess_s")
    frames = []
    for at, rank in enumerate(ranks.ranks):
        times = dict(zip(names, (medians[at], *apart[:, at]), strict=True))
        straggles = ["yes" if (at, layer.index) in slow else "" for layer in ranks.layers]
        names_of_rows = {"layer": ranks.layers, "rank": rank.number, "straggler": straggles}
        frames.append(pd.DataFrame(names_of_rows | times))
    return to_csv(LAYER_COLUMNS, pd.concat(frames))


def collectives_csv(ranks: Ranks) -> str:
    """Every collective of every rank as CSV; see :data:`COLLECTIVE_COLUMNS`."""
    waiting, moving = (
        np.median(times, axis=1) * NS for times in (ranks.waiting_ns, ranks.moving_ns)
    )
    last = (ranks.arrived_ns == ranks.arrived_ns.max(axis=0)).mean(axis=1)
    every = _collectives(ranks)
    frames = [
        every.assign(rank=rank.number, waiting_s=waiting[at], moving_s=moving[at], last=last[at])
        for at, rank in enumerate(ranks.ranks)
    ]
    return to_csv(COLLECTIVE_COLUMNS, pd.concat(frames).sort_index(kind="stable"))
