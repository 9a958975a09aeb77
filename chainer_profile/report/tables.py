"""Tables: columns that format the cells of rows for readers, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from chainer_profile.basics import units
from chainer_profile.basics.parsing import choose_names
from chainer_profile.basics.units import NOT_KNOWN
from chainer_profile.report.unit import Unit

#: Significant digits of a number in files, if its interval is unknown.
_DIGITS = 6


@dataclass(frozen=True)
class Column:
    """One column, for the terminal and ``--columns``, reports, files and documentation.

    ``Column("median", "median ms", unit.MS, "Median")`` shows the field ``median_s`` of a row. Its
    name in CSV and JSON is ``median_ms``. The unit defines the suffixes ``_s`` and ``_ms``.
    """

    key: str
    heading: str  #: On a terminal; may be empty.
    unit: Unit
    meaning: str = ""
    #: Heading in reports; the default is the heading on a terminal, with ``[ms]`` after times.
    full: str = ""
    #: Field of a row; the default is the key with the unit's suffix. A frame's index is ``Index``.
    field: str = ""
    value: Callable[[Any], Any] | None = None  #: Computes the value from a row, without a field.
    #: Name in CSV and JSON; the default is the key with the unit's suffix. Empty: in no file.
    file: str | None = None
    #: The cell of an unknown value; the default is ``-``, or an empty cell for texts.
    unknown: str | None = None
    mark: Callable[[Any, str], str] | None = None  #: Adds marks to the cell of a row.
    note: str = ""  #: A sentence below a table that shows the column.
    fold: int = 32  #: Characters to which a narrow terminal folds a text at most.
    drop: int = 0  #: A narrow terminal omits columns in this order, and columns with 0 last.
    #: Computes the length of a row's bar; the default is the value.
    bar: Callable[[Any], float | None] | None = None

    @cached_property
    def value_of(self) -> Callable[[Any], Any]:
        """The function that gets the value from a row; None, NaN and <NA> are unknown values."""
        return self.value or attrgetter(self.field or self.key + self.unit.field)

    @property
    def title(self) -> str:
        """The heading in reports."""
        name = self.heading.removesuffix("ms").rstrip()
        if self.full or not name or not (self.unit.in_ms or self.heading.endswith(" ms")):
            return self.full or self.heading
        return f"{name} [ms]"

    @property
    def csv(self) -> str:
        """The name in CSV and JSON; empty if no file has the column."""
        return self.key + self.unit.file if self.file is None else self.file

    @property
    def fold_width(self) -> int | None:
        """The characters to which a text is folded; None for right-aligned cells on one line."""
        return self.fold if self.unit.text else None

    def headed(self, heading: str, full: str = "") -> Column:
        """A copy of the column with other headings."""
        return replace(self, heading=heading, full=full or heading)

    def never_dropped(self) -> Column:
        """A copy of the column that narrow terminals show too."""
        return replace(self, drop=0)

    def cell(self, row: Any) -> str:
        """Format the cell of a row for readers."""
        value = self.value_of(row)
        formatted = "" if is_missing(value) else self.unit.format(value)
        if formatted:
            return self.mark(row, formatted) if self.mark else formatted
        # A row without an index completes a table, such as the framework: its cells may be empty.
        if self.unknown is None and not is_missing(getattr(row, "Index", 0)):
            return NOT_KNOWN if is_missing(value) and not self.unit.text else ""
        return self.unknown or ""

    def csv_cell(self, row: Any) -> str:
        """Format the cell of a row for CSV; empty if the value is unknown."""
        value = self.value_of(row)
        if is_missing(value):
            return ""
        if self.unit.format_csv:
            return self.unit.format_csv(value)
        return units.format_exact(value * self.unit.scale, _significant_digits(row))

    def json_value(self, row: Any) -> str | float | bool | None:
        """The value of a row in JSON, in the unit of its name; None if it is unknown."""
        value = self.value_of(row)
        if is_missing(value) or value in (math.inf, -math.inf):
            return None
        if self.unit.format_json:
            return self.unit.format_json(value)
        parsed: float | bool = json.loads(self.csv_cell(row))
        return parsed


#: Columns by key, or columns alone.
Columns = Mapping[str, Column] | Iterable[Column]


def by_key(*columns: Column) -> dict[str, Column]:
    """Map columns by key. Raises ValueError if two have the same key."""
    keyed = {column.key: column for column in columns}
    if len(keyed) < len(columns):
        raise ValueError(f"columns of the same key: {[column.key for column in columns]}")
    return keyed


def mark_about(row: Any, cell: str) -> str:
    """Add ``~`` to a cell if the layer's work is an estimate."""
    return units.format_about(cell, row.work_is_about)


#: The height of a spread.
SPREAD = 12


@dataclass(frozen=True)
class Spread:
    """A small plot of a row's times over the trials, with heights up to :data:`SPREAD`."""

    #: A histogram of the times; its last bar includes the times above the 99th percentile.
    counts: Sequence[int]
    course: Sequence[int]  #: Medians of successive blocks of trials.
    description: str


#: Mark of a row that is the sum of others.
TOTAL = "total"


@dataclass(frozen=True)
class Table:
    """A table: columns, and a data frame or rows from which they format cells.

    A table of names and values has columns without headings.
    """

    columns: Any
    rows: Any
    caption: str = ""
    marks: Sequence[str] = ()  #: A mark for each of the first rows; the other rows have none.
    legend: Sequence[str] = ()  #: Sentences below it.
    wider: str = "a wider terminal shows them"  #: How to see columns that a terminal lacks.
    anchors: Sequence[str] = ()  #: The HTML anchor of each row.
    row_links: Sequence[str] = ()  #: For each row, the anchor that its name links to.
    depths: Sequence[int] = ()  #: The indentation of each row in a table of a tree.
    spreads: Sequence[Spread] = ()  #: The plot of each of the first rows.
    #: Number of last rows that complete the others, such as the framework; the last is their sum.
    foot: int = 0
    ruled: bool = True  #: Whether a terminal draws a rule below the headings.

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", columns_of(self.columns))
        object.__setattr__(self, "rows", rows_of(self.rows))

    @property
    def head(self) -> list[str]:
        """The headings in reports; an empty list if all are empty."""
        titles = [column.title for column in self.columns]
        return titles if any(titles) else []

    def cells(self) -> list[list[str]]:
        """Format all rows for the terminal, Markdown and HTML."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def mark(self, row: int) -> str:
        """The mark of a row; the last row of the foot is the sum of the others."""
        if self.foot and row == len(self.rows) - 1:
            return TOTAL
        return self.marks[row] if row < len(self.marks) else ""

    def notes(self, columns: Iterable[Column] | None = None) -> str:
        """Join the legend and the notes of the columns that are shown; None means all columns."""
        notes = [column.note for column in (self.columns if columns is None else columns)]
        return " ".join(filter(None, [*self.legend, *notes]))


def not_shown(count: int, hint: str = "", noun: str = "row", more: str = "") -> list[str]:
    """Make the legend's sentence about omitted rows; an empty list if ``count`` is 0.

    ``hint`` says how to see the rows; ``more`` ends the sentence.
    """
    how = f" ({hint})" if hint else ""
    return [f"{units.plural(count, noun)} not shown{how}{more}."] if count else []


def _significant_digits(row: Any) -> int:
    """The number of digits that files keep of a row's measured numbers.

    The last digit is worth at most a thousandth of the 95 % interval of the row's median.
    """
    ends_s = (getattr(row, f"ci_{end}_s", None) for end in ("high", "low"))
    high_s, low_s = (math.nan if end is None else end for end in ends_s)
    width_s = high_s - low_s
    if width_s > 0 and row.median_s > 0:
        return 4 + math.ceil(math.log10(row.median_s / width_s))
    return _DIGITS


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or pandas' <NA>; does not import pandas."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float) and math.isnan(value)


def rows_of(rows: Any) -> list[Any]:
    """Convert a data frame to a list of named tuples, or an iterable of rows to a list."""
    return list(rows.itertuples() if hasattr(rows, "itertuples") else rows)


def columns_of(columns: Columns) -> list[Column]:
    """Convert columns, by key or alone, to a list."""
    return list(columns.values() if isinstance(columns, Mapping) else columns)


def to_csv(columns: Columns, rows: Any) -> str:
    """Format rows as CSV.

    Omits columns that are empty in every row. Escapes text that a spreadsheet would evaluate.
    """
    row_list, file = rows_of(rows), io.StringIO()
    cells = {column.csv: list(map(column.csv_cell, row_list)) for column in _file_columns(columns)}
    nonempty = {name: values for name, values in cells.items() if any(values) or not row_list}
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(nonempty)
    writer.writerows(zip(*nonempty.values(), strict=True))
    return file.getvalue()


def to_json(columns: Columns, rows: Any) -> dict[str, list[Any]]:
    """Convert rows to a list for each column, with the names and units of CSV.

    Omits columns that are empty in every row.
    """
    row_list = rows_of(rows)
    lists = {
        column.csv: list(map(column.json_value, row_list)) for column in _file_columns(columns)
    }
    return {name: values for name, values in lists.items() if set(values) - {None, ""}}


def _file_columns(columns: Columns) -> list[Column]:
    return [column for column in columns_of(columns) if column.csv]


def with_content(columns: Columns, rows: Any) -> list[Column]:
    """The columns that have a value in at least one row."""
    row_list, empty_cells = rows_of(rows), ("", NOT_KNOWN)
    return [
        column
        for column in columns_of(columns)
        if any(column.cell(row) not in empty_cells for row in row_list)
    ]


def with_notes(columns: Iterable[Column], notes: Mapping[str, str]) -> list[Column]:
    """Copies of the columns with notes, which are given by key."""
    return [replace(column, note=notes.get(column.key, column.note)) for column in columns]


def choose(names: Sequence[str], columns: Mapping[str, Column], where: str) -> tuple[str, ...]:
    """The keys of the columns that a user names, by key or by name in CSV, without repetitions.

    Raises UsageError for an unknown name; ``where`` describes the table.
    """
    by_csv = {column.csv: key for key, column in columns.items() if column.csv}
    chosen = choose_names(names, columns, where, by_csv)
    return tuple(dict.fromkeys(name if name in columns else by_csv[name] for name in chosen))
