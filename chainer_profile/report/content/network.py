"""ModelSummary -> what is said of a network: by layer or by link."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from chainer_profile.basics.choosing import choose_names
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_about,
    format_count,
    format_shape,
    format_shapes,
    format_significant,
    plural,
)
from chainer_profile.record.network import LAYER_COLUMNS, LINK_COLUMNS, TEXTS
from chainer_profile.report import csv_file as csv
from chainer_profile.report.columns import ABOUT, properties
from chainer_profile.report.document import Column, Heading, text
from chainer_profile.report.tables import Table
from chainer_profile.report.text import Row, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainer_profile.record.network import ModelSummary
    from chainer_profile.report.document import Block

LAYERS, LINKS = "layers", "links"
COLUMNS = {LAYERS: LAYER_COLUMNS, LINKS: LINK_COLUMNS}
_USUAL = ("parameters", "persistent", "macs", "flops", "nbytes_read", "nbytes_written")
DEFAULTS = {
    LAYERS: ("index", "path", "function", "output_shapes", *_USUAL),
    LINKS: ("path", "kind", "layers", "output_shapes", *_USUAL),
}
#: What a narrow terminal does without, in this order.
_DROPPED = ("nbytes_written", "nbytes_read", "persistent", "flops", "kind", "index")
_WORK = ("macs", "flops", "nbytes_read", "nbytes_written")
#: Texts are folded to this where columns do not fit.
_FOLDS = 14


def choose_columns(view: str, names: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of a view: those asked for, or the usual ones.

    Args:
        view: :data:`LAYERS` or :data:`LINKS`.
        names: Names of columns; None for the usual ones.

    Raises:
        UsageError: There is no such column; says the nearest one, and which there are.
    """
    if names is None:
        return DEFAULTS[view]
    return choose_names(names, COLUMNS[view], f"the table of {view}")


def overview(
    summary: ModelSummary,
    *,
    view: str = LAYERS,
    depth: int = 1,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    hint: str = "",
) -> list[Block]:
    """A network's summary.

    Args:
        summary: The summary.
        view: What the rows are: :data:`LAYERS` or :data:`LINKS`.
        depth: Levels of links below the network, for :data:`LINKS`.
        columns: Names of columns, which a narrow terminal shows, too; None for the usual ones.
        limit: Rows at most; None for all.
        hint: How to see the others, if there is a way.

    Raises:
        UsageError: There is no such column; says which there are.
    """
    chosen = choose_columns(view, columns)
    rows = _rows(summary, view, depth)
    shown = rows if limit is None else rows[: max(0, limit)]
    legend = []
    if hidden := len(rows) - len(shown):
        legend.append(("", f"{plural(hidden, 'row')} not shown{f' ({hint})' if hint else ''}."))
    found = [_column(name, drops=columns is None) for name in chosen]
    return [
        Heading(1, summary.name),
        text(_about(summary)),
        Table(found, shown, f"The {view}", legend=legend, wider="--columns chooses"),
        properties([*totals_rows(summary), *memory_rows(summary)], "The network as a whole"),
        *(text(note) for note in notes(summary)),
    ]


def _column(name: str, *, drops: bool) -> Column:
    folds = _FOLDS if name in TEXTS else None
    drop = _DROPPED.index(name) + 1 if drops and name in _DROPPED else 0
    return Column(name, partial(_cell, name=name), folds=folds, drop=drop)


def render_csv(
    summary: ModelSummary,
    *,
    view: str = LAYERS,
    depth: int = 1,
    columns: Sequence[str] | None = None,
) -> str:
    """The table alone, with all digits; a number that is not known is an empty cell."""
    chosen = choose_columns(view, columns)
    if columns is None:
        chosen += ("approximate",)
    rows = _rows(summary, view, depth)
    exact = ({name: _exact(row, name) for name in chosen} for row in rows)
    return csv.table_text(chosen, exact)


def totals_rows(summary: ModelSummary) -> list[Row]:
    """The totals of all layers, in words."""
    frozen = summary.parameters - summary.trainable
    return [
        (
            "parameters",
            f"{_scaled(summary.parameters)}: {format_count(summary.trainable)} trainable, "
            f"{format_count(frozen)} not",
        ),
        ("persistent elements", _scaled(summary.persistent)),
        ("multiply-accumulates", _total(summary, "macs")),
        ("floating-point operations", _total(summary, "flops")),
        ("bytes read", _total(summary, "nbytes_read")),
        ("bytes written", _total(summary, "nbytes_written")),
    ]


def _total(summary: ModelSummary, name: str) -> str:
    """A total of work, with what it lacks and whether it is approximate."""
    approximate = summary.table[summary.table["approximate"] > 0]
    about = "about " if (approximate[name] > 0).any() else ""
    least = "at least " if summary.without_formula else ""
    return least + about + _scaled(getattr(summary, name))


def memory_rows(summary: ModelSummary) -> list[Row]:
    """Bytes of the arrays, in words."""
    return [
        ("memory of the input", _megabytes(summary.input_nbytes)),
        ("memory of parameters", _megabytes(summary.parameter_nbytes)),
        ("memory of persistent arrays", _megabytes(summary.persistent_nbytes)),
        ("memory of activations, forward", _megabytes(summary.forward_nbytes)),
    ]


def notes(summary: ModelSummary) -> list[str]:
    """What the numbers mean, and what they lack: a sentence or two each."""
    found = []
    if not (summary.table["function"] != "").any():
        found.append("The network calls no function.")
    if summary.without_formula:
        named = ", ".join(
            f"{printable(name)} ({plural(calls, 'call')})"
            for name, calls in summary.without_formula.items()
        )
        found.append(f"Without a formula, and so missing in the totals: {named}.")
    if summary.table["approximate"].any():
        found.append(ABOUT)
    if (summary.table["function"] == "").any():
        found.append("Parameters of links of which no call is known come last, without a function.")
    found.append(
        "Memory of activations adds up the outputs of all layers, but for views. What a pass takes "
        "is measured by a profile. MB is 10^6 bytes."
    )
    return found


def _about(summary: ModelSummary) -> str:
    pairs = zip(summary.input_shapes, summary.input_dtypes, strict=True)
    inputs = ", ".join(f"{format_shape(shape)} {dtype}" for shape, dtype in pairs)
    return f"input {inputs}; one forward pass in test mode"


def _rows(summary: ModelSummary, view: str, depth: int) -> list[dict[str, Any]]:
    frame = (summary.table if view == LAYERS else summary.by_link(depth)).reset_index()
    rows: list[dict[str, Any]] = frame.to_dict("records")
    return rows


def _cell(row: dict[str, Any], name: str) -> str:
    """A value to read."""
    value = row[name]
    if name == "function" and not value:
        return NOT_KNOWN
    if isinstance(value, str | tuple):
        return _text(value)
    if pd.isna(value):
        return NOT_KNOWN
    if name not in _WORK:
        return format_count(int(value))
    least = ">=" if row.get("without_formula", 0) > 0 else ""
    return least + format_about(format_count(int(value)), row["approximate"] > 0)


def _exact(row: dict[str, Any], name: str) -> str:
    """A value for a file."""
    value = row[name]
    if isinstance(value, str | tuple):
        return csv.safe(_text(value))
    return "" if pd.isna(value) else str(int(value))


def _text(value: str | tuple[Any, ...]) -> str:
    return printable(value) if isinstance(value, str) else format_shapes(value)


def _scaled(value: int) -> str:
    """A whole number, and about how much it is: ``11,689,512 (11.69 M)``."""
    for letter, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= factor:
            return f"{format_count(value)} ({format_significant(value / factor)} {letter})"
    return format_count(value)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.2f} MB ({plural(nbytes, 'byte')})"
