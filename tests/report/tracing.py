"""Recordings for traces: the samples, and generated ones with nested calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from chainer_profile.record.recording import MemoryUse, PhaseMemory, Recording
from tests import ROOT
from tests.analyse.test_grouping import recordings

SAMPLES = sorted((ROOT / "reports" / "samples").glob("*/recording.npz"))


def no_constant(name: str) -> Any:
    """Refuse NaN and Infinity in ``json.loads(parse_constant=...)``."""
    raise AssertionError(f"{name} is no JSON")


@st.composite
def nested(draw: st.DrawFn) -> Recording:
    """Draw any recording with nested calls, on the host or a device, with or without memory."""
    recording = draw(recordings())
    parents = [draw(st.none() | st.integers(-1, row.index + 1)) for row in recording.layers]
    rows = zip(recording.layers, parents, strict=True)
    layers = tuple(replace(layer, parent=parent) for layer, parent in rows)
    changes: dict[str, Any] = {"layers": layers}
    n_trials, size = recording.n_trials, recording.self_ns.shape
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    limit_ns = draw(st.sampled_from([1, 10, 10**6]))
    if recording.trial_ns is not None and draw(st.booleans()):
        host, gaps = rng.integers(0, limit_ns, (2, *size))
        rests = rng.integers(0, limit_ns, (3, n_trials))
        launch = host.sum(axis=1) + rests[0]
        span = recording.self_ns.sum(axis=1) + gaps.sum(axis=1) + rests[1]
        changes |= {"host_ns": host, "gap_ns": gaps, "launch_ns": launch, "span_ns": span}
        changes["trial_ns"] = np.maximum(launch, span) + rests[2]
    if draw(st.booleans()):
        peaks, kept = rng.integers(-1000, 1000, (2, len(layers))).tolist()
        names = enumerate(dict.fromkeys(layer.phase for layer in layers))
        phases = tuple(PhaseMemory(phase, 0, 10 * place) for place, phase in names)
        changes["memory"] = MemoryUse(tuple(peaks), tuple(kept), 1, 1, 1, None, phases=phases)
    return replace(recording, **changes)
