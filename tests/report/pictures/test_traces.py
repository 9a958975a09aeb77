"""Traces and stacks are well formed, and their totals equal the totals of the recording."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.record.recording import Layer, LinkCalls, Recording, Settings
from chainer_profile.report.pictures import stacks, trace
from tests.conftest import make_layers, make_recording, make_training
from tests.report.documents import NAMES
from tests.report.tracing import SAMPLES, nested, no_constant
from tests.report.working import make_device_training


def to_ns(us: Decimal | int) -> int:
    """Convert to nanoseconds, and check that the time is a whole number of them."""
    scaled = Decimal(us) * 1000
    assert scaled == int(scaled)
    return int(scaled)


#: A slice of a trace, with its begin and end in ns and the slice that contains it.
Slice = dict[str, Any]


def slices(text: str) -> tuple[list[dict[str, Any]], dict[tuple[int, str], list[Slice]]]:
    """Parse a trace: return the processes that it shows, and its slices by process and category."""
    # In Perfetto 52 a string does not end if its last character is a backslash.
    assert r"\\" not in text
    parsed = json.loads(text, parse_float=Decimal, parse_constant=no_constant)
    slices_made: dict[tuple[int, str], list[Slice]] = defaultdict(list)
    opened: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    last: dict[tuple[int, int], int] = defaultdict(int)
    for event in parsed["traceEvents"]:
        if event["ph"] == "M":
            continue
        track = event["pid"], event["tid"]
        now_ns, stack = to_ns(event["ts"]), opened[track]
        assert last[track] <= now_ns, "time goes back on a track"
        last[track] = now_ns
        if event["ph"] == "B":
            stack.append(event | {"begin": now_ns, "outer": stack[-1] if stack else None})
            slices_made[event["pid"], event["cat"]].append(stack[-1])
        else:
            stack.pop()["end"] = now_ns
    assert not any(opened.values()), "a begin without its end"
    return parsed["otherData"]["shown"], slices_made


def length(shown: Slice) -> int:
    return int(shown["end"] - shown["begin"])


def check_trace(recording: Recording, trial: int | None = None) -> list[str]:
    """Check every total of a trace against the recording; return the names of its processes."""
    entries, slices_made = slices(trace.render(summarise(recording), trial))
    walls_ns = recording.self_ns.sum(axis=1) if recording.trial_ns is None else recording.trial_ns
    sides = [(recording.self_ns, walls_ns)]
    if recording.on_device:
        sides = [(recording.host_ns, walls_ns), (recording.self_ns, recording.span_ns)]
    median = entries[0]["trial"]
    off = np.abs(walls_ns - np.median(walls_ns))
    assert off[median] == off.min()
    numbers = dict.fromkeys((median, median if trial is None else trial))
    wanted = [(number, *side) for number in numbers for side in sides]
    for entry, (number, own_ns, whole_ns) in zip(entries, wanted, strict=True):
        assert entry["trial"] == number
        calls, links, phases, [root] = (
            slices_made[entry["process"], kind] for kind in ("function", "link", "phase", "trial")
        )
        assert length(root) == whole_ns[number]
        assert sorted(call["args"]["index"] for call in calls) == [*range(len(recording.layers))]
        within_ns: Counter[int] = Counter()
        for call in calls:
            layer = recording.layers[call["args"]["index"]]
            assert call["name"] == layer.function
            assert to_ns(call["args"]["self_us"]) == own_ns[number][layer.index]
            has_parent = layer.parent is not None and 0 <= layer.parent < layer.index
            outer = call["outer"] and call["outer"]["args"]["index"]
            assert outer == (layer.parent if has_parent else None)
            if outer is not None:
                within_ns[outer] += length(call)
            # Every function is within its link, its phase and the trial.
            for every in (
                [link for link in links if link["name"] == layer.path],
                [phase for phase in phases if has_parent or phase["name"] == layer.phase],
                [root],
            ):
                assert any(
                    holder["begin"] <= call["begin"] <= call["end"] <= holder["end"]
                    for holder in every
                )
        for call in calls:
            inner_ns = within_ns[call["args"]["index"]]
            assert length(call) == to_ns(call["args"]["self_us"]) + inner_ns
        in_phases = sum(phase["args"]["calls_us"] for phase in phases)
        assert to_ns(in_phases) == own_ns[number].sum()
    return [entry["what"] for entry in entries]


def check_stacks(recording: Recording) -> None:
    shown = folded(recording)
    # Slices add up to the mean trial in whole nanoseconds; half a nanosecond is rounded up.
    whole = recording.self_ns.sum(axis=1) if recording.trial_ns is None else recording.trial_ns
    assert sum(shown.values()) == (2 * int(whole.sum()) + len(whole)) // (2 * len(whole))
    spent: Counter[str] = Counter()
    for layer, mean_ns in zip(recording.layers, recording.self_ns.mean(axis=0), strict=True):
        spent[layer.function] += mean_ns
    for stack, ns in shown.items():
        spent[stack[-1]] -= ns
    assert all(abs(spent[layer.function]) <= len(recording.layers) for layer in recording.layers)


def folded(recording: Recording) -> dict[tuple[str, ...], int]:
    """Parse folded stacks like flame graph programs do: the last word is the number."""
    lines = stacks.render_folded(summarise(recording)).splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines]
    numbers = {tuple(frames.split(";")): int(number) for frames, number in pairs}
    assert len(numbers) == len(lines)
    assert all(frame and frame.isprintable() and " " not in frame for s in numbers for frame in s)
    return numbers


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_traces_of_the_samples_add_up(path: Path) -> None:
    recording = Recording.load(path)
    check_trace(recording, recording.n_trials - 1)
    check_stacks(replace(recording, inside=None))


@given(nested())
def test_trace_of_any_recording_adds_up(recording: Recording) -> None:
    check_trace(recording, 0)
    check_stacks(recording)


def test_deeply_nested_calls_and_inconsistent_times_are_traced() -> None:
    # Every call is nested in the previous one.
    rows = zip(make_layers(3000), (None, *range(2999)), strict=True)
    layers = tuple(replace(layer, parent=parent, path="/a") for layer, parent in rows)
    check_trace(make_recording(3000, n_trials=1, n_clean=0, layers=layers))
    check_trace(make_device_training(4), 2)
    # If a trial is shorter than its layers, the trace has no gaps between them.
    short = make_recording(2, n_trials=1, n_clean=0)
    short = replace(short, trial_ns=short.self_ns.sum(axis=1) - 10)
    _, slices_made = slices(trace.render(summarise(short)))
    [root] = slices_made[1, "trial"]
    assert length(root) == sum(folded(short).values()) == short.self_ns.sum()


def test_trace_shows_the_median_trial_and_a_chosen_one() -> None:
    recording = make_training(4)
    median = "median trial (trial 0 of 4, counted from 0)"
    chosen = "chosen trial (trial 3 of 4, counted from 0)"
    for trial, names in ((None, [median]), (0, [median]), (3, [median, chosen])):
        assert check_trace(recording, trial) == names
    for trial in (-1, 4, 10**20):
        with pytest.raises(UsageError, match=rf"^there is no trial {trial}: .* trials 0 to 3$"):
            trace.render(summarise(recording), trial)


def test_any_name_is_kept_in_traces_and_stacks() -> None:
    for name in NAMES:
        layers = Layer(0, f"/{name}", name, phase=name), Layer(1, "", "")
        more = {"links": (LinkCalls(f"/{name}", name, 1, 0),), "settings": Settings(model=name)}
        recording = make_recording(2, n_trials=2, layers=layers, **more)
        _, slices_made = slices(trace.render(summarise(recording)))
        shown, nameless = (call["name"] for call in slices_made[1, "function"])
        assert shown.isprintable()
        assert shown == name or not name.isprintable()
        assert nameless == "(no name)"
        assert len(folded(recording)) >= 2
