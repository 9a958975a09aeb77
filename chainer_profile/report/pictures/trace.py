"""Summary -> ``trace.json``: one or two trials as Chrome trace events for Perfetto."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from chainer_profile.analyse import timeline
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import format_shapes
from chainer_profile.report.text import model_name, printable

#: The tracks of a process, each with the kinds of its slices.
TRACKS = (
    ("trial and phases", (timeline.TRIAL, timeline.PHASE, timeline.WAIT)),
    ("links", (timeline.LINK,)),
    ("functions", (timeline.FUNCTION,)),
)
#: Thread ids per process; thread ids of different processes differ too.
_THREADS = 10

Event = dict[str, Any]


def render(summary: Summary, trial: int | None = None) -> str:
    """Format the median trial, and ``trial`` if given, as Chrome trace events in JSON.

    Durations are measured, begin times are computed from them as ``otherData`` describes. Each
    trial is a process that begins at 0; on a GPU, one process for the host and one for the device.
    Raises UsageError if the recording has no such trial.
    """
    recording = summary.recording
    middle = timeline.median_trial(recording)
    if trial is not None and not 0 <= trial < recording.n_trials:
        raise UsageError(
            f"there is no trial {trial}: the recording has trials 0 to {recording.n_trials - 1}"
        )
    events: list[Event] = []
    processes: list[Event] = []
    for number in [middle] if trial in (None, middle) else [middle, trial]:
        kind = "median trial" if number == middle else "chosen trial"
        title = f"{kind} (trial {number} of {recording.n_trials}, counted from 0)"
        host = timeline.lay_out(recording, number)
        device = timeline.lay_out_device(recording, number)
        for side, root in [(": host", host), (": device", device)] if device else [("", host)]:
            pid = len(processes) + 1
            processes.append({"process": pid, "trial": number, "what": title + side})
            named = {"ph": "M", "pid": pid, "tid": pid * _THREADS}
            events.append({**named, "name": "process_name", "args": {"name": title + side}})
            events.append({**named, "name": "process_sort_index", "args": {"sort_index": pid}})
            for i, (track, kinds) in enumerate(TRACKS, start=1):
                named = {"ph": "M", "pid": pid, "tid": pid * _THREADS + i}
                events.append({**named, "name": "thread_name", "args": {"name": track}})
                events.append({**named, "name": "thread_sort_index", "args": {"sort_index": i}})
                events += _slices(summary, root, kinds, {"pid": pid, "tid": pid * _THREADS + i})
    other = {
        "model": model_name(recording.settings),
        "trials": recording.n_trials,
        "shown": processes,
        "places": [*timeline.LAUNCH_PLACES, *timeline.DEVICE_PLACES]
        if recording.on_device
        else list(timeline.HOST_PLACES),
    }
    head = _as_json({"displayTimeUnit": "ns", "otherData": other})
    lines = ",\n".join(map(_as_json, events))
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def _slices(
    summary: Summary, root: timeline.Slice, kinds: Sequence[str], track: Event
) -> Iterator[Event]:
    """Yield begin and end events of the slices of some kinds, in the order of time."""
    # Viewers round begins and durations of complete events, which then overlap by a nanosecond;
    # some viewers drop slices that overlap.
    for begins, slice_ in root.edges(kinds):
        if begins:
            named = {"name": printable(slice_.name) or "(no name)", "cat": slice_.kind}
            facts = _facts(summary, slice_)
            yield {"ph": "B", **track, "ts": _us(slice_.begin_ns), **named, "args": facts}
        else:
            yield {"ph": "E", **track, "ts": _us(slice_.end_ns)}


def _facts(summary: Summary, slice_: timeline.Slice) -> Event:
    """The arguments that Perfetto shows for a slice."""
    if slice_.layer is None:
        return {} if slice_.kind == timeline.WAIT else {"calls_us": _us(slice_.calls_ns)}
    layer = summary.recording.layers[slice_.layer]
    median_s, share, hot = summary.layers.loc[slice_.layer, ["median_s", "share", "hot"]]
    return {
        "index": slice_.layer,
        "path": printable(layer.path),
        "phase": printable(layer.phase),
        "input_shapes": format_shapes(layer.input_shapes),
        "output_shapes": format_shapes(layer.output_shapes),
        "calls": layer.calls,
        "self_us": _us(slice_.calls_ns - sum(inner.calls_ns for inner in slice_.inner)),
        "median_us": _number(median_s * 1e6),
        "share": _number(share),
        "hot": bool(hot),
    }


def _as_json(value: Event) -> str:
    """Format an object as JSON that Perfetto reads correctly."""
    # Perfetto 52 does not decode \u escapes of other characters, so they are UTF-8. It takes a
    # backslash at the end of a text for an escape of the quote, so a backslash is \u005c.
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    return text.replace("\\\\", "\\u005c")


def _us(ns: int) -> float:
    """Nanoseconds as microseconds; a float is exact to the nanosecond for days."""
    return ns / 1000


def _number(value: float) -> float | None:
    """A rounded number, or None for NaN, which JSON lacks."""
    return round(float(value), 6) if math.isfinite(value) else None
