"""Summary -> ``layers.csv``: one row a layer, with all digits."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

import pandas as pd

from chainer_profile.analyse.footprint import MEMORY
from chainer_profile.analyse.roofline import WORK
from chainer_profile.basics.units import (
    format_exact,
    format_exact_giga,
    format_exact_ms,
    format_exact_percent,
    format_shapes,
)
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chainer_profile.analyse.summary import Summary

#: The columns and what they mean. Times are self times of one layer in the profiled trials.
COLUMNS = {
    "index": "Place of the layer in a trial, from 0",
    "label": "Index and function",
    "path": "Path of the link that made the call; / is the network itself, and a path without a "
    "slash is outside of it: loss, cleargrads, optimizer, data",
    "function": "Chainer's name of the function, or of the optimizer or its hook",
    "phase": "Phase of the trial that the layer belongs to: forward, backward, update or data",
    "calls": "Calls in a trial that count for the layer",
    "forward_index": "In backward, index of the call that this goes back through; empty where "
    "there is none",
    "input_shapes": "Shapes of the input arrays, parameters included, such as 1x3x32x32 16x3x3x3; "
    "in backward of the gradients that come in, in update of the parameters",
    "output_shapes": "Shapes of the output arrays; in backward of the gradients that go out",
    "dtype": "Data type of the first output",
    "trials": "Number of profiled trials",
    "mean_ms": "Mean self time",
    "std_ms": "Standard deviation of the self time (with trials - 1)",
    "ci95_low_ms": "Lower end of the 95 % confidence interval of the median; not known of fewer "
    "than 30 trials",
    "ci95_high_ms": "Upper end of this interval",
    "min_ms": "Shortest self time",
    "p5_ms": "5th percentile",
    "median_ms": "Median",
    "p95_ms": "95th percentile",
    "p99_ms": "99th percentile",
    "max_ms": "Longest self time",
    "host_ms": "On a GPU, mean time of the host in the layer's call, mostly launching; empty on a "
    "CPU, where the times above are the host's",
    "gap_ms": "On a GPU, mean time on the device between the layer before and this one; empty "
    "likewise",
    "busy_ms": "On a GPU, median time on the device when it never waits for the host; empty "
    "without held trials",
    "share_percent": "Part that the median has of the sum of all layers' medians",
    "cumulative_share_percent": "Part that this and all slower layers hold together",
    "hot": "Whether the rule for hotspots chose the layer: true or false",
    "flops": "Floating-point operations in a trial, a multiply-add being two; empty without a "
    "formula",
    "macs": "Multiply-adds of convolutions and matrix products in a trial; empty likewise",
    "nbytes_read": "Bytes that the layer must read at least; empty likewise",
    "nbytes_written": "Bytes that it must write at least; empty likewise",
    "gflops_per_s": "Billions of operations a second, from the median self time",
    "gbytes_per_s": "Billions of bytes a second, read and written",
    "intensity": "Operations a byte",
    "reached_percent": "Least time at this machine's limits over the median self time; empty where "
    "the limits are not known",
    "verdict": "compute bound, memory bound, or overhead bound (less than a third of the limit is "
    "reached)",
    "peak_nbytes": "Most bytes that were allocated in the layer beyond those at its begin; empty "
    "without a memory pass",
    "retained_nbytes": "Bytes that the layer left allocated; negative where it freed more",
    "input_nbytes": "Bytes of the input arrays that are no parameters, of a forward call; empty "
    "where they are not known",
    "parameter_nbytes": "Bytes of the parameters among its inputs; empty likewise",
    "output_nbytes": "Bytes of its outputs; empty likewise",
    "workspace_nbytes": "The peak of a forward call beyond its outputs, at least 0; empty likewise",
}

#: How a text begins that a spreadsheet may calculate, or that was one.
_FORMULA = re.compile("'* *[-=+@\uff0d\uff1d\uff0b\uff20]")

_TIMES = {
    name: name.removesuffix("_ms").replace("ci95", "ci") + "_s"
    for name in COLUMNS
    if name.endswith("_ms")
}


def render(summary: Summary) -> str:
    r"""The layers as CSV, in the order of the calls; see :data:`COLUMNS`.

    Numbers have all their digits; a number that is not known (the deviation of one trial) is an
    empty cell. Texts are made safe for spreadsheets (:func:`safe`); no label and no link path
    needs that. ``report.json`` has all names as they are.
    """
    rows = [
        {
            "index": str(row.Index),
            "label": safe(row.label),
            "path": safe(row.path),
            "function": safe(row.function),
            "phase": safe(row.phase),
            "calls": str(row.calls),
            "forward_index": "" if row.forward is None else str(row.forward),
            "input_shapes": format_shapes(row.input_shapes),
            "output_shapes": format_shapes(row.output_shapes),
            "dtype": safe(row.dtype),
            "trials": str(row.trials),
            **{name: format_exact_ms(getattr(row, column)) for name, column in _TIMES.items()},
            "share_percent": format_exact_percent(row.share),
            "cumulative_share_percent": format_exact_percent(row.cumulative_share),
            "hot": "true" if row.hot else "false",
            **{name: _whole(getattr(row, name)) for name in WORK},
            "gflops_per_s": format_exact_giga(row.flops_per_s),
            "gbytes_per_s": format_exact_giga(row.nbytes_per_s),
            "intensity": format_exact(row.intensity),
            "reached_percent": format_exact_percent(row.reached),
            "verdict": row.verdict,
            **{name: _whole(getattr(row, name)) for name in MEMORY},
        }
        for row in summary.layers.itertuples()
    ]
    return table_text(COLUMNS, rows)


def table_text(columns: Iterable[str], rows: Iterable[Mapping[str, str]]) -> str:
    """A head and rows as CSV."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _whole(value: int) -> str:
    """A whole number that may be <NA>."""
    return "" if pd.isna(value) else str(value)


def safe(text: str) -> str:
    r"""A text on one line that no spreadsheet takes for a formula; :func:`plain` undoes that.

    A text that begins with ``=``, ``+``, ``-`` or ``@``, or one of these in full width, gets an
    apostrophe in front, which spreadsheets take for the sign of a text; so does one that begins
    with apostrophes before such a sign. Spaces before it do not count. Characters that cannot be
    printed, tabs and line breaks among them, are written as in Python (``\t``).
    """
    text = printable(text)
    return f"'{text}" if _FORMULA.match(text) else text


def plain(cell: str) -> str:
    """A text from a cell that :func:`safe` wrote, without the apostrophe that it added."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
