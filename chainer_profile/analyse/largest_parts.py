"""The tree of a program's parts -> its largest parts, which fit on a screen.

There is one rule. The largest part that has no row gets the next row, at whatever level, until
80 % of the time has names or there are 20 rows. Only a part without inner parts names its time. A
part gets a row after the part around it. A row ``other`` closes each level where parts are left
out, so each level adds up to the row above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from chainer_profile.analyse.program import Part

#: The rows end when this part of the time has names, or when there are this many.
ENOUGH, MAX_ROWS = 0.8, 20
#: A smaller part of the whole has no row: it would show as 0.0 %.
MIN_SHARE = 0.0005
#: A smaller rest of a level has no row, because the digits of the times do not show it.
_ROUNDING = 0.0005
#: The row that closes a level.
REST = "other"


def largest_parts(
    parts: Sequence[Part], whole_ns: float, max_parts: int = MAX_ROWS
) -> tuple[Part, ...]:
    """Select the largest parts of all levels; a part ``other`` closes each level.

    Args:
        parts: The parts of the whole.
        whole_ns: The time of the whole.
        max_parts: Largest number of parts on all levels together.
    """
    chosen: set[int] = set()
    selected: tuple[Part, ...] = ()
    hidden, named_ns = [part for part in parts if part.ns], 0.0
    while hidden and named_ns < ENOUGH * whole_ns:
        part = max(hidden, key=lambda part: part.ns)
        if part.ns < MIN_SHARE * whole_ns:
            break
        chosen.add(id(part))
        longer = _chosen_of(parts, whole_ns, chosen)
        if sum(1 for _ in rows_of(longer)) > max_parts:
            break
        selected = longer
        hidden = [*(other for other in hidden if other is not part), *part.inner]
        named_ns += 0 if part.inner else part.ns
    return selected or _chosen_of(parts, whole_ns, set())


def rows_of(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts of all levels, each before its inner parts."""
    for part in parts:
        yield part
        yield from rows_of(part.inner)


def _chosen_of(parts: Sequence[Part], whole_ns: float, chosen: set[int]) -> tuple[Part, ...]:
    """The parts of a level with an ``id()`` in ``chosen``, and ``other`` for the remaining time."""
    shown = [replace(part, inner=_inner(part, chosen)) for part in parts if id(part) in chosen]
    rest_ns = whole_ns - sum(part.ns for part in shown)
    if rest_ns > _ROUNDING * whole_ns:
        shown.append(Part(REST, rest_ns))
    return tuple(shown)


def _inner(part: Part, chosen: set[int]) -> tuple[Part, ...]:
    """The chosen inner parts of a part and their rest; nothing if none is chosen."""
    if any(id(inner) in chosen for inner in part.inner):
        return _chosen_of(part.inner, part.ns, chosen)
    return ()
