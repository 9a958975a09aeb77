"""A clock that notes the owner of its time, and the rows that a profile must report."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

from chainer_profile.basics.paths import joined
from tests.conftest import FakeClock


def framework_of(phase):
    return "", "", phase


#: Owners of time other than calls, as path, function and phase: the phases, sums of gradients of
#: any variable, and ``cleargrads``.
FORWARD, BACKWARD, UPDATE = map(framework_of, ("forward", "backward", "update"))
SUMS = ("", "gradient_accumulation", "backward")
CLEARGRADS = ("cleargrads", "cleargrads", "backward")


@dataclass
class Trial:
    """The true times and calls of a call of the network, by owners as in the ledger."""

    way: int = 0
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    spent: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)
    links: Counter = field(default_factory=Counter)
    last: object = None


@dataclass
class Ledger(FakeClock):
    """A clock that notes the owner of the time by which it is advanced.

    An owner is a path, a function and a phase, for every call with a number of its own; or a phase
    alone, whose framework time it is.
    """

    prefix: str = ""
    paths: dict[int, str] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    open_owners: list[tuple] = field(default_factory=lambda: [FORWARD])
    trials: dict[int, Trial] = field(default_factory=dict)  # the key is the time of the begin
    trial: Trial = field(default_factory=Trial)
    ended: list[tuple[tuple, int]] = field(default_factory=list)
    in_loss: bool = False

    def begin(self, ways):
        """The network is called, which is a trial."""
        root = joined(self.prefix, "/")
        self.running[:] = [root]
        way = ways[len(self.trials) % len(ways)]
        self.trial = self.trials[self.time_ns] = Trial(way, links=Counter([root]))

    def spend(self, duration_ns, owner=None):
        if duration_ns:
            duration_ns += len(self.trials) % 5  # no two trials take the same
        self.advance(duration_ns)
        self.trial.spent[owner or self.open_owners[-1]] += duration_ns

    @contextmanager
    def within(self, owner):
        """Let time within the context belong to an owner, whose call this is."""
        self.trial.calls[owner[:3]] += 1
        self.open_owners.append(owner)
        try:
            yield
        finally:
            self.open_owners.pop()
        self.ended.append((owner, self.trial.spent[owner]))

    def path_of(self, link):
        """Path of a call that takes a link's parameter, if it does."""
        if self.in_loss and not self.running:
            return "loss"
        running = self.running[-1] if self.running else "/"
        path = self.paths.get(id(link), "")
        return path if path.startswith(running.rstrip("/") + "/") else running


def row_of(layer):
    return SUMS if layer.function == SUMS[1] else (layer.path, layer.function, layer.phase)


def by_row(layers, values):
    """Values of rows by link, of which no two are of one row."""
    assert len({(layer.path, layer.function, layer.phase) for layer in layers}) == len(layers)
    totals = Counter()
    for layer, value in zip(layers, values, strict=True):
        totals[row_of(layer)] += int(value)
    return totals


def of_rows(spent):
    """The time of a trial by rows by link, each with the time of all its calls."""
    totals = Counter()
    for owner, ns in spent.items():
        totals[owner[:3]] += ns
    return totals


def by_call(layers, times_ns):
    """The rows that are calls, and the times of all rows by owner."""
    calls = [row for row in layers if row.forward is None and row.function in ("Work", "OldWork")]
    number = {layer.index: (at,) for at, layer in enumerate(calls)}
    times = Counter()
    for layer, time_ns in zip(layers, times_ns, strict=True):
        called = layer.index if layer.forward is None else layer.forward
        times[row_of(layer) + number.get(called, ())] += int(time_ns)
    return [row_of(layer) for layer in calls], times
