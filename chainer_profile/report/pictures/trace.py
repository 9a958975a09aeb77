"""Summary -> ``trace.json``: one or two trials as Chrome trace events, for Perfetto."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from chainer_profile.analyse import timeline
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import format_shapes, plural
from chainer_profile.record.recording import LinkCalls, Recording
from chainer_profile.report.text import model_name, printable

#: The tracks of a process: their names, and the kinds of slices that they hold.
TRACKS = (
    ("trial and phases", (timeline.TRIAL, timeline.PHASE, timeline.WAIT)),
    ("links", (timeline.LINK,)),
    ("functions", (timeline.FUNCTION,)),
)
#: The counters of the memory pass, and what they show.
ALLOCATED, PEAK = "allocated in the trial", "peak within calls"
_COUNTERS = (
    "Memory comes from the memory pass (a separate trial), placed on the median trial: bytes "
    "in addition to what existed before the trial. Memory allocated or freed between calls is "
    "shown at the end of the phase, where it is known.",
)
_ARROWS = (
    "An arrow leads from a call of the host to its layer on the device. There is none if the "
    "host's call, as placed, would begin after its layer.",
)
THREADS = 10

Event = dict[str, Any]


def render(summary: Summary, trial: int | None = None) -> str:
    """The median trial, and one more if wanted, as a JSON object of Chrome trace events, in UTF-8.

    Lengths are measured, places are worked out; ``otherData`` says how. Every trial begins at 0 in
    a process of its own, on a GPU in one for the host and one for the device.
    """
    recording = summary.recording
    middle = timeline.median_trial(recording)
    if trial is not None and not 0 <= trial < recording.n_trials:
        raise UsageError(
            f"there is no trial {trial}: the recording has trials 0 to {recording.n_trials - 1}"
        )
    chosen = [middle] if trial is None or trial == middle else [middle, trial]
    facts = _Facts(summary)
    events: list[Event] = []
    shown: list[Event] = []
    for number in chosen:
        words = "median trial" if number == middle else "chosen trial"
        title = f"{words} (trial {number} of {recording.n_trials}, counted from 0)"
        host, device = (
            timeline.lay_out(recording, number),
            timeline.lay_out_device(recording, number),
        )
        sides = [(": host", host), (": device", device)] if device else [("", host)]
        led = _led(host, device)
        for place, (side, root) in enumerate(sides):
            pid = len(shown) + 1
            shown.append({"process": pid, "trial": number, "what": title + side})
            events += process_names(pid, title + side)
            for thread, (_, kinds) in enumerate(TRACKS, start=1):
                for event, one in slices(root, kinds, pid, thread, facts.of):
                    events.append(event)
                    if event["ph"] == "B" and one.layer is not None and one.layer in led:
                        same = {key: event[key] for key in ("pid", "tid", "ts")}
                        arrow = number * len(recording.layers) + one.layer + 1
                        events.append(_arrow(place, same, arrow))
            if number == middle and root is sides[-1][1]:
                events += _memory(recording, pid, root)
    return written(
        events,
        model=model_name(recording.settings),
        trials=recording.n_trials,
        shown=shown,
        places=list(_places(recording)),
        settings=_plain(dataclasses.asdict(recording.settings)),
        environment=_plain(dataclasses.asdict(recording.environment)),
    )


def written(events: Iterable[Event], **other: Any) -> str:
    """A trace of these events, each on a line, and what else is known of it."""
    head = as_json({"displayTimeUnit": "ns", "otherData": other})
    lines = ",\n".join(map(as_json, events))
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def _places(recording: Recording) -> Iterator[str]:
    yield from (
        (*timeline.LAUNCH_PLACES, *timeline.DEVICE_PLACES, *_ARROWS)
        if recording.on_device
        else timeline.HOST_PLACES
    )
    if recording.memory is not None:
        yield from _COUNTERS


class _Facts:
    """What is known of every slice, beside its time."""

    def __init__(self, summary: Summary) -> None:
        self.recording = summary.recording
        self._links: dict[str, LinkCalls] = {link.path: link for link in self.recording.links}
        self._layers = [self._layer(row) for row in summary.layers.itertuples()]

    def of(self, one: timeline.Slice) -> Event:
        """The arguments of a slice."""
        if one.layer is not None:
            own_ns = one.calls_ns - sum(inner.calls_ns for inner in one.inner)
            return self._layers[one.layer] | {"self_us": us(own_ns)}
        if one.kind == timeline.WAIT:
            return {}
        known: Event = {"calls_us": us(one.calls_ns)}
        if one.kind == timeline.LINK and one.name in self._links:
            link = self._links[one.name]
            known |= {
                "class": printable(link.kind),
                "calls_in_a_trial": link.calls,
                "own_parameters": link.parameters,
            }
        return known

    def _layer(self, row: Any) -> Event:
        layer = self.recording.layers[row.Index]
        known: Event = {
            "index": row.Index,
            "path": printable(layer.path),
            "phase": printable(layer.phase),
            "input_shapes": format_shapes(layer.input_shapes),
            "output_shapes": format_shapes(layer.output_shapes),
            "dtype": printable(layer.dtype),
            "share": _number(row.share),
            "mean_us": _number(row.mean_s * 1e6),
            "median_us": _number(row.median_s * 1e6),
            "hot": bool(row.hot),
        }
        if layer.flops is not None:
            known["flops"] = layer.flops
        more = {
            "work_is_about": layer.flops is not None and layer.work_is_about,
            "calls": f"{plural(layer.calls, 'call')} drawn as one" if layer.calls > 1 else "",
            "within": self._label(timeline.parent_of(layer, row.Index)),
            "goes_back_through": self._label(layer.forward),
            "covers": list(layer.covers),
            "node": printable(layer.node),
        }
        return known | {name: value for name, value in more.items() if value}

    def _label(self, index: int | None) -> str:
        layers = self.recording.layers
        if index is None or not 0 <= index < len(layers):
            return ""
        return printable(layers[index].label)


def _led(host: timeline.Slice, device: timeline.Slice | None) -> set[int | None]:
    """The layers to which arrows lead, from the host's calls to where they are on the device."""
    if device is None:
        return set()
    begins = {one.layer: one.begin_ns for _, one in device.walk((timeline.FUNCTION,))}
    return {
        one.layer for _, one in host.walk((timeline.FUNCTION,)) if one.begin_ns <= begins[one.layer]
    }


def _arrow(place: int, same: Event, number: int) -> Event:
    """The begin (place 0) or the end (place 1) of an arrow."""
    event = {"ph": "sf"[place], **same, "name": "launch", "cat": "launch", "id": number}
    return event | ({"bp": "e"} if place else {})


def process_names(pid: int, name: str, tracks: Iterable[str] = ()) -> Iterator[Event]:
    """The names of a process and of its :data:`TRACKS`, with others behind them."""

    def named(kind: str, tid: int, **args: object) -> Event:
        return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args}

    yield named("process_name", pid * THREADS, name=name)
    yield named("process_sort_index", pid * THREADS, sort_index=pid)
    for thread, track in enumerate((*(track for track, _ in TRACKS), *tracks), start=1):
        yield named("thread_name", pid * THREADS + thread, name=track)
        yield named("thread_sort_index", pid * THREADS + thread, sort_index=thread)


def slices(
    root: timeline.Slice,
    kinds: Sequence[str],
    pid: int,
    thread: int,
    known: Callable[[timeline.Slice], Event],
    start_ns: int = 0,
) -> Iterator[tuple[Event, timeline.Slice]]:
    """The slices of some kinds as begins and ends, in the order of time."""
    # Complete events would overlap by a nanosecond where a viewer rounds begins and lengths, and
    # some viewers drop slices that overlap.
    for begins, one in root.edges(kinds):
        at = start_ns + (one.begin_ns if begins else one.end_ns)
        event: Event = {"pid": pid, "tid": pid * THREADS + thread, "ts": us(at)}
        if begins:
            event |= {"name": printable(one.name) or "(no name)", "cat": one.kind}
            yield {"ph": "B", **event, "args": known(one)}, one
        else:
            yield {"ph": "E", **event}, one


def _memory(recording: Recording, pid: int, root: timeline.Slice) -> Iterator[Event]:
    """The memory pass as counters, at the places of a trial."""
    use = recording.memory
    if use is None:
        return
    level = 0
    peaks: list[int] = []
    of_phases = {phase.phase: phase.retained_nbytes for phase in use.phases}
    runs = [part.name for part in root.inner if part.kind == timeline.PHASE]

    def counted(at: int, name: str, value: int) -> Event:
        return {"ph": "C", "pid": pid, "ts": us(at), "name": name, "args": {"bytes": value}}

    began = 0
    yield counted(root.begin_ns, ALLOCATED, 0)
    yield counted(root.begin_ns, PEAK, 0)
    for begins, one in root.edges((timeline.PHASE, timeline.FUNCTION)):
        if one.layer is None:
            if begins:
                began = level
            elif one.name in of_phases and runs.count(one.name) == 1:
                level = began + of_phases[one.name]
                yield counted(one.end_ns, ALLOCATED, level)
                yield counted(one.end_ns, PEAK, level)
        elif begins:
            peaks.append(level + use.peak_nbytes[one.layer])
            yield counted(one.begin_ns, PEAK, peaks[-1])
        else:
            level += use.retained_nbytes[one.layer]
            peaks.pop()
            yield counted(one.end_ns, ALLOCATED, level)
            yield counted(one.end_ns, PEAK, peaks[-1] if peaks else level)


def as_json(value: Event) -> str:
    """An object as JSON that Perfetto shows as it is."""
    # As UTF-8: Perfetto 52 shows the numbers of other characters in place of them. A backslash is
    # written as a number, as Perfetto takes a text to go on behind one at its end.
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    return text.replace("\\\\", "\\u005c")


def us(ns: int) -> float:
    """Microseconds, with all digits: so many as a number has in JSON hold days in nanoseconds."""
    return ns / 1000


def _number(value: float) -> float | None:
    """A number, or none where it is not known: JSON has no NaN."""
    return round(float(value), 6) if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """A value that any reader of JSON takes: no NaN, no half characters."""
    if isinstance(value, dict):
        return {printable(str(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return printable(value) if isinstance(value, str) else value
