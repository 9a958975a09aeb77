"""What a run's texts and files say, and columns by hand."""

from collections.abc import Callable
from typing import Any

from chainer_profile.analyse.summary import Summary
from chainer_profile.report import unit
from chainer_profile.report.content.profile import overview, report
from chainer_profile.report.content.related import RelatedResults
from chainer_profile.report.tables import Column, Columns, columns_of
from chainer_profile.report.writers import markdown, terminal


def report_md(summary: Summary, related: RelatedResults | None = None) -> str:
    """A run's ``report.md``."""
    return markdown.write(report(summary, related=related))


def on_terminal(summary: Summary, width: int | None = 200, **shown: Any) -> str:
    """What a terminal of this width shows of a run; see :func:`.profile.overview`."""
    return terminal.written(overview(summary, **shown), width)


def meanings(columns: Columns) -> dict[str, str]:
    """The names in CSV and what they mean."""
    return {column.csv: column.meaning for column in columns_of(columns) if column.csv}


def column(
    heading: str,
    value: Callable[[Any], Any],
    full: str = "",
    of: unit.Unit = unit.FIGURE,
    **more: Any,
) -> Column:
    """A column by hand: its heading, what makes a value of a row, its unit."""
    return Column("key", heading, of, value=value, full=full, **more)
