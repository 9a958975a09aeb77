"""A row of a tape, and its entries: what is known of calls whose inputs have the same shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chainer_profile.costs.call import ArraySpec, Work
from chainer_profile.measure.owners import whole_or_mean
from chainer_profile.measure.windows import FORWARD
from chainer_profile.record.recording import Layer

#: What is entered: a call of a function, its backward, a sum of gradients, what has a mark, or a
#: function that is called in a backward, whose time is that of the backward.
CALL, BACKWARD, SUM, MARK, INNER = KINDS = ("call", "backward", "sum", "mark", "inner")
#: Shapes of inputs that are told apart in a row; the work of calls with others is their mean.
MOST_SHAPES = 64
WORK = ("flops", "macs", "nbytes_read", "nbytes_written")


class Entry:
    """What is entered: calls of a row whose inputs have the same shapes; or a phase."""

    __slots__ = (
        *("calls", "facts", "kind", "made_nbytes", "name", "ns"),
        *("number", "of", "row", "rows", "specs", "work"),
    )

    def __init__(
        self, number: int, rows: object, row: int, kind: str = "", of: Row | None = None
    ) -> None:
        self.number = number
        # Whose it is: a row, with its number among some rows; of a phase that is -1 - its number.
        self.rows, self.row, self.of = rows, row, of
        self.kind = kind  # one of KINDS; of a phase, and outside of all, empty
        self.name = ""  # of the function, as Chainer has it
        self.work: Work | None = None
        #: Fields of its row; the shapes and types of a call's inputs and outputs; and bytes of the
        #: outputs that are no views of inputs.
        self.facts: dict[str, Any] = {}
        self.specs: tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]] | None = None
        self.made_nbytes = 0
        self.calls = self.ns = 0


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
        facts = dict(main.facts)
        if len(self.entries) > 1 or calls != iterations:
            facts |= {
                name: round(value * calls / iterations)
                for name, value in facts.items()
                if name.endswith("_nbytes") and self.phase == FORWARD.phase
            }
        works = [(entry.work, entry.calls) for entry in self.entries if entry.work is not None]
        # Calls with shapes of their own count as the others do.
        counted = sum(n for _, n in works)
        about = counted < calls or len(self.entries) > MOST_SHAPES
        scale = calls / counted / iterations if counted else 0
        mean_calls = whole_or_mean(calls / iterations) if calls else 1
        return self._layer(number, mean_calls, facts, works if counted else [], scale, about)

    def layer_of_calls(self, number: int) -> Layer:
        """What is known of it where each of its entries is a call."""
        works = [(entry.work, 1) for entry in self.entries if entry.work is not None]
        calls = len(self.entries)
        facts = self.entries[0].facts
        return self._layer(number, calls, facts, works if len(works) == calls else [])

    def _layer(
        self,
        number: int,
        calls: float,
        facts: dict[str, Any],
        works: Sequence[tuple[Work, int]],
        scale: float = 1,
        about: bool = False,
    ) -> Layer:
        sums: dict[str, Any] = dict.fromkeys(WORK)
        if works:
            for name in WORK:
                sums[name] = round(sum(getattr(work, name) * n for work, n in works) * scale)
            sums["work_is_about"] = about or any(work.about for work, _ in works)
        return Layer(
            number,
            self.path,
            self.function,
            self.phase,
            parent=self.parent,
            forward=self.forward,
            calls=calls,
            **facts,
            **sums,
        )
