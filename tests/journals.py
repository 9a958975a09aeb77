"""Trials that are added to a journal, and what must come back: what its tests share."""

import struct

import numpy as np

from chainer_profile.journal import Journal, Kind
from chainer_profile.recording import Environment, Settings
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
    }


def expected(trials):
    """The same of trials that were added; a recording does not keep every start."""
    found = {kind: [] for kind in Kind}
    for kind, start, wall, more in trials:
        keeps_start = kind in (Kind.CLEAN, Kind.PROFILED)
        found[kind].append((start, wall, more) if keeps_start else (wall, more))
    return found


def some_trials(count=8, n_layers=3, step_ns=1000):
    """Trials of all kinds in turn, with times that tell them apart."""
    kinds = [Kind.WARMUP, Kind.PROFILED, Kind.CLEAN, Kind.PROFILED, Kind.PROBE]
    lengths = {Kind.PROFILED: n_layers, Kind.PROBE: 1}
    return [
        (
            kinds[i % 5],
            i * step_ns,
            step_ns,
            tuple(i * 100 + j + 1 for j in range(lengths.get(kinds[i % 5], 0))),
        )
        for i in range(count)
    ]


def begun(file, n_layers=3, trials=10, **changes):
    journal = Journal(file)
    journal.begin(make_layers(n_layers), Settings(trials=trials, **changes), ENVIRONMENT)
    return journal
