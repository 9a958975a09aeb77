"""Ranks -> ``ranks-trace.json``: one iteration on all of them as Chrome trace events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from chainer_profile.analyse.timeline import FUNCTION, HOST_PLACES, PHASE, TRIAL, Slice, lay_out
from chainer_profile.ranks.merging import Ranks
from chainer_profile.report.content.ranks import rank_name
from chainer_profile.report.pictures import trace
from chainer_profile.report.text import model_name, printable

#: Ranks that are shown; of more those that the others waited for most often.
MOST_RANKS = 64
#: The track of the collectives, whose places are measured.
COLLECTIVES = "collectives"
_TRACK = len(trace.TRACKS) + 1
_PLACES = (
    "Each rank is a process. Ranks and collectives are placed on the clock of rank 0; the "
    "calls within an iteration as follows.",
    *HOST_PLACES,
    "An arrow leads from the last rank to arrive at a collective to one that waited for it.",
)


def render(ranks: Ranks) -> str:
    """The iteration of median length as a JSON object of Chrome trace events, in UTF-8."""
    ranks = ranks.only(np.sort(np.argsort(-ranks.last, kind="stable")[:MOST_RANKS]).tolist())
    lengths = ranks.iteration_ns.mean(axis=0)
    chosen = int(np.argmin(np.abs(lengths - np.median(lengths))))
    starts = [_start_ns(ranks, rank, chosen) for rank in range(len(ranks.ranks))]
    zero = min(starts + ranks.arrived_ns[:, chosen].ravel().tolist())
    events: list[trace.Event] = []
    for rank, start in enumerate(starts):
        events += _process(ranks, rank, chosen, start - zero)
    events += _collectives(ranks, chosen, zero)
    return trace.written(
        events,
        model=model_name(ranks.settings),
        iteration=int(ranks.iterations[chosen]),
        ranks=[rank.number for rank in ranks.ranks],
        size=ranks.size,
        places=list(_PLACES),
    )


def _start_ns(ranks: Ranks, rank: int, chosen: int) -> int:
    """Begin of the iteration on the clock of rank 0; 0 where it is not known."""
    starts = ranks.recordings[rank].start_ns
    if starts is None:
        return 0
    return int(starts[ranks.trials[rank, chosen]]) + ranks.ranks[rank].clock_offset_ns


def _process(ranks: Ranks, rank: int, chosen: int, start: int) -> Iterator[trace.Event]:
    """The names of a rank's tracks, its iteration, phases and calls but for the collectives."""

    def known(one: Slice) -> trace.Event:
        if one.layer is None:
            return {}
        return {"index": one.layer, "path": printable(ranks.layers[one.layer].path)}

    pid = ranks.ranks[rank].number + 1
    yield from trace.process_names(pid, rank_name(ranks, rank), [COLLECTIVES])
    trial = lay_out(ranks.recordings[rank], int(ranks.trials[rank, chosen]))
    for thread, kinds in ((1, (TRIAL, PHASE)), (3, (FUNCTION,))):
        for event, one in trace.slices(trial, kinds, pid, thread, known, start):
            if one.layer not in ranks.collectives:
                yield event


def _collectives(ranks: Ranks, chosen: int, zero: int) -> Iterator[trace.Event]:
    """The collectives where they were, the waiting within each of them, and the arrows' ends.

    An arrow begins and ends at one time, so its begin has to come first: the last rank does.
    """
    for at, index in enumerate(ranks.collectives):
        layer = ranks.layers[index]
        came = ranks.arrived_ns[:, chosen, at]
        waited_to = came + ranks.waiting_ns[:, chosen, at]
        args = {"path": printable(layer.path), "bytes": layer.input_nbytes, "order": at + 1}
        named = {"cat": COLLECTIVES, "args": args}
        drawn: set[int] = set()
        for rank in np.argsort(-came, kind="stable").tolist():
            pid = ranks.ranks[rank].number + 1
            track = {"pid": pid, "tid": pid * trace.THREADS + _TRACK}
            arrow = {**track, "name": "waited for", "cat": COLLECTIVES}
            begin, end = trace.us(int(came[rank]) - zero), trace.us(int(waited_to[rank]) - zero)
            left = trace.us(int(waited_to[rank] + ranks.moving_ns[rank, chosen, at]) - zero)
            yield {"ph": "B", **track, "ts": begin, "name": printable(layer.function), **named}
            waited = np.flatnonzero((waited_to == came[rank]) & (came < waited_to)).tolist()
            for other in set(waited) - drawn:
                yield {"ph": "s", **arrow, "ts": begin, "id": 1 + at * len(came) + other}
            drawn |= set(waited)
            if end > begin:
                yield {"ph": "B", **track, "ts": begin, "name": "waiting", **named}
                if rank in drawn:
                    number = 1 + at * len(came) + rank
                    yield {"ph": "f", **arrow, "ts": end, "id": number, "bp": "e"}
                yield {"ph": "E", **track, "ts": end}
            yield {"ph": "E", **track, "ts": left}
