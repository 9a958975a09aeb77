"""Units of columns: how tables, CSV and JSON format their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chainer_profile.basics import units
from chainer_profile.report.text import printable


@dataclass(frozen=True)
class Unit:
    """How a column formats its values, and the suffixes of its names."""

    format: Callable[[Any], str]  #: Formats a cell to read.
    #: Formats a cell of CSV; None for a measured number, which gets its significant digits.
    format_csv: Callable[[Any], str] | None = None
    scale: float = 1.0  #: Factor from a measured number to the unit of files.
    field: str = ""  #: Suffix of the column's key in the name of a row's field.
    file: str = ""  #: Suffix of the column's key in its name in files.
    #: Formats a text of JSON; None for numbers and booleans, which look the same in CSV and JSON.
    format_json: Callable[[Any], str] | None = None
    text: bool = False  #: Whether cells are left-aligned and may be folded.
    code: bool = False  #: Whether cells are code.
    bar: bool = False  #: Whether a page draws a bar for it.
    in_ms: bool = False  #: Whether cells are milliseconds without a unit.


#: The start of a text that a spreadsheet may calculate, or that :func:`safe` would produce.
_FORMULA = re.compile("'* *[-=+@\uff0d\uff1d\uff0b\uff20]")


def safe(text: str) -> str:
    r"""Format a text on one line that no spreadsheet evaluates as a formula.

    An apostrophe is added before a text that begins with ``=``, ``+``, ``-`` or ``@``, also in full
    width, after spaces or after apostrophes. Spreadsheets then read it as text. Characters that
    cannot be printed, such as tabs and line breaks, are written as in Python (``\t``).
    """
    text = printable(text)
    return f"'{text}" if _FORMULA.match(text) else text


def _whole(value: Any) -> str:
    return str(int(value))


def _truth(value: Any) -> str:
    return str(bool(value)).lower()


HOT_MARK = "*"
TEXT = Unit(str, lambda value: safe(str(value)), format_json=str, text=True)
CODE = replace(TEXT, code=True)
#: A text made of numbers, right-aligned.
FIGURE = replace(TEXT, text=False)
#: Booleans; true is shown as a mark.
HOT_FLAG = Unit(lambda value: HOT_MARK if value else "", _truth)
ABOUT_FLAG = Unit(lambda value: "~" if value else "", _truth)
#: Shapes of arrays, left-aligned and folded, or right-aligned on one line.
SHAPES = Unit(units.format_shapes, units.format_shapes, format_json=units.format_shapes, text=True)
SHAPES_ON_ONE_LINE = replace(SHAPES, text=False)
COUNT = Unit(units.format_count, _whole)
#: A number of calls, or the mean of such numbers.
CALLS = Unit(units.format_count)
#: A number that counts nothing, such as an index.
PLAIN = Unit(str, _whole)
MS = Unit(units.format_ms, scale=1e3, field="_s", file="_ms", in_ms=True)
SECONDS = Unit(units.format_duration, field="_s", file="_s")
#: Fractions: as a bare number under a heading with %, the same with a bar, and with a % sign.
PERCENT = Unit(units.format_bare_percent, scale=100, file="_percent")
SHARE = replace(PERCENT, bar=True)
PART = replace(PERCENT, format=units.format_percent)
MEGA = Unit(units.format_mega, _whole)
GIGA = Unit(units.format_giga, scale=1e-9)
BYTES = Unit(units.format_nbytes, _whole, field="_nbytes", file="_nbytes")
NUMBER = Unit(units.format_significant)
FACTOR = Unit(units.format_factor)
SCIENTIFIC = Unit(units.format_scientific)
