"""Tables: rows and a line for each of their columns; all files and texts are made from the two.

A line is ``key | heading | kind | meaning``; one that is set in goes on with the meaning above.

- ``key`` may be ``key field csv``: the field of a row that it shows (of a frame's index it is
  ``Index``), and its name in CSV and JSON, where they do not follow from the key and the kind;
  ``-`` in place of the name for what no file has.
- ``heading`` may be ``heading = heading in full``, with ``!N`` behind it for what a narrow terminal
  does without, the first N first. Without one it is the key; ``""`` is none at all.
- ``kind`` is one of :data:`KINDS`, and the width to which its texts are folded at most. ``~``
  before it says that figures may be approximate, ``?`` behind it that they may not be known, and
  ``_`` that the cell to read is then empty and no ``-``.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from chainer_profile.basics import units
from chainer_profile.basics.parsing import choose_names
from chainer_profile.report.text import printable

#: Significant digits of a figure in files where no interval says how many are true.
_DIGITS = 6
#: Not folded to less, where a line does not say it.
_FOLDS = 32


@dataclass(frozen=True)
class Kind:
    """How the values of a column are shown."""

    shown: Callable[[Any], str]  #: A value -> its cell to read.
    #: A value -> its cell in CSV; None for what is measured, which has as many digits as are true.
    exact: Callable[[Any], str] | None = None
    scale: float = 1.0  #: What is measured in the unit of its name in CSV.
    field: str = ""  #: How the field of a row ends behind the key.
    csv: str = ""  #: How the name in CSV ends behind the key.
    #: A value -> its text in JSON; None for numbers and truths, which CSV writes as JSON does.
    words: Callable[[Any], str] | None = None
    text: bool = False  #: It stands on the left and may be folded.
    code: bool = False  #: It is a name in a program.
    bar: bool = False  #: A bar behind the row shows it.


#: How a text begins that a spreadsheet may calculate, or that was one.
_FORMULA = re.compile("'* *[-=+@\uff0d\uff1d\uff0b\uff20]")


def safe(text: str) -> str:
    r"""A text on one line that no spreadsheet takes for a formula.

    A text that begins with ``=``, ``+``, ``-`` or ``@``, or one of these in full width, gets an
    apostrophe in front, which spreadsheets take for the sign of a text; so does one that begins
    with apostrophes before such a sign. Spaces before it do not count. Characters that cannot be
    printed, tabs and line breaks among them, are written as in Python (``\t``).
    """
    text = printable(text)
    return f"'{text}" if _FORMULA.match(text) else text


def _whole(value: Any) -> str:
    return str(int(value))


def _mark(sign: str) -> Callable[[Any], str]:
    return lambda value: sign if value else ""


def _truth(value: Any) -> str:
    return str(bool(value)).lower()


def _about(row: Any, shown: str) -> str:
    return units.format_about(shown, row.work_is_about)


HOT_MARK = "*"
_TEXT = Kind(str, lambda value: safe(str(value)), words=str, text=True)
_TRUTH = Kind(_truth, _truth)
_SHAPES = Kind(units.format_shapes, units.format_shapes, words=units.format_shapes)
_PERCENT = Kind(units.format_bare_percent, scale=100, csv="_percent")
KINDS = {
    "text": _TEXT,
    "code": replace(_TEXT, code=True),
    "figure": replace(_TEXT, text=False),
    "hot": replace(_TRUTH, shown=_mark(HOT_MARK)),
    "about": replace(_TRUTH, shown=_mark("~")),
    "shapes": replace(_SHAPES, text=True),
    "shapes_beside": _SHAPES,
    "count": Kind(units.format_count, _whole),
    # A number of calls, or the mean of such numbers.
    "calls": Kind(units.format_count),
    "plain": Kind(str, _whole),
    "ms": Kind(units.format_ms, scale=1e3, field="_s", csv="_ms"),
    "duration": Kind(units.format_duration, field="_s", csv="_s"),
    "percent": _PERCENT,
    "bar": replace(_PERCENT, bar=True),
    "mega": Kind(units.format_mega, _whole),
    "giga": Kind(units.format_giga, scale=1e-9),
    "bytes": Kind(units.format_nbytes, _whole, field="_nbytes", csv="_nbytes"),
    "number": Kind(units.format_significant),
    "times": Kind(lambda value: f"{value:.3f}"),
    "part": replace(_PERCENT, shown=units.format_percent),
    "factor": Kind(units.format_factor),
    "scientific": Kind(units.format_scientific),
}


@dataclass(frozen=True)
class Column:
    """One column of a table: for the terminal and ``--columns``, reports, files, documentation."""

    key: str
    name: str  #: Its heading on the terminal.
    title: str  #: Its heading in a report.
    kind: Kind
    meaning: str
    value: Callable[[Any], Any]  #: Of a row; None, NaN and <NA> are not known.
    csv: str  #: Its name in CSV and JSON; empty where no file has it.
    known: bool = True
    missing: str = units.NOT_KNOWN  #: Its cell to read where it is not known.
    mark: Callable[[Any, str], str] | None = None  #: A row and its cell -> the cell with marks.
    folds: int | None = None  #: Text that may take several lines, at least this wide.
    drop: int = 0  #: On a narrow terminal columns go in this order; 0 stays.
    bar: Callable[[Any], float | None] | None = None  #: Of a row, the part that its bar shows.

    def cell(self, row: Any) -> str:
        """Its cell of a row, to read."""
        value = self.value(row)
        if is_missing(value):
            return self.missing
        shown = self.kind.shown(value)
        if not shown and not self.known:
            return self.missing
        return self.mark(row, shown) if self.mark else shown

    def exact(self, row: Any) -> str:
        """Its cell in CSV; empty where it is not known."""
        value = self.value(row)
        if is_missing(value):
            return ""
        if self.kind.exact:
            return self.kind.exact(value)
        return units.format_exact(value * self.kind.scale, _true_digits(row))

    def in_json(self, row: Any) -> str | float | bool | None:
        """Its value in JSON, in the unit of its name; None where it is not known."""
        value = self.value(row)
        if is_missing(value) or value in (math.inf, -math.inf):
            return None
        found: str | float | bool
        found = self.kind.words(value) if self.kind.words else json.loads(self.exact(row))
        return found


#: Columns, with or without their keys.
Columns = Mapping[str, Column] | Iterable[Column]


#: The height of a spread.
SPREAD = 12


@dataclass(frozen=True)
class Spread:
    """How the times of a row are spread over the trials, to be drawn small.

    Both are of at most :data:`SPREAD`: how often a time came, up to the 99th percentile, with those
    beyond in the last one, and the medians of successive trials.
    """

    counts: Sequence[int]
    course: Sequence[int]
    said: str  #: The same in words.


@dataclass(frozen=True)
class Table:
    """A table: columns, and a frame or rows of which they make cells.

    Columns without headings are names and values.
    """

    columns: Any
    rows: Any
    caption: str = ""
    marks: Sequence[str] = ()  #: Of rows; those behind the last one have none.
    #: Sentences with the name of the column without which they are not said; "" for always.
    legend: Sequence[tuple[str, str]] = ()
    wider: str = "a wider terminal shows them"  #: How to see columns that a terminal lacks.
    anchors: Sequence[str] = ()  #: Of each row what leads to it.
    leads: Sequence[str] = ()  #: Of each row the anchor of the row that it leads to.
    depths: Sequence[int] = ()  #: Of each row how far it is set in, in a table that folds.
    spreads: Sequence[Spread] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", listed(self.columns))
        object.__setattr__(self, "rows", rows_of(self.rows))

    @property
    def head(self) -> list[str]:
        """The headings in full; empty where there are none."""
        names = [column.title or column.name for column in self.columns]
        return names if any(names) else []

    def cells(self) -> list[list[str]]:
        """The rows as texts: what the terminal, Markdown and HTML write."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def mark(self, row: int) -> str:
        return self.marks[row] if row < len(self.marks) else ""

    def notes(self, shown: Iterable[Column] | None = None) -> str:
        """The legend, where these columns are shown or all are."""
        names = {column.name for column in (self.columns if shown is None else shown)}
        return " ".join(note for name, note in self.legend if not name or name in names)


def not_shown(
    count: int, hint: str = "", what: str = "row", more: str = ""
) -> list[tuple[str, str]]:
    """What a legend says of rows that a limit leaves out, and how they are seen."""
    how = f" ({hint})" if hint else ""
    return [("", f"{units.plural(count, what)} not shown{how}{more}.")] if count else []


def joined(lines: str) -> list[str]:
    """Lines, each with those below it that are set in."""
    found: list[str] = []
    for line in lines.strip().splitlines():
        if line.startswith(" "):
            found[-1] += f" {line.strip()}"
        elif line:
            found.append(line)
    return found


def columns(lines: str, /, **computed: Callable[[Any], Any]) -> dict[str, Column]:
    """Columns from their lines, by key."""
    made = [_column(line, computed) for line in joined(lines)]
    by_key = {column.key: column for column in made}
    if len(by_key) < len(made):
        raise ValueError(f"columns of the same key: {[column.key for column in made]}")
    return by_key


def _column(line: str, computed: Mapping[str, Callable[[Any], Any]]) -> Column:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) not in (3, 4):
        raise ValueError(f"a column is key | heading | kind | meaning: {line}")
    names, heading, how, meaning = (*parts, "")[:4]
    key, *others = names.split()
    word, *folds = how.split()
    kind = KINDS[word.strip("~?_")]
    source, csv = (*others, "", "")[:2]
    source, csv = source or key + kind.field, csv or key + kind.csv
    shown, _, drop = heading.partition("!")
    name, _, title = (part.strip() for part in shown.partition(" = "))
    name = "" if name == '""' else name or key
    # A time's heading in full has its unit in brackets.
    own = f"{name.removesuffix(' ms')} [ms]" if name.endswith(" ms") else name
    value = computed.get(source) or attrgetter(source)
    return Column(
        key,
        name,
        title or own,
        kind,
        meaning,
        value,
        "" if csv == "-" else csv,
        known="?" not in word,
        missing="" if word.endswith(("_", "_?")) else units.NOT_KNOWN,
        mark=_about if "~" in word else None,
        folds=(int(folds[0]) if folds else _FOLDS) if kind.text else None,
        drop=int(drop or 0),
        bar=value if kind.bar else None,
    )


def _true_digits(row: Any) -> int:
    """How many digits a row's figures have in files.

    The last one is worth at most a thousandth of the 95 % interval of the row's median.
    """
    width_s = getattr(row, "ci_high_s", math.nan) - getattr(row, "ci_low_s", math.nan)
    known = width_s > 0 and row.median_s > 0
    return 4 + math.ceil(math.log10(row.median_s / width_s)) if known else _DIGITS


def is_missing(value: Any) -> bool:
    """Whether a value is not known: None, NaN, or the <NA> of pandas, which is not imported."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float) and math.isnan(value)


def rows_of(rows: Any) -> list[Any]:
    """The rows of a frame, each a named tuple; or rows that are rows already."""
    return list(rows.itertuples() if hasattr(rows, "itertuples") else rows)


def listed(found: Columns) -> list[Column]:
    """Columns as a list, with or without their keys."""
    return list(found.values() if isinstance(found, Mapping) else found)


def to_csv(found: Columns, rows: Any) -> str:
    """The columns that are known of a row at least; no text is a formula.

    What is not known is an empty cell.
    """
    every, file = rows_of(rows), io.StringIO()
    cells = {one.csv: [one.exact(row) for row in every] for one in listed(found) if one.csv}
    columns = {name: values for name, values in cells.items() if any(values) or not every}
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return file.getvalue()


def to_json(found: Columns, rows: Any) -> dict[str, list[Any]]:
    """The columns that are known of a row at least, by the keys of CSV and in its units."""
    every = rows_of(rows)
    chosen = {one.csv: list(map(one.in_json, every)) for one in listed(found) if one.csv}
    return {key: values for key, values in chosen.items() if set(values) - {None, ""}}


def with_content(found: Columns, rows: Any) -> list[Column]:
    """The columns that say something about a row."""
    every = rows_of(rows)
    unknown = ("", units.NOT_KNOWN)
    return [one for one in listed(found) if any(one.cell(row) not in unknown for row in every)]


def headed(column: Column, name: str, title: str = "") -> Column:
    return replace(column, name=name, title=title or name)


def kept(column: Column) -> Column:
    """The column, to be shown on a narrow terminal too."""
    return replace(column, drop=0)


def choose(names: Sequence[str], known: Mapping[str, Column], where: str) -> tuple[str, ...]:
    """The keys of columns asked for, by key or by name in CSV, each of them once."""
    by_csv = {one.csv: key for key, one in known.items() if one.csv}
    chosen = choose_names(names, known, where, by_csv)
    return tuple(dict.fromkeys(name if name in known else by_csv[name] for name in chosen))
