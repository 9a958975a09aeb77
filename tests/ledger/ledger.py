"""A clock that records who spends its time, and the rows that a profile must report."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

from chainer_profile.basics.paths import joined
from tests.conftest import FakeClock


def framework_of(phase):
    return "", "", phase


#: Owners of time that are not calls, as (path, function, phase): phases, gradient sums, and
#: ``cleargrads``.
FORWARD, BACKWARD, UPDATE = map(framework_of, ("forward", "backward", "update"))
SUMS = ("", "gradient_accumulation", "backward")
CLEARGRADS = ("cleargrads", "cleargrads", "backward")


@dataclass
class Trial:
    """True times and numbers of calls of one trial, by owner."""

    way: int = 0
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    spent: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)
    links: Counter = field(default_factory=Counter)
    last: object = None


@dataclass
class Ledger(FakeClock):
    """A clock that records the owner of each time by which it is advanced.

    The owner is a call, as (path, function, phase, number), or the framework time of a phase.
    """

    prefix: str = ""
    paths: dict[int, str] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    open_owners: list[tuple] = field(default_factory=lambda: [FORWARD])
    trials: dict[int, Trial] = field(default_factory=dict)  # keys are begin times
    trial: Trial = field(default_factory=Trial)
    ended: list[tuple[tuple, int]] = field(default_factory=list)
    in_loss: bool = False

    def begin(self, ways):
        """Begin a trial: a call of the network."""
        root = joined(self.prefix, "/")
        self.running[:] = [root]
        way = ways[len(self.trials) % len(ways)]
        self.trial = self.trials[self.time_ns] = Trial(way, links=Counter([root]))

    def spend(self, duration_ns, owner=None):
        if duration_ns:
            duration_ns += len(self.trials) % 5  # successive trials take different times
        self.advance(duration_ns)
        self.trial.spent[owner or self.open_owners[-1]] += duration_ns

    @contextmanager
    def within(self, owner):
        """Count one call of an owner, and let it own the time within the context."""
        self.trial.calls[owner[:3]] += 1
        self.open_owners.append(owner)
        try:
            yield
        finally:
            self.open_owners.pop()
        self.ended.append((owner, self.trial.spent[owner]))

    def path_of(self, link):
        """Path of a call; ``link`` is the link whose parameter the call takes, or None."""
        if self.in_loss and not self.running:
            return "loss"
        running = self.running[-1] if self.running else "/"
        path = self.paths.get(id(link), "")
        return path if path.startswith(running.rstrip("/") + "/") else running


def row_of(layer):
    return SUMS if layer.function == SUMS[1] else (layer.path, layer.function, layer.phase)


def values_by_row(layers, values):
    """Values by row key; no two layers may have the same key."""
    assert len({(layer.path, layer.function, layer.phase) for layer in layers}) == len(layers)
    totals = Counter()
    for layer, value in zip(layers, values, strict=True):
        totals[row_of(layer)] += int(value)
    return totals


def sum_by_row(spent):
    """Times of a trial, added up by row key."""
    totals = Counter()
    for owner, ns in spent.items():
        totals[owner[:3]] += ns
    return totals


def rows_and_times_by_owner(layers, times_ns):
    """Keys of the rows that are calls, and times of all rows by owner."""
    calls = [row for row in layers if row.forward is None and row.function in ("Work", "OldWork")]
    number = {layer.index: (index,) for index, layer in enumerate(calls)}
    times = Counter()
    for layer, time_ns in zip(layers, times_ns, strict=True):
        called = layer.index if layer.forward is None else layer.forward
        times[row_of(layer) + number.get(called, ())] += int(time_ns)
    return [row_of(layer) for layer in calls], times
