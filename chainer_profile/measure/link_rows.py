"""Rows by link, function and phase, and what an iteration has of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from chainer_profile.costs.work import Work
from chainer_profile.measure.link_paths import whole_or_mean
from chainer_profile.measure.windows import FORWARD
from chainer_profile.record.recording import Layer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Shapes of inputs that are told apart in a row; the work of calls with others is their mean.
MOST_SHAPES = 64
_WORK = ("flops", "macs", "nbytes_read", "nbytes_written")
_SHAPES = ("input_shapes", "output_shapes", "dtype")
_NBYTES = ("input_nbytes", "parameter_nbytes", "output_nbytes")


class Entry:
    """What is entered: calls of a row whose inputs have the same shapes; or a phase.

    Attributes:
        number: Its place among all entries.
        row: Number of its row; of a phase, -1 - its number.
        work: Work of a call; None where that is not known.
        facts: What is known of the arrays of a call.
        calls: Calls so far.
        ns: Their time so far.
        backward: The entry of the backwards of these calls.
    """

    __slots__ = ("backward", "calls", "facts", "ns", "number", "row", "work")

    def __init__(self, number: int, row: int) -> None:
        self.number, self.row = number, row
        self.work: Work | None = None
        self.facts: dict[str, Any] = {}
        self.calls = self.ns = 0
        self.backward: Entry | None = None


@dataclass(frozen=True, eq=False)
class Iteration:
    """One iteration, on the rows that are known at its end.

    Attributes:
        number: Its number, from 1.
        start_ns: Its start on the host's clock.
        wall_ns: Its wall time, without what looking functions up took.
        paused_ns: What that took.
        rows_ns: Self time of every row, (rows,); on a device its time there.
        calls: Calls of every row, (rows,).
        phases_ns: Framework time of every phase, (phases,).
        arrived_ns: When each row of communication was entered first; 0 where it was not.
        left_ns: When it was left last.
        device: On a device: the host's time in every row and the gap before it, (rows,) each, then
            the time until all was launched, and the time on the device. None without one.
    """

    number: int
    start_ns: int
    wall_ns: int
    paused_ns: int
    rows_ns: NDArray[np.int64]
    calls: NDArray[np.int64]
    phases_ns: NDArray[np.int64]
    arrived_ns: NDArray[np.int64]
    left_ns: NDArray[np.int64]
    device: tuple[NDArray[np.int64], NDArray[np.int64], int, int] | None = None


class Folded(NamedTuple):
    """A log by its clock reads.

    Attributes:
        stamps: The reads, (reads,).
        owners: Number of the entry that the time behind each read belongs to, (reads,).
        enters: Whether the read is the begin of a window, (reads,).
    """

    stamps: NDArray[np.int64]
    owners: NDArray[np.intp]
    enters: NDArray[np.bool_]


@dataclass
class Row:
    """A link's function in a phase, with the entries of its calls."""

    path: str
    function: str
    phase: str
    parent: int | None = None
    forward: int | None = None
    entries: list[Entry] = field(default_factory=list)

    def layer(self, number: int, iterations: int) -> Layer:
        """What is known of it: means over so many iterations, shapes of most of its time."""
        main = max(self.entries, key=lambda entry: entry.ns)
        calls = sum(entry.calls for entry in self.entries)
        facts = {name: value for name, value in main.facts.items() if name != "specs"}
        if len(self.entries) > 1 or calls != iterations:
            facts |= {
                name: round(value * calls / iterations)
                for name, value in facts.items()
                if name.endswith("_nbytes") and self.phase == FORWARD.phase
            }
        return Layer(
            number,
            self.path,
            self.function,
            self.phase,
            parent=self.parent,
            forward=self.forward,
            calls=whole_or_mean(calls / iterations) if calls else 1,
            **facts,
            **self._work(calls, iterations),
        )

    def _work(self, calls: int, iterations: int) -> dict[str, Any]:
        """The mean work of an iteration; calls with shapes of their own count as the others do."""
        known = [(entry.work, entry.calls) for entry in self.entries if entry.work is not None]
        counted = sum(n for _, n in known)
        if not counted:
            return dict.fromkeys(_WORK)
        scale = calls / counted / iterations
        sums: dict[str, Any] = {
            name: round(sum(getattr(work, name) * n for work, n in known) * scale) for name in _WORK
        }
        about = counted < calls or len(self.entries) > MOST_SHAPES
        return {**sums, "work_is_about": about or any(work.about for work, _ in known)}


def facts_of(layer: Layer) -> dict[str, Any]:
    """What a row of a single call tells of its arrays."""
    facts = {name: getattr(layer, name) for name in (*_SHAPES, *_NBYTES)}
    return {name: value for name, value in facts.items() if value is not None}


def work_of_call(layer: Layer) -> Work | None:
    """The work of one of its calls."""
    if layer.flops is None:
        return None
    of_call = {name: round(getattr(layer, name) / layer.calls) for name in _WORK}
    return Work(**of_call, about=layer.work_is_about)
