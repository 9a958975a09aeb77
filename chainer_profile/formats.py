"""The report files that are written when ``--format`` asks for them, and what goes into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.errors import UsageError

if TYPE_CHECKING:
    from chainer_profile.renderers.coursework import ReportTitle
    from chainer_profile.summaries import Summary

#: The formats, and the files that they are written into.
FILES = {
    "pdf": "report.pdf",
    "latex": "tables.tex",
    "json": "report.json",
    "trace": "trace.json",
    "speedscope": "stacks.speedscope.json",
    "folded": "stacks.folded",
}
#: Stands for all of them.
ALL = "all"


@dataclass(frozen=True)
class Wanted:
    """What is wanted beside the usual reports.

    Attributes:
        formats: Names of :data:`FILES`.
        title: Title, author and course of the reports; None for none.
        trace_trial: A trial that the trace shows beside the median one, counted from 0.
    """

    formats: tuple[str, ...] = ()
    title: ReportTitle | None = None
    trace_trial: int | None = None


#: Nothing beside the usual reports.
USUAL = Wanted()


def parse_formats(text: str) -> tuple[str, ...]:
    """The formats of a list such as ``pdf,trace``; ``all`` stands for all of them.

    Raises:
        UsageError: There is no such format.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*FILES, ALL):
            raise UsageError(
                f"unknown format {name!r}: it is {', '.join(FILES)} or {ALL} (CSV, plots, "
                "report.md and report.html are always written)"
            )
    return tuple(FILES) if ALL in names else tuple(dict.fromkeys(names))


def contents(summary: Summary, wanted: Wanted) -> dict[str, bytes]:
    """The files that are wanted, by their names.

    Raises:
        ProfileError: A package that one of them needs is not installed.
        UsageError: There is no trial of that number.
    """
    made = {}
    for name in wanted.formats:
        made[FILES[name]] = _made(name, summary, wanted)
    return made


def _made(name: str, summary: Summary, wanted: Wanted) -> bytes:
    from chainer_profile.renderers import json_report, latex, pdf, stacks, trace

    if name == "pdf":
        return pdf.render(summary, title=wanted.title)
    texts = {
        "latex": lambda: latex.render(summary, title=wanted.title),
        "json": lambda: json_report.render(summary),
        "trace": lambda: trace.render(summary, wanted.trace_trial),
        "speedscope": lambda: stacks.render_speedscope(summary),
        "folded": lambda: stacks.render_folded(summary),
    }
    return texts[name]().encode()


def needs_no_tables(formats: Sequence[str]) -> bool:
    """Whether JSON takes the tables' place on the standard output."""
    return "json" in formats
