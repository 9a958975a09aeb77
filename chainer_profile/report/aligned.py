"""A table as plain text: texts to the left, numbers to the right, some columns left out."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainer_profile.report.columns import Column

GAP = "  "
#: No text is folded to less than this.
_LEAST = 8


def aligned_table(
    columns: Sequence[Column], rows: Sequence[object], width: int | None = None
) -> list[str]:
    """The lines of a table; one of a row whose texts are folded holds line breaks.

    Args:
        columns: Its columns; those that do not fold are numbers.
        rows: Its rows.
        width: Width of the terminal, for which columns with a ``drop`` are left out in that
            order, and then texts folded; None for any.
    """
    cells = [[column.cell(row) for row in rows] for column in columns]
    widths = [max(map(len, [c.name, *texts])) for c, texts in zip(columns, cells, strict=True)]
    kept = list(range(len(columns)))
    for at in sorted(kept, key=lambda at: columns[at].drop):
        needed = sum(widths[i] for i in kept) + len(GAP) * (len(kept) - 1)
        if width is not None and columns[at].drop and needed > width:
            kept.remove(at)
    return aligned(
        [columns[at].name for at in kept],
        [[cells[at][row] for at in kept] for row in range(len(rows))],
        [columns[at].folds for at in kept],
        width,
    )


def aligned(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    folds: Sequence[int | None],
    width: int | None = None,
) -> list[str]:
    """The lines of a table of texts: head, rule, and one for each row, as in aligned_table.

    Args:
        names: The heads of the columns.
        cells: The rows.
        folds: For each column the width to which its texts are folded first; None for numbers.
        width: Width of the terminal; None for any.
    """
    natural = [max(map(len, [name, *texts])) for name, *texts in zip(names, *cells, strict=True)]
    widths = _folded(natural, folds, width)

    def line(texts: Sequence[str]) -> str:
        parts = [
            textwrap.wrap(text, most, break_on_hyphens=False) if len(text) > most else [text]
            for text, most in zip(texts, widths, strict=True)
        ]
        lines = []
        for at in range(max(map(len, parts), default=0)):
            placed = (
                "".join(part[at : at + 1]).rjust(most)
                if fold is None
                else "".join(part[at : at + 1]).ljust(most)
                for part, most, fold in zip(parts, widths, folds, strict=True)
            )
            lines.append(GAP.join(placed).rstrip())
        return "\n".join(lines)

    return [line(names), GAP.join("-" * most for most in widths), *map(line, cells)]


def _folded(natural: Sequence[int], folds: Sequence[int | None], width: int | None) -> list[int]:
    """Widths of columns that fit, where that can be: the widest texts are folded first."""
    room = None if width is None else width - len(GAP) * (len(natural) - 1)
    if room is None or sum(natural) <= room:
        return list(natural)
    least = [
        wide if fold is None else min(wide, fold) for wide, fold in zip(natural, folds, strict=True)
    ]
    if sum(least) > room:
        least = [
            wide if fold is None else min(wide, _LEAST)
            for wide, fold in zip(natural, folds, strict=True)
        ]
    widths = list(natural)
    while sum(widths) > room:
        beyond = [at for at, wide in enumerate(widths) if wide > least[at]]
        if not beyond:  # too narrow for the numbers alone
            break
        widths[max(beyond, key=widths.__getitem__)] -= 1
    return widths


def wrapped(text: str, width: int | None, indent: int = 0) -> str:
    """A sentence on lines that fit a terminal; paths and commands are not broken.

    Args:
        text: The sentence, on one line.
        width: Width of the terminal; None for any.
        indent: Spaces before all lines but the first.
    """
    if width is None or len(text) <= width:
        return text
    return textwrap.fill(
        text,
        max(width, indent + _LEAST),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def pairs(rows: Sequence[tuple[str, str]], width: int | None = None) -> list[str]:
    """Names and values in two columns; long values go on below their beginning."""
    first = max((len(name) for name, _ in rows), default=0)
    indent = first + len(GAP)
    return [wrapped(f"{name:{first}}{GAP}{value}", width, indent) for name, value in rows]
