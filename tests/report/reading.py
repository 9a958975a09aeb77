"""Texts and files of a run, and hand-made columns."""

from collections.abc import Callable
from typing import Any

from chainer_profile.analyse.summary import Summary
from chainer_profile.report import unit
from chainer_profile.report.content.profile import overview, report
from chainer_profile.report.content.related import RelatedResults
from chainer_profile.report.document import Block
from chainer_profile.report.tables import Column, Columns, Table, columns_of
from chainer_profile.report.writers import markdown, terminal


def report_md(summary: Summary, related: RelatedResults | None = None) -> str:
    """Return the text of a run's ``report.md``."""
    return markdown.write(report(summary, related=related))


def terminal_text(summary: Summary, width: int | None = 200, **shown: Any) -> str:
    """Return the text about a run on a terminal of this width; see :func:`.profile.overview`."""
    return terminal.written(overview(summary, **shown), width)


def meanings(columns: Columns) -> dict[str, str]:
    """Return the meaning of each column by its name in CSV."""
    return {column.csv: column.meaning for column in columns_of(columns) if column.csv}


def column(
    heading: str,
    value: Callable[[Any], Any],
    full: str = "",
    of: unit.Unit = unit.FIGURE,
    **more: Any,
) -> Column:
    """Make a column from its heading, a function that returns the value of a row, and its unit."""
    return Column("key", heading, of, value=value, full=full, **more)


def table_of(blocks: list[Block], caption: str) -> Table:
    """Return the only table with this caption."""
    (table,) = (each for each in blocks if isinstance(each, Table) and each.caption == caption)
    return table
