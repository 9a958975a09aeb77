"""Summary -> what work and limits say: for the terminal, and as a part of the report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from chainer_profile.analyse.roofline import REACHED, has_plot, without_formula, work_by_function
from chainer_profile.basics.units import (
    format_giga,
    format_percent,
    format_significant,
    plural,
)
from chainer_profile.report.columns import ABOUT
from chainer_profile.report.document import ROOFLINE, Figure, text
from chainer_profile.report.tables import Column, Table, columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block

_MAX_LAYERS = 10
_MAX_PHASE = 12


def work_rows(summary: Summary) -> list[Any]:
    """The work by function and phase, most time first; see :func:`.roofline.work_by_function`."""
    return list(work_by_function(summary.layers).itertuples())


_COLUMNS = columns(
    """
function | | text
phase | !5 | text 12
mostly | !6 | text 17
macs | MMAC !3 | ~mega
flops | MFLOP !3 | ~mega
gflops flops_per_s | GFLOP/s | ~giga
gbytes nbytes_per_s | GB/s !4 | ~giga
reached | % of limit | ~percent
share | % of time | percent
""",
    mostly=lambda row: row.verdict or ("no formula" if math.isnan(row.flops) else "mixed"),
)


def work_columns(summary: Summary, macs: bool = False) -> list[Column]:
    """Columns of the work by function, with multiply-adds in place of operations."""
    without = {"flops" if macs else "macs"}
    if summary.recording.limits is None:
        without |= {"mostly", "reached"}
    if not summary.several_phases:
        without.add("phase")
    return [column for key, column in _COLUMNS.items() if key not in without]


def limits_sentence(summary: Summary) -> str:
    """The machine's limits; empty where they were not measured."""
    limits = summary.recording.limits
    if limits is None:
        return ""
    known = limits.device == "cpu" and limits.threads
    threads = f" with {plural(limits.threads, 'BLAS thread')}" if known else ""
    rate = limits.half_flops_per_s
    half = "" if rate is None else f" ({format_giga(rate)} GFLOP/s in float16)"
    return (
        f"Limits of this machine{threads}: {format_giga(limits.flops_per_s)} GFLOP/s in a float32 "
        f"matrix product{half}, {format_giga(limits.copy_nbytes_per_s)} GB/s over an "
        f"array in place ({format_giga(limits.fresh_nbytes_per_s)} GB/s in a copy into new memory)."
    )


def _overhead(summary: Summary) -> str:
    """Where the time of such a layer goes, and what else bounds the others."""
    if summary.recording.on_device:
        return (
            "the GPU waits for the host to launch, or has too little to do at once to be filled. "
            "Arrays that stay in a cache can be faster than the limit of memory."
        )
    return (
        "the table says what most of its time is, where that is known. Chainer allocates outputs "
        "anew, so the third rate is what functions that only move data can hope for; arrays that "
        "stay in a cache can be faster than all of them."
    )


def work(summary: Summary, *, macs: bool = False) -> Iterator[Block]:
    """The part of the report on work and limits; ``macs`` shows multiply-adds for operations."""
    if not summary.layers["flops"].notna().any():
        return
    yield text(
        "Operations (a multiply-add is two) and bytes (each array read or written once) follow "
        "from the shapes, by formulas; the rates from the median self times."
        + (f" {ABOUT}" if summary.layers["work_is_about"].any() else "")
    )
    limits = summary.recording.limits
    if limits is not None:
        yield text(
            f"{limits_sentence(summary)} The least time of a layer is the longer of its "
            "operations at the first rate and its bytes at the second; the limit reached is that "
            "over its median time. Below "
            f"{format_percent(REACHED, 0)} a layer stays below both limits: {_overhead(summary)}"
        )
    yield Table(
        work_columns(summary, macs), work_rows(summary), "Work and what it reaches, by function"
    )
    unknown = without_formula(summary.layers)
    if len(unknown):
        listed = ", ".join(
            f"{row.Index} ({format_percent(row.share)})"
            for row in unknown.head(_MAX_LAYERS).itertuples()
        )
        yield text(f"Without a formula, with their part of the layers' time: {listed}.")
    if limits is not None and has_plot(summary.recording, summary.layers):
        yield Figure(
            ROOFLINE,
            "Roofline plot of the layers",
            "One dot a layer: operations a byte against operations a second, the area being its "
            "time; hot layers are red. The line is what the machine can do at best; arithmetic is "
            f"the bound from {format_significant(limits.ridge)} operations a byte.",
        )
