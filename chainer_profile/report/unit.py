"""Units of columns: how readers and files see their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chainer_profile.basics import units
from chainer_profile.report.text import printable


@dataclass(frozen=True)
class Unit:
    """The kind of a column's values."""

    shown: Callable[[Any], str]  #: A value as a cell to read.
    #: A value as a cell of CSV; None for a measured number, which has as many digits as are true.
    exact: Callable[[Any], str] | None = None
    scale: float = 1.0  #: A measured number times this is in the unit of its name in files.
    field: str = ""  #: Behind the column's key: the field of a row.
    file: str = ""  #: Behind the column's key: its name in files.
    #: A value as a text of JSON; None for numbers and truths, which CSV and JSON write alike.
    words: Callable[[Any], str] | None = None
    text: bool = False  #: Whether cells stand at the left and may be folded.
    code: bool = False  #: Whether it is a name in a program.
    bar: bool = False  #: Whether a page draws a bar for it.
    in_ms: bool = False  #: Whether cells are milliseconds without a unit.


#: How a text begins that a spreadsheet may calculate, or that was such a text.
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


def _truth(value: Any) -> str:
    return str(bool(value)).lower()


HOT_MARK = "*"
TEXT = Unit(str, lambda value: safe(str(value)), words=str, text=True)
CODE = replace(TEXT, code=True)
#: A text made of numbers, which stands at the right.
FIGURE = replace(TEXT, text=False)
#: Truths, which a mark shows.
HOT_FLAG = Unit(lambda value: HOT_MARK if value else "", _truth)
ABOUT_FLAG = Unit(lambda value: "~" if value else "", _truth)
#: Shapes of arrays: as a text, and where they stand at the right on one line.
SHAPES = Unit(units.format_shapes, units.format_shapes, words=units.format_shapes, text=True)
SHAPES_BESIDE = replace(SHAPES, text=False)
COUNT = Unit(units.format_count, _whole)
#: A number of calls, or the mean of such numbers.
CALLS = Unit(units.format_count)
#: A number that counts nothing, such as an index.
PLAIN = Unit(str, _whole)
MS = Unit(units.format_ms, scale=1e3, field="_s", file="_ms", in_ms=True)
SECONDS = Unit(units.format_duration, field="_s", file="_s")
#: Fractions: as a number for a heading with %, the same with a bar, and with the sign %.
PERCENT = Unit(units.format_bare_percent, scale=100, file="_percent")
SHARE = replace(PERCENT, bar=True)
PART = replace(PERCENT, shown=units.format_percent)
MEGA = Unit(units.format_mega, _whole)
GIGA = Unit(units.format_giga, scale=1e-9)
BYTES = Unit(units.format_nbytes, _whole, field="_nbytes", file="_nbytes")
NUMBER = Unit(units.format_significant)
FACTOR = Unit(units.format_factor)
SCIENTIFIC = Unit(units.format_scientific)
