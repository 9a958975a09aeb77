"""A row of a tape, and its entries: what is known of calls whose inputs have the same shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chainer_profile.costs.work import Work
from chainer_profile.measure.owners import whole_or_mean
from chainer_profile.measure.windows import FORWARD
from chainer_profile.record.recording import Layer

#: What is entered: a call of a function, its backward, a sum of gradients, what has a mark, or a
#: function that is called in a backward, whose time is that of the backward.
CALL, BACKWARD, SUM, MARK, INNER = KINDS = ("call", "backward", "sum", "mark", "inner")
#: Shapes of inputs that are told apart in a row; the work of calls with others is their mean.
MOST_SHAPES = 64
WORK = ("flops", "macs", "nbytes_read", "nbytes_written")
#: What is known of a call, and is no field of a row.
_OWN = ("specs", "made_nbytes")


class Entry:
    """What is entered: calls of a row whose inputs have the same shapes; or a phase."""

    __slots__ = ("calls", "facts", "kind", "name", "ns", "number", "of", "row", "rows", "work")

    def __init__(
        self, number: int, rows: object, row: int, kind: str = "", of: Row | None = None
    ) -> None:
        self.number = number
        # Whose it is: a row, with its number among some rows; of a phase that is -1 - its number.
        self.rows, self.row, self.of = rows, row, of
        self.kind = kind  # one of KINDS; of a phase, and outside of all, empty
        self.name = ""  # of the function, as Chainer has it
        self.work: Work | None = None
        self.facts: dict[str, Any] = {}
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
        facts = shown(main.facts)
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
        works = [(entry.work, entry.calls) for entry in self.entries if entry.work is not None]
        counted = sum(n for _, n in works)
        if not counted:
            return dict.fromkeys(WORK)
        scale = calls / counted / iterations
        sums: dict[str, Any] = {
            name: round(sum(getattr(work, name) * n for work, n in works) * scale) for name in WORK
        }
        about = counted < calls or len(self.entries) > MOST_SHAPES
        return {**sums, "work_is_about": about or any(work.about for work, _ in works)}


def shown(facts: dict[str, Any]) -> dict[str, Any]:
    """Those of the facts that are fields of a row."""
    return {name: value for name, value in facts.items() if name not in _OWN}
