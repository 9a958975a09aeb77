"""Made-up counters for recordings."""

from chainer_profile.record.recording import Counted, Counters

US = 1000


def counters(
    recording,
    *,
    trials=4,
    wall_us=100,
    cpu_us=90,
    system_us=9,
    page_faults=50,
    fault_ns=100.0,
    waits=0,
    preemptions=0,
    **more,
):
    """Make counters with these values for each layer and phase; system time only for trials."""
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
