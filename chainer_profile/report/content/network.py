"""ModelSummary -> the table of a network's layers or links, and its totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from chainer_profile.basics import units
from chainer_profile.record.network import WORK, ModelSummary
from chainer_profile.report import unit
from chainer_profile.report.columns import ABOUT, properties
from chainer_profile.report.document import Block, Heading, text
from chainer_profile.report.tables import Column, Table, by_key, choose, not_shown, to_csv
from chainer_profile.report.text import Row

LAYERS, LINKS = "layers", "links"
_OUTPUT_SHAPES = Column(
    "output_shapes", "output_shapes", unit.SHAPES, "Shapes of the output arrays", fold=14
)
# fmt: off
#: The columns of both views.
_COUNTS = (
    Column("parameters", "parameters", unit.COUNT,
           meaning="Elements of the parameters; each counts once, at the first call of its first "
                   "link that takes one"),
    Column("trainable", "trainable", unit.COUNT,
           meaning="Parameters that an optimizer may update (not after disable_update)"),
    Column("persistent", "persistent", unit.COUNT, drop=3,
           meaning="Elements of persistent arrays, such as batch normalisation's averages"),
    Column("macs", "macs", unit.COUNT,
           meaning="Multiply-adds of convolutions and matrix products; - without a formula"),
    Column("flops", "flops", unit.COUNT, drop=4,
           meaning="Floating-point operations (two for a multiply-add); likewise"),
    Column("nbytes_read", "nbytes_read", unit.COUNT, drop=2,
           meaning="Bytes that must be read at least; likewise"),
    Column("nbytes_written", "nbytes_written", unit.COUNT, drop=1,
           meaning="Bytes that must be written at least; likewise"),
    Column("nbytes_output", "nbytes_output", unit.COUNT,
           meaning="Bytes of the outputs; a view of an input has none"),
    Column("approximate", "approximate", unit.COUNT,
           meaning="Calls whose operations and bytes are estimates, shown with ~"),
)
#: The columns of each view.
COLUMNS = {
    LAYERS: by_key(
        Column("index", "index", unit.PLAIN, field="Index", drop=6,
               meaning="Place of the layer in a forward pass, from 0"),
        Column("path", "path", unit.TEXT, "Path of the calling link; / is the network", fold=14),
        Column("function", "function", unit.TEXT, unknown=units.NOT_KNOWN,
               meaning="Chainer's name of the function; empty for parameters without a call"),
        Column("input_shapes", "input_shapes", unit.SHAPES, fold=14,
               meaning="Shapes of the input arrays and parameters"),
        _OUTPUT_SHAPES,
        Column("dtype", "dtype", unit.TEXT, "Data type of the first output", fold=14),
        *_COUNTS,
    ),
    LINKS: by_key(
        Column("path", "path", unit.TEXT, field="Index", fold=14,
               meaning="Path of the link; at the requested depth it includes all links below, "
                       "above it only its own calls"),
        Column("kind", "kind", unit.TEXT, "Name of its class", fold=14, drop=5),
        Column("layers", "layers", unit.COUNT, "Number of its function calls"),
        replace(_OUTPUT_SHAPES, meaning="Shapes of the last one's outputs"),
        *_COUNTS,
        Column("without_formula", "without_formula", unit.COUNT,
               meaning="Calls whose operations and bytes are unknown, and not included"),
    ),
}
# fmt: on
_DEFAULT_COUNTS = ("parameters", "persistent", "macs", "flops", "nbytes_read", "nbytes_written")
DEFAULTS = {
    LAYERS: ("index", "path", "function", "output_shapes", *_DEFAULT_COUNTS),
    LINKS: ("path", "kind", "layers", "output_shapes", *_DEFAULT_COUNTS),
}


def choose_columns(view: str, names: Sequence[str] | None) -> tuple[str, ...]:
    """The keys of a view's columns that a user names; None gives the defaults.

    ``view`` is :data:`LAYERS` or :data:`LINKS`. Raises UsageError for an unknown column.
    """
    if names is None:
        return DEFAULTS[view]
    return choose(names, COLUMNS[view], f"the table of {view}")


def overview(
    summary: ModelSummary,
    *,
    view: str = LAYERS,
    depth: int = 1,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    hint: str = "",
) -> list[Block]:
    """The blocks of a network's summary.

    Args:
        summary: The network.
        view: :data:`LAYERS` or :data:`LINKS`.
        depth: Levels of links below the network, for the table of links.
        columns: Keys of the columns, which narrow terminals show too; None for the defaults.
        limit: Most rows of the table; None for all.
        hint: How to see the omitted rows.
    """
    keys = choose_columns(view, columns)
    rows = _table(summary, view, depth)
    first_rows = rows if limit is None else rows.head(max(0, limit))
    legend = not_shown(len(rows) - len(first_rows), hint)
    chosen = [COLUMNS[view][key] for key in keys]
    chosen = [
        replace(column, mark=_mark_work) if column.key in WORK else column for column in chosen
    ]
    if columns is not None:
        chosen = list(map(Column.never_dropped, chosen))
    return [
        Heading(1, summary.name),
        text(_about(summary)),
        Table(chosen, first_rows, f"The {view}", legend=legend, wider="--columns chooses"),
        properties(_totals(summary), "The network as a whole"),
        *(text(note) for note in notes(summary)),
    ]


def _mark_work(row: Any, cell: str) -> str:
    """Mark a cell with ``~`` if it is approximate, ``>=`` if it omits calls without a formula."""
    lower_bound = ">=" if getattr(row, "without_formula", 0) > 0 else ""
    return lower_bound + units.format_about(cell, row.approximate > 0)


def table_csv(
    summary: ModelSummary,
    *,
    view: str = LAYERS,
    depth: int = 1,
    columns: Sequence[str] | None = None,
) -> str:
    """Format all rows of the table as CSV; see :func:`overview` for the arguments."""
    keys = choose_columns(view, columns) + (("approximate",) if columns is None else ())
    return to_csv([COLUMNS[view][key] for key in keys], _table(summary, view, depth))


def _table(summary: ModelSummary, view: str, depth: int) -> pd.DataFrame:
    return summary.table if view == LAYERS else summary.by_link(depth)


def _totals(summary: ModelSummary) -> list[Row]:
    """Names and texts of the totals of all layers and of the bytes of the arrays."""
    frozen = summary.parameters - summary.trainable
    trained = f"{units.format_count(summary.trainable)} trainable, {units.format_count(frozen)} not"
    memory = (
        ("memory of the input", summary.input_nbytes),
        ("memory of parameters", summary.parameter_nbytes),
        ("memory of persistent arrays", summary.persistent_nbytes),
        ("memory of activations, forward", summary.forward_nbytes),
    )
    return [
        ("parameters", f"{_scaled(summary.parameters)}: {trained}"),
        ("persistent elements", _scaled(summary.persistent)),
        ("multiply-accumulates", _total_work(summary, "macs")),
        ("floating-point operations", _total_work(summary, "flops")),
        ("bytes read", _total_work(summary, "nbytes_read")),
        ("bytes written", _total_work(summary, "nbytes_written")),
        *((noun, f"{n / 1e6:,.2f} MB ({units.plural(n, 'byte')})") for noun, n in memory),
    ]


def _total_work(summary: ModelSummary, name: str) -> str:
    """Format a total: ``about`` if it is approximate, ``at least`` if it omits calls."""
    approximate = summary.table[summary.table["approximate"] > 0]
    about = "about " if (approximate[name] > 0).any() else ""
    lower_bound = "at least " if summary.without_formula else ""
    return lower_bound + about + _scaled(getattr(summary, name))


def notes(summary: ModelSummary) -> Iterator[str]:
    """Notes on the meaning of the numbers, and on missing ones."""
    called = summary.table["function"] != ""
    if not called.any():
        yield "The network calls no function."
    if summary.without_formula:
        calls = summary.without_formula.items()
        named = ", ".join(f"{name} ({units.plural(count, 'call')})" for name, count in calls)
        yield f"Missing from the totals, because they have no formula: {named}."
    if summary.table["approximate"].any():
        yield ABOUT
    if not called.all():
        yield "Parameters of links without a known call come last, without a function."
    yield (
        "Memory of activations is the sum of all layers' outputs, without views. To measure "
        "what a pass takes, profile it. MB is 10^6 bytes."
    )


def _about(summary: ModelSummary) -> str:
    pairs = zip(summary.input_shapes, summary.input_dtypes, strict=True)
    inputs = ", ".join(f"{units.format_shape(shape)} {dtype}" for shape, dtype in pairs)
    return f"input {inputs}; one forward pass in test mode"


def _scaled(value: int) -> str:
    """Format an integer exactly and rounded: ``11,689,512 (11.69 M)``."""
    for letter, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= factor:
            return (
                f"{units.format_count(value)} ({units.format_significant(value / factor)} {letter})"
            )
    return units.format_count(value)
