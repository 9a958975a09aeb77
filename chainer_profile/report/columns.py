"""The columns of the tables by phase, group and link, for the terminal and for the report."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_bare_percent, format_count, format_ms, format_ratio
from chainer_profile.basics.words import BACKWARD, FORWARD
from chainer_profile.report.document import Column, Table
from chainer_profile.report.rows import GroupRow, LinkRow, PhaseRow
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from chainer_profile.report.text import Row

MAX_NAME = 32
_MAX_KIND = 20


def properties(rows: Iterable[Row], caption: str = "") -> Table:
    """Names and their values: a table without a head."""
    columns = (Column("", itemgetter(0), folds=MAX_NAME), Column("", itemgetter(1), folds=MAX_NAME))
    return Table(columns, list(rows), caption)


def phase_columns() -> list[Column]:
    """Columns of :func:`~chainer_profile.report.rows.phase_rows`."""

    def layers(row: PhaseRow) -> str:
        return format_count(row.layers) if row.layers else ""

    return [
        Column("phase", lambda row: row.name, folds=MAX_NAME),
        Column("layers", layers, drop=1),
        Column("layers ms", lambda row: format_ms(row.layers_s), "layers [ms]", drop=2),
        Column("framework ms", lambda row: format_ms(row.framework_s), "framework [ms]", drop=3),
        Column("total ms", lambda row: format_ms(row.total_s), "total [ms]"),
        Column("%", lambda row: format_bare_percent(row.share), "share of the trial [%]"),
    ]


def kind_columns() -> list[Column]:
    """Columns of :attr:`.Summary.kinds`."""
    return [
        Column("kind", lambda row: str(row.number)),
        Column("trials", lambda row: format_count(row.trials)),
        Column("%", lambda row: format_bare_percent(row.share), "share of the trials [%]"),
        Column("calls", lambda row: format_count(row.calls)),
        Column("median ms", lambda row: format_ms(row.median_s), "median trial [ms]"),
        Column(
            "how it differs",
            lambda row: printable(row.difference) or "shown here",
            folds=MAX_NAME,
        ),
    ]


def group_columns(by: str, phases: Sequence[str]) -> list[Column]:
    """Columns of :func:`~chainer_profile.report.rows.group_rows`: by phase for more than one."""
    several = len(phases) > 1
    return [
        Column(by, lambda row: row.name, folds=MAX_NAME),
        Column("calls", lambda row: format_count(row.calls), drop=2 if several else 0),
        *(_phase_times(phases) if several else ()),
        Column("total ms", lambda row: format_ms(row.total_s), "total [ms]"),
        *(_ratio(phases) if several else [Column("mean ms", _mean, "mean [ms]")]),
        Column("%", lambda row: format_bare_percent(row.share), "share [%]", bar=_part),
        Column("hot", lambda row: format_count(row.hot), "hot layers", drop=5)
        if several
        else Column("hot layers", lambda row: format_count(row.hot)),
    ]


def _part(row: GroupRow | LinkRow) -> float | None:
    return row.share


def _mean(row: GroupRow) -> str:
    return format_ms(row.mean_s)


def _ratio(phases: Sequence[str]) -> Iterator[Column]:
    """Backward over forward, where a trial has both."""
    if BACKWARD in phases and FORWARD in phases:
        backward, forward = phases.index(BACKWARD), phases.index(FORWARD)

        def ratio(row: GroupRow) -> str:
            return format_ratio(row.phases_s[backward], row.phases_s[forward])

        yield Column("bwd/fwd", ratio, "backward / forward", drop=1)


def _phase_times(phases: Sequence[str]) -> Iterator[Column]:
    """A column a phase; empty where a row has no part in it."""
    for at, phase in enumerate(phases):

        def time(row: GroupRow | LinkRow, at: int = at) -> str:
            return format_ms(row.phases_s[at]) if row.phases_s[at] else ""

        yield Column(phase, time, f"{phase} [ms]", drop=6)


def tree_columns(phases: Sequence[str], rows: Sequence[LinkRow], *, indent: bool) -> list[Column]:
    """Columns of :func:`~chainer_profile.report.rows.tree_rows`.

    Args:
        phases: The phases of a trial; for more than one there is a column each.
        rows: The rows to show; what none of them knows has no column.
        indent: Show a link's last name, indented by its depth, in place of its path.
    """

    def link(row: LinkRow) -> str:
        return "  " * row.depth + row.name if indent else row.path

    columns = [
        Column("link", link, folds=MAX_NAME),
        Column("kind", lambda row: row.kind, folds=_MAX_KIND, drop=1),
        Column("calls", lambda row: _count(row.calls), drop=2),
        Column("params", lambda row: _count(row.parameters), "parameters", drop=3),
        *(_phase_times(phases) if len(phases) > 1 else ()),
        Column("incl. ms", lambda row: format_ms(row.inclusive_s), "inclusive [ms]"),
        Column("excl. ms", _exclusive, "exclusive [ms]", drop=4),
        Column("%", _share, "share [%]", bar=_part),
        Column("hot", lambda row: _count(row.hot), "hot layers", drop=5),
    ]
    unknown = {"kind", "calls", "params"}
    return [c for c in columns if c.name not in unknown or any(map(c.cell, rows))]


def _count(value: int | None) -> str:
    return "" if value is None else format_count(value)


def _exclusive(row: LinkRow) -> str:
    return "" if row.exclusive_s is None else format_ms(row.exclusive_s)


def _share(row: LinkRow) -> str:
    return "" if row.share is None else format_bare_percent(row.share)
