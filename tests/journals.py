"""Trials that are added to a journal, and what must come back: what its tests share."""

import itertools
import struct

import numpy as np

from chainer_profile.record.journal import Header, Journal, Kind
from chainer_profile.record.recording import Environment, Settings
from tests.conftest import make_layers

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


def add_groups(journal, trials):
    """Add trials, those of a kind in a row at once."""
    for kind, group in itertools.groupby(trials, lambda trial: trial[0]):
        journal.add_group(kind, [(start, wall, words(*more)) for _, start, wall, more in group])


#: Arrays of what a profiled trial has beside its start and wall time, in a record's order.
PROFILED = (
    *("self_ns", "framework_ns", "host_ns", "gap_ns", "launch_ns", "span_ns"),
    *("arrived_ns", "left_ns", "iteration"),
)


def trials_of(recording):
    """A recording's trials as lists by kind, each trial as it was added."""

    def trials(times, *more):
        known = [getattr(recording, name) for name in (*times, *more)]
        known = [one if one.ndim > 1 else one[:, None] for one in known if one is not None]
        rows = np.hstack(known).tolist() if known else []
        return [(*row[: len(times)], tuple(row[len(times) :])) for row in rows]

    return {
        Kind.WARMUP: trials(["warmup_ns"]),
        Kind.CLEAN: trials(["clean_start_ns", "clean_ns"], "clean_cpu_ns"),
        Kind.PROFILED: trials(["start_ns", "trial_ns"], *PROFILED),
        Kind.PROBE: trials(["probe_ns"], "probe_threads"),
        Kind.HELD: trials(["held_span_ns"], "held_ns"),
    }


def expected(trials):
    """The same of trials that were added; a recording does not keep every start."""
    found = {kind: [] for kind in Kind if kind not in (Kind.ROWS, Kind.ITERATION)}
    for kind, start, wall, more in trials:
        keeps_start = kind in (Kind.CLEAN, Kind.PROFILED)
        found[kind].append((start, wall, more) if keeps_start else (wall, more))
    return found


def lengths(n_layers, n_phases=0, on_device=False, cpu=False, iterations=False, collectives=0):
    """Number of integers in the middle of a record, by its kind."""
    more = 2 * n_layers + 2 if on_device else 0
    profiled = n_layers + n_phases + more + 2 * collectives + iterations
    return {Kind.PROFILED: profiled, Kind.PROBE: 1, Kind.HELD: n_layers, Kind.CLEAN: int(cpu)}


def some_trials(count, on_device=False):
    """Trials of all kinds in turn of three layers, with times that tell them apart."""
    kinds = [Kind.WARMUP, Kind.PROFILED, Kind.CLEAN, Kind.PROFILED, Kind.PROBE, Kind.HELD]
    sizes = lengths(3, 0, on_device)
    trials = []
    for i in range(count):
        kind = kinds[i % 6]
        more = tuple(i * 100 + j + 1 for j in range(sizes.get(kind, 0)))
        trials.append((kind, i * 1000, 1000, more))
    return trials


def begin(journal, on_device=False):
    journal.begin(Header(make_layers(3), Settings(trials=10), ENVIRONMENT, on_device=on_device))


def begun(file):
    """A journal of three layers."""
    journal = Journal(file)
    begin(journal)
    return journal
