"""Spans of a trial: each matches a begin event of the log with its end event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Event ids of a trial and of a pause.
TRIAL, PAUSE = 0, 1


@dataclass(frozen=True, eq=False)
class Spans:
    """The spans of one trial, in the order in which they began; span 0 is the trial.

    Attributes:
        event_ids: The event id of each span.
        parents: The span around each span; -1 for the trial.
        begins: The index of each span's begin event.
        ends: The index of each span's end event, or of the event that ended a span around it.
        innermost: For each event, the innermost span that is open after it; -1 after the trial.
    """

    event_ids: list[int]
    parents: list[int]
    begins: list[int]
    ends: list[int]
    innermost: list[int]


def match_spans(event_ids: Sequence[int]) -> Spans:
    """Match the begin and end events of a trial.

    An exception may skip end events: the end of a span also ends the spans inside it. An end event
    without a begin event is ignored. Spans that are open at the end last until the last event.

    Args:
        event_ids: The event id where a span begins, its complement where a span ends.
    """
    ids: list[int] = []
    parents: list[int] = []
    begins: list[int] = []
    ends: list[int] = []
    innermost: list[int] = []
    span, last = -1, len(event_ids) - 1  # the innermost open span, and the last event
    for index, event_id in enumerate(event_ids):
        if event_id >= 0:
            parents.append(span)
            span = len(ids)
            ids.append(event_id)
            begins.append(index)
            ends.append(last)
        else:
            ended = span
            while ended >= 0 and ids[ended] != ~event_id:
                ended = parents[ended]
            while ended >= 0 and span != parents[ended]:
                ends[span] = index
                span = parents[span]
        innermost.append(span)
    return Spans(ids, parents, begins, ends, innermost)


def without_pauses(
    event_ids: NDArray[np.int64], values: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Remove pauses from events.

    Args:
        event_ids: The events of a trial, (events,).
        values: Clocks at these events, (clocks, events).

    Returns:
        The events outside of pauses; the clocks at these as if they had stopped during pauses; and
        the total of each clock within pauses, (clocks,).
    """
    is_pause = (event_ids == PAUSE) | (event_ids == ~PAUSE)
    if not is_pause.any():
        return event_ids, values, np.zeros(len(values), np.int64)
    # Pauses may contain pauses; nothing else begins within one.
    depth = np.cumsum(np.where(event_ids == PAUSE, 1, 0) - np.where(event_ids == ~PAUSE, 1, 0))
    paused = np.zeros_like(values)
    paused[:, 1:] = np.where(depth[:-1] > 0, np.diff(values, axis=1), 0)
    paused = np.cumsum(paused, axis=1)
    return event_ids[~is_pause], (values - paused)[:, ~is_pause], paused[:, -1]
