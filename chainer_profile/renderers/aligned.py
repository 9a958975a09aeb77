"""A table as plain text: texts to the left, numbers to the right, some columns left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainer_profile.renderers.columns import Column

_GAP = "  "


def aligned_table(
    columns: Sequence[Column], rows: Sequence[object], width: int | None = None
) -> list[str]:
    """The lines of a table.

    Args:
        columns: Its columns; those that do not fold are numbers. None of them is folded.
        rows: Its rows.
        width: Width of the terminal, for which columns with a ``drop`` are left out in that
            order; None for any.
    """
    cells = [[column.cell(row) for row in rows] for column in columns]
    widths = [max(map(len, [c.name, *texts])) for c, texts in zip(columns, cells, strict=True)]
    kept = list(range(len(columns)))
    for at in sorted(kept, key=lambda at: columns[at].drop):
        needed = sum(widths[i] for i in kept) + len(_GAP) * (len(kept) - 1)
        if width is not None and columns[at].drop and needed > width:
            kept.remove(at)

    def line(texts: Sequence[str]) -> str:
        placed = (
            texts[at].rjust(widths[at])
            if columns[at].folds is None
            else texts[at].ljust(widths[at])
            for at in kept
        )
        return _GAP.join(placed).rstrip()

    head = line([column.name for column in columns])
    rule = _GAP.join("-" * widths[at] for at in kept)
    return [head, rule, *(line([texts[at] for texts in cells]) for at in range(len(rows)))]
