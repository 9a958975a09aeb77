"""CSV: texts that no spreadsheet takes for a formula."""

from __future__ import annotations

import re

from chainer_profile.report.text import printable

#: How a text begins that a spreadsheet may calculate, or that was one.
_FORMULA = re.compile("'* *[-=+@\uff0d\uff1d\uff0b\uff20]")


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
