"""Trials that are added to a journal, and what must come back: what its tests share."""

import struct

import numpy as np

from chainer_profile.record.journal import Journal, Kind
from chainer_profile.record.recording import Environment, Settings
from tests.conftest import make_layers

HALF_SECOND = 500_000_000
MAGIC = b"chainer-profile journal\n"
ENVIRONMENT = Environment(processor="A processor", python="CPython 3.11")


def words(*values):
    return struct.pack(f"<{len(values)}q", *values)


def record(kind, start, wall, more):
    """The bytes of one record, by the format's description."""
    return words(kind, start, wall, *more, kind)


def add(journal, trial):
    kind, start, wall, more = trial
    journal.add(kind, start, wall, words(*more))


def trials_of(recording):
    """A recording's trials as lists by kind, each trial as it was added."""
    times = recording.self_ns
    if recording.framework_ns is not None:
        times = np.hstack([times, recording.framework_ns])
    if recording.on_device:
        whole = np.stack([recording.launch_ns, recording.span_ns], axis=1)
        times = np.hstack([times, recording.host_ns, recording.gap_ns, whole])
    held = [] if recording.held_ns is None else list(recording.held_ns)
    held_walls = [] if recording.held_span_ns is None else recording.held_span_ns
    return {
        Kind.WARMUP: [(int(wall), ()) for wall in recording.warmup_ns],
        Kind.CLEAN: [
            (int(start), int(wall), ())
            for start, wall in zip(recording.clean_start_ns, recording.clean_ns, strict=True)
        ],
        Kind.PROFILED: [
            (int(start), int(wall), tuple(map(int, row)))
            for start, wall, row in zip(recording.start_ns, recording.trial_ns, times, strict=True)
        ],
        Kind.PROBE: [
            (int(wall), (int(threads),))
            for wall, threads in zip(recording.probe_ns, recording.probe_threads, strict=True)
        ],
        Kind.HELD: [
            (int(wall), tuple(map(int, row))) for wall, row in zip(held_walls, held, strict=True)
        ],
    }


def expected(trials):
    """The same of trials that were added; a recording does not keep every start."""
    found = {kind: [] for kind in Kind}
    for kind, start, wall, more in trials:
        keeps_start = kind in (Kind.CLEAN, Kind.PROFILED)
        found[kind].append((start, wall, more) if keeps_start else (wall, more))
    return found


def lengths(n_layers, n_phases=0, on_device=False):
    """Number of integers in the middle of a record, by its kind."""
    more = 2 * n_layers + 2 if on_device else 0
    return {Kind.PROFILED: n_layers + n_phases + more, Kind.PROBE: 1, Kind.HELD: n_layers}


def some_trials(count=8, n_layers=3, step_ns=1000, on_device=False):
    """Trials of all kinds in turn, with times that tell them apart."""
    kinds = [Kind.WARMUP, Kind.PROFILED, Kind.CLEAN, Kind.PROFILED, Kind.PROBE, Kind.HELD]
    sizes = lengths(n_layers, 0, on_device)
    return [
        (
            kinds[i % 6],
            i * step_ns,
            step_ns,
            tuple(i * 100 + j + 1 for j in range(sizes.get(kinds[i % 6], 0))),
        )
        for i in range(count)
    ]


def begun(file, n_layers=3, trials=10, on_device=False, **changes):
    journal = Journal(file)
    asked = Settings(trials=trials, **changes)
    journal.begin(make_layers(n_layers), asked, ENVIRONMENT, on_device=on_device)
    return journal
