"""Comparisons -> ``comparison.csv``: totals, layers and unmatched layers, with all digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_exact, format_exact_ms, format_exact_percent
from chainer_profile.report.csv_file import safe, table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chainer_profile.comparison.compare import Comparison

#: The columns and what they mean. Times are medians; of several runs their geometric mean.
COLUMNS = {
    "before": "The run to compare with, as it was named",
    "after": "The run that is compared with it",
    "row": "What the row is: total, layer, only before or only after (a layer that the other run "
    "does not have)",
    "name": "Name of the total, or index and function of the layer in the run that has it",
    "before_index": "Place of the layer in a trial of the first run, from 0; empty for totals",
    "after_index": "Place in a trial of the second run; likewise",
    "path": "Path of the link that made the call; empty for totals",
    "function": "Chainer's name of the function; of a row that puts several together all of their "
    "names; likewise",
    "phase": "Phase of the trial that the layer belongs to; likewise",
    "covers": "Indices of Chainer's layers that the row puts together, where a run of another "
    "engine is compared; empty for what is the engine's own, and between runs of Chainer",
    "before_ms": "Median time in the first run; of several runs the geometric mean of theirs",
    "after_ms": "The same in the second run",
    "before_share_percent": "Part of the sum of all layers' such times in the first run; empty for "
    "totals",
    "after_share_percent": "The same in the second run",
    "ratio": "Second time over first; above 1 is slower",
    "ci95_low": "Lower end of the ratio's 95 % interval, which holds what the machine may account "
    "for; empty where it is not known",
    "ci95_high": "Upper end",
    "p_value": "How likely such a difference is without a cause; for layers corrected for their "
    "number (false discovery rate)",
    "verdict": "faster, slower, not significant, not known (too few trials), or, of totals, "
    "machine or code (it differs, as the machine itself did)",
}


def render(comparisons: Sequence[Comparison]) -> str:
    """Comparisons as CSV, one below the other; see :data:`COLUMNS`."""
    found = [row for comparison in comparisons for row in _rows(comparison)]
    return table_text(COLUMNS, found)


def _rows(comparison: Comparison) -> Iterator[dict[str, str]]:
    both = {"before": safe(comparison.before.name), "after": safe(comparison.after.name)}
    for row in comparison.totals.itertuples():
        yield both | {"row": "total", "name": str(row.Index)} | _values(row)
    for row in comparison.layers.itertuples():
        yield (
            both
            | {
                "row": "layer",
                "name": safe(f"{row.before_index}_{row.function}"),
                "before_index": str(row.before_index),
                "after_index": str(row.after_index),
                "path": safe(row.path),
                "function": safe(row.function),
                "phase": safe(row.phase),
                "covers": _covers(row.covers),
                "before_share_percent": format_exact_percent(row.before_share),
                "after_share_percent": format_exact_percent(row.after_share),
            }
            | _values(row)
        )
    for name, side, layers in (
        ("before", comparison.before, comparison.only_before),
        ("after", comparison.after, comparison.only_after),
    ):
        for layer in layers:
            yield both | {
                "row": f"only {name}",
                "name": safe(layer.label),
                f"{name}_index": str(layer.index),
                "path": safe(layer.path),
                "function": safe(layer.function),
                "phase": safe(layer.phase),
                "covers": _covers(layer.covers),
                f"{name}_ms": format_exact_ms(side.time_s(layer.index)),
                f"{name}_share_percent": format_exact_percent(side.share(layer.index)),
            }


def _covers(covers: Sequence[int]) -> str:
    return " ".join(map(str, covers))


def _values(row: object) -> dict[str, str]:
    def number(name: str) -> float:
        return float(getattr(row, name))

    return {
        "before_ms": format_exact_ms(number("before_s")),
        "after_ms": format_exact_ms(number("after_s")),
        "ratio": format_exact(number("ratio")),
        "ci95_low": format_exact(number("low")),
        "ci95_high": format_exact(number("high")),
        "p_value": format_exact(number("p_value")),
        "verdict": str(row.verdict),  # type: ignore[attr-defined]
    }
