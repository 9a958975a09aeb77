"""Tables: columns, and the rows of which they make cells: to read, for CSV and for JSON."""

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

#: Significant digits of a number in files where no interval says how many are true.
_DIGITS = 6


@dataclass(frozen=True)
class Column:
    """One column, for the terminal and ``--columns``, reports, files and documentation.

    ``Column("median", "median ms", unit.MS, "Median")`` shows a row's ``median_s``, in CSV and JSON
    as ``median_ms``: the unit says how these names follow from the key.
    """

    key: str
    heading: str  #: On a terminal; may be empty.
    unit: Unit
    meaning: str = ""
    #: Heading in reports, where it is not the terminal's; behind times ``[ms]`` follows.
    full: str = ""
    field: str = ""  #: The field of a row, where it does not follow; a frame's index is ``Index``.
    value: Callable[[Any], Any] | None = None  #: In place of a field: a row -> its value.
    #: Name in CSV and JSON, where it does not follow; empty for a column that no file has.
    file: str | None = None
    #: The cell to read of a value that is not known; by default ``-``, and nothing for texts.
    unknown: str | None = None
    mark: Callable[[Any, str], str] | None = None  #: A row and its cell -> the cell with marks.
    note: str = ""  #: A sentence below a table that shows the column.
    fold: int = 32  #: Characters to which a narrow terminal folds a text at most.
    drop: int = 0  #: A narrow terminal leaves out columns in this order, and 0 never.
    #: A row -> the part of a whole that its bar shows, where that is not the value.
    bar: Callable[[Any], float | None] | None = None

    @cached_property
    def of(self) -> Callable[[Any], Any]:
        """Its value of a row; None, NaN and <NA> are not known."""
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
        """The name in CSV and JSON; empty where no file has the column."""
        return self.key + self.unit.file if self.file is None else self.file

    @property
    def folds(self) -> int | None:
        """The width to which a text is folded; None for what stands on one line at the right."""
        return self.fold if self.unit.text else None

    def headed(self, heading: str, full: str = "") -> Column:
        """The column under other headings."""
        return replace(self, heading=heading, full=full or heading)

    def kept(self) -> Column:
        """The column, to be shown on a narrow terminal too."""
        return replace(self, drop=0)

    def cell(self, row: Any) -> str:
        """The cell of a row to read."""
        value = self.of(row)
        shown = "" if is_missing(value) else self.unit.shown(value)
        if shown:
            return self.mark(row, shown) if self.mark else shown
        if self.unknown is None and not is_missing(getattr(row, "Index", 0)):
            return NOT_KNOWN if is_missing(value) and not self.unit.text else ""
        return self.unknown or ""

    def exact(self, row: Any) -> str:
        """The cell of a row in CSV; empty where the value is not known."""
        value = self.of(row)
        if is_missing(value):
            return ""
        if self.unit.exact:
            return self.unit.exact(value)
        return units.format_exact(value * self.unit.scale, _true_digits(row))

    def in_json(self, row: Any) -> str | float | bool | None:
        """The value of a row in JSON, in the unit of its name; None where it is not known."""
        value = self.of(row)
        if is_missing(value) or value in (math.inf, -math.inf):
            return None
        shown: str | float | bool
        shown = self.unit.words(value) if self.unit.words else json.loads(self.exact(row))
        return shown


#: Columns, with or without their keys.
Columns = Mapping[str, Column] | Iterable[Column]


def by_key(*columns: Column) -> dict[str, Column]:
    """Columns by their keys, each of which stands once."""
    keyed = {column.key: column for column in columns}
    if len(keyed) < len(columns):
        raise ValueError(f"columns of the same key: {[column.key for column in columns]}")
    return keyed


def mark_about(row: Any, shown: str) -> str:
    """The cell with ``~`` where a layer's work is an estimate."""
    return units.format_about(shown, row.work_is_about)


#: The height of a spread.
SPREAD = 12


@dataclass(frozen=True)
class Spread:
    """How the times of a row are spread over the trials, to be drawn small.

    Both lists have heights up to :data:`SPREAD`: how often a time came, up to the 99th percentile,
    with those beyond in the last bar, and the medians of successive trials.
    """

    counts: Sequence[int]
    course: Sequence[int]
    words: str  #: The same in words.


@dataclass(frozen=True)
class Table:
    """A table: columns, and a frame or rows of which they make cells.

    Columns without headings are names and values.
    """

    columns: Any
    rows: Any
    caption: str = ""
    marks: Sequence[str] = ()  #: Of rows; those behind the last mark have none.
    legend: Sequence[str] = ()  #: Sentences below it.
    wider: str = "a wider terminal shows them"  #: How to see columns that a terminal lacks.
    anchors: Sequence[str] = ()  #: Of each row the name to which links lead.
    leads: Sequence[str] = ()  #: Of each row the anchor of the row that it leads to.
    depths: Sequence[int] = ()  #: Of each row how far it is set in, in a table that folds.
    spreads: Sequence[Spread] = ()
    foot: int = 0  #: The number of last rows that complete the others to a whole.
    ruled: bool = True  #: Whether a terminal draws a rule below the headings.

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", listed(self.columns))
        object.__setattr__(self, "rows", rows_of(self.rows))

    @property
    def head(self) -> list[str]:
        """The headings of reports; empty where there are none."""
        titles = [column.title for column in self.columns]
        return titles if any(titles) else []

    def cells(self) -> list[list[str]]:
        """The rows as texts, for the terminal, Markdown and HTML."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def mark(self, row: int) -> str:
        return self.marks[row] if row < len(self.marks) else ""

    def notes(self, shown: Iterable[Column] | None = None) -> str:
        """The sentences below the table with these columns, or with all."""
        notes = [column.note for column in (self.columns if shown is None else shown)]
        return " ".join(filter(None, [*self.legend, *notes]))


def not_shown(count: int, hint: str = "", noun: str = "row", more: str = "") -> list[str]:
    """The sentence of a legend on rows that a limit leaves out, and how they are seen."""
    how = f" ({hint})" if hint else ""
    return [f"{units.plural(count, noun)} not shown{how}{more}."] if count else []


def _true_digits(row: Any) -> int:
    """How many digits a row's measured numbers have in files.

    The last digit is worth at most a thousandth of the 95 % interval of the row's median.
    """
    ends_s = (getattr(row, f"ci_{end}_s", None) for end in ("high", "low"))
    high_s, low_s = (math.nan if end is None else end for end in ends_s)
    width_s = high_s - low_s
    if width_s > 0 and row.median_s > 0:
        return 4 + math.ceil(math.log10(row.median_s / width_s))
    return _DIGITS


def is_missing(value: Any) -> bool:
    """Whether a value is not known: None, NaN, or the <NA> of pandas, which is not imported."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float) and math.isnan(value)


def rows_of(rows: Any) -> list[Any]:
    """The rows of a frame, each a named tuple; or rows that are rows already."""
    return list(rows.itertuples() if hasattr(rows, "itertuples") else rows)


def listed(columns: Columns) -> list[Column]:
    """Columns as a list, with or without their keys."""
    return list(columns.values() if isinstance(columns, Mapping) else columns)


def to_csv(columns: Columns, rows: Any) -> str:
    """The columns that are known of a row at least, with empty cells for others; no formulas."""
    every, file = rows_of(rows), io.StringIO()
    cells = {column.csv: list(map(column.exact, every)) for column in _of_files(columns)}
    kept = {name: values for name, values in cells.items() if any(values) or not every}
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(kept)
    writer.writerows(zip(*kept.values(), strict=True))
    return file.getvalue()


def to_json(columns: Columns, rows: Any) -> dict[str, list[Any]]:
    """The columns that are known of a row at least, by the names of CSV and in its units."""
    every = rows_of(rows)
    lists = {column.csv: list(map(column.in_json, every)) for column in _of_files(columns)}
    return {name: values for name, values in lists.items() if set(values) - {None, ""}}


def _of_files(columns: Columns) -> list[Column]:
    return [column for column in listed(columns) if column.csv]


def with_content(columns: Columns, rows: Any) -> list[Column]:
    """The columns that say something about a row."""
    every, nothing = rows_of(rows), ("", NOT_KNOWN)
    return [
        column
        for column in listed(columns)
        if any(column.cell(row) not in nothing for row in every)
    ]


def noted(columns: Iterable[Column], notes: Mapping[str, str]) -> list[Column]:
    """The columns, with sentences by their keys."""
    return [replace(column, note=notes.get(column.key, column.note)) for column in columns]


def choose(names: Sequence[str], columns: Mapping[str, Column], where: str) -> tuple[str, ...]:
    """The keys of the columns that a user names by key or by name in CSV, each of them once."""
    by_csv = {column.csv: key for key, column in columns.items() if column.csv}
    chosen = choose_names(names, columns, where, by_csv)
    return tuple(dict.fromkeys(name if name in columns else by_csv[name] for name in chosen))
