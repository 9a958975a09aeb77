"""Counters made by hand."""

from __future__ import annotations

from chainer_profile.record.recording import Counted, Counters, Recording

US = 1000


def counters(
    recording: Recording,
    *,
    trials: int = 4,
    wall_us: int = 100,
    cpu_us: int = 90,
    system_us: int = 9,
    page_faults: int = 50,
    fault_ns: float | None = 100.0,
    waits: int = 0,
    preemptions: int = 0,
    **more: int,
) -> Counters:
    """Each layer and the framework have these; system time is told of the trials alone."""
    values = {
        "wall_ns": wall_us * US,
        "cpu_ns": cpu_us * US,
        "system_ns": system_us * US,
        "page_faults": page_faults,
        "waits": waits,
        "preemptions": preemptions,
        **more,
    }
    layers, phases = len(recording.layers), len(recording.phases)
    return Counters(
        trials,
        tuple(
            Counted(
                name,
                () if name == "system_ns" else (trials * value,) * layers,
                () if name == "system_ns" else (trials * value,) * phases,
                ((layers + max(phases, 1)) * value,) * trials,
            )
            for name, value in values.items()
        ),
        fault_ns,
    )
