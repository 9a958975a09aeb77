"""Reads a trace as its format says, with nothing of the program's own; recordings to lay out."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from chainer_profile.record.recording import MemoryUse, PhaseMemory, Recording
from tests.analyse.test_grouping import recordings

SAMPLES = sorted(Path("reports/samples").glob("*/recording.npz"))


@dataclass
class Block:
    """A begin with its end."""

    name: str
    category: str
    begin: int
    args: dict[str, Any]
    outer: Block | None
    end: int = -1
    inner: list[Block] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.end - self.begin


@dataclass
class Trace:
    """What a trace holds: blocks by process and track, in the order of their begins."""

    processes: dict[int, str]
    tracks: dict[tuple[int, str], list[Block]]
    other: dict[str, Any]

    def functions(self, pid: int) -> list[Block]:
        return self.tracks.get((pid, "functions"), [])

    def one(self, pid: int, category: str) -> list[Block]:
        tracks = [blocks for (process, _), blocks in self.tracks.items() if process == pid]
        return [block for blocks in tracks for block in blocks if block.category == category]


def _strict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), "a name stands twice"
    return dict(pairs)


def no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def to_ns(us: Decimal | int) -> int:
    """Whole nanoseconds, which a time must be."""
    scaled = Decimal(us) * 1000
    assert scaled == int(scaled)
    return int(scaled)


def read(text: str) -> Trace:
    """Check all that the format demands, and give what is there."""
    assert text.encode().decode() == text
    # Perfetto 52 takes a text to go on behind a backslash at its end.
    assert r"\\" not in text
    parsed = json.loads(
        text, parse_float=Decimal, parse_constant=no_constant, object_pairs_hook=_strict
    )
    assert set(parsed) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert parsed["displayTimeUnit"] in ("ms", "ns")
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], str] = {}
    opened: dict[tuple[int, int], list[Block]] = defaultdict(list)
    last: dict[tuple[int, int], int] = {}
    trace = Trace(processes, {}, parsed["otherData"])
    for event in parsed["traceEvents"]:
        phase, pid = event["ph"], event["pid"]
        if phase == "M":
            if event["name"] == "process_name":
                assert pid not in processes
                processes[pid] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert (pid, event["tid"]) not in threads
                threads[pid, event["tid"]] = event["args"]["name"]
            continue
        assert pid in processes
        at = to_ns(event["ts"])
        assert at >= 0
        track = pid, event["tid"]
        assert last.get(track, 0) <= at, "time goes back on a track"
        last[track] = at
        stack = opened[track]
        blocks = trace.tracks.setdefault((pid, threads[track]), [])
        if phase == "B":
            assert event["name"]
            outer = stack[-1] if stack else None
            block = Block(event["name"], event["cat"], at, event["args"], outer)
            if outer is not None:
                outer.inner.append(block)
            stack.append(block)
            blocks.append(block)
        else:
            assert phase == "E"
            stack.pop().end = at
    assert not any(opened.values()), "a begin without its end"
    assert len({tid for _, tid in threads}) == len(threads)
    return trace


@st.composite
def nested(draw: st.DrawFn) -> Recording:
    """Any recording, with calls within calls, on the host or on a device, with memory or not."""
    recording = draw(recordings())
    parents = (st.none() | st.integers(-1, layer.index + 1) for layer in recording.layers)
    rows = zip(recording.layers, parents, strict=True)
    layers = tuple(replace(layer, parent=draw(parent)) for layer, parent in rows)
    changes: dict[str, Any] = {"layers": layers}
    n_trials, size = recording.n_trials, recording.self_ns.shape
    rng = np.random.default_rng(draw(st.integers(0, 1000)))

    def samples(*shape: int) -> np.ndarray:
        return rng.integers(0, draw(st.sampled_from([1, 10, 10**6])), shape)

    if recording.trial_ns is not None and draw(st.booleans()):
        host, gaps = samples(*size), samples(*size)
        launch = host.sum(axis=1) + samples(n_trials)
        span = recording.self_ns.sum(axis=1) + gaps.sum(axis=1) + samples(n_trials)
        changes |= {"host_ns": host, "gap_ns": gaps, "launch_ns": launch, "span_ns": span}
        changes["trial_ns"] = np.maximum(launch, span) + samples(n_trials)
    if draw(st.booleans()):
        peaks, kept = rng.integers(-1000, 1000, (2, len(layers))).tolist()
        names = enumerate(dict.fromkeys(layer.phase for layer in layers))
        phases = tuple(PhaseMemory(phase, 0, 10 * place) for place, phase in names)
        changes["memory"] = MemoryUse(tuple(peaks), tuple(kept), 1, 1, 1, None, phases=phases)
    return replace(recording, **changes)
