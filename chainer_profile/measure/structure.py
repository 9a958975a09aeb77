"""What one trial does: its rows, which of them each moment belongs to, and if another is as it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.measure.calls import BACKWARD, Entry, Log, read
from chainer_profile.record.recording import Layer, LinkCalls

#: What keeps an array, as a weak reference; the attribute; and the path of the link.
Kept = tuple[ref[Any], str, str]


@dataclass(frozen=True, eq=False)
class Structure:
    """The windows of one trial, and whose the time between every two clock reads is."""

    layers: tuple[Layer, ...]
    phases: tuple[str, ...]
    links: tuple[LinkCalls, ...]
    #: What the time after each clock read belongs to, (reads,): an index of layers, ``len(layers)``
    #: and on for the framework time of phases, -1 for all other time.
    owners: NDArray[np.intp]
    #: Of every window, in the order of entering, what was entered and the bytes of its first input.
    windows: tuple[tuple[Entry, int | str], ...] = ()
    #: Of every window the parameter or persistent array that is its last input, if it is one: where
    #: it is kept, and a weak reference to the array itself.
    parameters: tuple[tuple[Kept, ref[Any]] | None, ...] = ()
    #: The same of all parameters and persistent arrays of the networks.
    of_network: tuple[Kept, ...] = ()
    #: Classes of functions that raise an exception, which the network catches.
    raising: frozenset[type] = frozenset()
    log: Log = field(default_factory=list, repr=False)
    #: Of every row bytes of the outputs that are no views of its inputs; of a forward function that
    #: is within no other one.
    made_nbytes: tuple[int, ...] = ()

    def times_ns(self, stamps: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Clock reads of trials as times: of every layer, then of every phase's framework."""
        # The time between two reads belongs to one owner, so nothing is counted twice and nothing
        # is lost: the times and what passed outside (owner -1) add up to the trial.
        spans = np.diff(np.asarray(stamps, np.int64), axis=-1)
        owned, starts = self._starts
        times = np.zeros((*spans.shape[:-1], len(owned)), np.int64)
        times[..., owned] = np.add.reduceat(spans[..., self._order], starts, axis=-1)
        return times

    @cached_property
    def collectives(self) -> tuple[list[int], list[int]]:
        """Which reads begin the first call of each row of communication, and end its last."""
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        rows = {layer.index for layer in self.layers if layer.phase == COMMUNICATION}
        for _, begin, end in read(self.log).ended if rows else ():
            row = int(self.owners[begin])
            if row in rows:
                begins.setdefault(row, begin)
                ends[row] = end
        return [begins[row] for row in sorted(rows)], [ends[row] for row in sorted(rows)]

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        order = np.argsort(self.owners[:-1], kind="stable")
        return order[np.searchsorted(self.owners[:-1][order], 0) :]

    @cached_property
    def _starts(self) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Which columns have any time (an update of nothing has none), and where theirs begins."""
        columns = np.arange(len(self.layers) + len(self.phases))
        starts = np.searchsorted(self.owners[self._order], [*columns, len(columns)])
        owned = starts[1:] > starts[:-1]
        return owned, starts[:-1][owned]

    @cached_property
    def history(
        self,
    ) -> tuple[list[str], NDArray[np.intp], NDArray[np.intp], list[tuple[int, int]]]:
        """The functions of a trial in the order in which they end, as a flat history has them.

        Their names, which clock reads are their begins and their ends, and which lies directly
        within which, by their places in this order.
        """
        calls = read(self.log)
        ended = [one for one in calls.ended if isinstance(self.log[calls.enters[one[0]]], type)]
        names = [self.log[calls.enters[window]].__name__ for window, _, _ in ended]
        within = []
        for inner, (_, begin, end) in enumerate(ended):
            outer = (n for n, one in enumerate(ended) if one[1] < begin and end < one[2])
            # Of all that hold it, the innermost ends first.
            within += [(inner, number) for number in list(outer)[:1]]
        places = np.array([one[1:] for one in ended], np.intp).reshape(-1, 2)
        return names, places[:, 0], places[:, 1], within

    def place(self, n_windows: int) -> str:
        """Label of the last row that had been entered after so many windows, if any."""
        calls = read(self.log)
        begins = {at + 3: number for number, at in enumerate(calls.enters)}
        rows = [
            owner
            for at, owner in zip(calls.stamps, self.owners.tolist(), strict=True)
            if begins.get(at, n_windows) < n_windows and 0 <= owner < len(self.layers)
        ]
        return self.layers[rows[-1]].label if rows and n_windows <= len(begins) else ""

    # -- whether another trial is one of these

    def is_alike(self, seen: Structure) -> bool:
        """Whether another one has the same windows, and :meth:`same_rows`."""
        return self.stamps(seen.log) is not None and self.same_rows(seen)

    def same_rows(self, seen: Structure) -> bool:
        """Whether another one with the same windows has the paths and shapes of these rows."""
        return all(
            a.path == b.path
            and a.input_shapes == b.input_shapes
            # A function that raised gave nothing.
            and (a.output_shapes == b.output_shapes or not (a.output_shapes and b.output_shapes))
            for a, b in zip(self.layers, seen.layers, strict=True)
        )

    def stamps(self, log: Log) -> tuple[int, ...] | None:
        """The clock reads of a trial if its log is one of these windows; None if it is not."""
        if len(log) != len(self.log):
            return None
        look = self._look
        if look.whats(log) != look.known_whats or look.sizes(log) != look.known_sizes:
            return None
        inputs = look.inputs(log)
        if inputs != look.known_inputs:
            if not self._fits(log):
                return None
            look.known_inputs = inputs
        stamps: tuple[int, ...] = look.stamps(log)
        # Functions that raised may lack just as many ends as another one takes place.
        return stamps if set(map(type, stamps)) == {int} else None

    def fits(self, log: Log, begin: int) -> bool:
        """Whether what a log has from there on is one of these windows; see :meth:`stamps`."""
        # Where no window lies in another one, that is told in a fifth of the time.
        flat = self._flat
        if flat is not None and len(log) - begin == len(self.log):
            whats, sizes, inputs = flat
            if (
                log[begin::5] == whats
                and log[begin + 1 :: 5] == sizes
                and inputs(log[begin + 2 :: 5]) == self._look.known_inputs
            ):
                return True
        return self.stamps(log[begin:]) is not None

    def all_stamps(self, log: Log) -> NDArray[np.int64]:
        """The clock reads of trials that fit, one behind the other: (trials, reads)."""
        width, reads = len(self.log), len(self.owners)
        if self._flat is not None:
            return np.array([log[3::5], log[4::5]], np.int64).T.reshape(-1, reads)
        trials = [log[at : at + width] for at in range(0, len(log), width)]
        return np.array([self._look.stamps(trial) for trial in trials], np.int64)

    @cached_property
    def _flat(self) -> tuple[Log, Log, Callable[[Log], Any]] | None:
        """What and how large every window is, and what gets the inputs; None where they nest."""
        whats, sizes = self.log[::5], self.log[1::5]
        if not self.windows or list(zip(whats, sizes, strict=False)) != list(self.windows):
            return None
        return whats, sizes, _items(self._look.with_parameter)

    def with_known_sizes(self, log: Log) -> Log:
        """The log with the first inputs as large as these, to tell whether all else is as here."""
        log = list(log)
        if len(log) == len(self.log):
            for at in self._look.enters:
                if BACKWARD not in (log[at + 1], self.log[at + 1]):
                    log[at + 1] = self.log[at + 1]
        return log

    def _fits(self, log: Log) -> bool:
        """Whether no parameter of the network stands for another one in a trial."""
        now = {id(_array_of(kept)): kept[2] for kept in self.of_network}
        for at, known in zip(self._look.enters, self.parameters, strict=True):
            if known is None:
                continue
            kept, learned = known
            # A parameter may have got another array since. Where the earlier ones were, there may
            # be any array by now: addresses say nothing then.
            replaced = learned() is not _array_of(kept)
            if not replaced and now.get(log[at + 2]) != kept[2]:
                return False
        return True

    @cached_property
    def _look(self) -> _Look:
        calls = read(self.log)
        known = [at for at, parameter in enumerate(self.parameters) if parameter is not None]
        whats, sizes, inputs = (
            _items(calls.enters),
            _items([at + 1 for at in calls.enters]),
            _items([calls.enters[at] + 2 for at in known]),
        )
        places = calls.enters, known, whats, sizes, inputs, _items(calls.stamps)
        return _Look(*places, whats(self.log), sizes(self.log), inputs(self.log))


@dataclass
class _Look:
    """Where things stand in the log of a trial, and what they are; getters are the fastest way."""

    enters: list[int]
    with_parameter: list[int]
    whats: Callable[[Log], Any]
    sizes: Callable[[Log], Any]
    inputs: Callable[[Log], Any]
    stamps: Callable[[Log], Any]
    known_whats: Any
    known_sizes: Any
    known_inputs: Any


def _array_of(kept: Kept) -> Any:
    return getattr(kept[0](), kept[1], None)


def _items(places: list[int]) -> Callable[[Log], Any]:
    if len(places) < 2:  # itemgetter gives no tuple then
        return lambda log: tuple(log[at] for at in places)
    return itemgetter(*places)
