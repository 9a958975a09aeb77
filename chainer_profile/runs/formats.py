"""The table of a run's report files, with the functions that make them.

Used to write reports, for ``--format`` and its help, to check folders, and to make the samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import UsageError

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.content.profile import ReportTitle
    from chainer_profile.report.content.related import RelatedResults
    from chainer_profile.report.document import Block, Section
    from chainer_profile.report.pictures.figures import Picture


@dataclass(frozen=True)
class Report:
    """A run, and how to report it. All files share its pictures and sections."""

    summary: Summary
    related: RelatedResults | None = None
    title: ReportTitle | None = None
    formats: Sequence[str] = ()  #: From :func:`parse_formats`.
    only: Collection[str] | None = None  #: Names of the files to write; None for all.

    @cached_property
    def sections(self) -> list[Section]:
        from chainer_profile.report.content.profile import sections

        return sections(self.summary, self.related)

    @cached_property
    def pictures(self) -> Mapping[str, Picture]:
        from chainer_profile.report import pictures

        return pictures.run_pictures(self.summary)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of ``report.md``, except pictures that are not written."""
        from chainer_profile.report.content.profile import report
        from chainer_profile.report.document import Figure

        for block in report(self.summary, self.title, related=self.related, prepared=self.sections):
            if self.only is None or not isinstance(block, Figure) or block.file in self.only:
                yield block


@dataclass(frozen=True)
class Format:
    """A report file of a run."""

    file: str  #: Name of the file.
    #: Returns the content, or None if a run has no such file. It imports modules when it is called,
    #: because ``--help`` reads this table.
    make: Callable[[Report], str | bytes | None]
    name: str = ""  #: Name in ``--format``; empty for a file that is always written.

    def is_requested(self, formats: Sequence[str]) -> bool:
        """Whether to write the file for this value of ``--format``."""
        if not self.name:
            return NONE not in formats
        return any(name.partition(":")[0] == self.name for name in formats)


def _layers(report: Report) -> str:
    from chainer_profile.report.writers.csv_files import layers_csv

    return layers_csv(report.summary)


def _links(report: Report) -> str:
    from chainer_profile.report.writers.csv_files import links_csv

    return links_csv(report.summary)


def _markdown(report: Report) -> str:
    from chainer_profile.report.writers import markdown

    return markdown.write(report.blocks())


def _advice(report: Report) -> str | None:
    from chainer_profile.report.content import advice
    from chainer_profile.report.writers import markdown

    tried = report.related.advice if report.related else None
    if report.related is None or tried is None:
        return None
    return markdown.write(advice.report(tried, report.related.program))


def _page(report: Report) -> str:
    from chainer_profile.report import page

    return page.render(
        report.summary, report.related, report.pictures, report.sections, report.title
    )


def _png(picture: str) -> Callable[[Report], bytes | None]:
    return lambda report: drawn.png() if (drawn := report.pictures.get(picture)) else None


def _svg(picture: str) -> Callable[[Report], bytes | None]:
    return lambda report: drawn.svg() if (drawn := report.pictures.get(picture)) else None


def _json(report: Report) -> str:
    from chainer_profile.report.writers import json_report

    return json_report.render(report.summary)


def _trace(report: Report) -> str:
    from chainer_profile.report.pictures import trace

    return trace.render(report.summary, trace_trial(report.formats))


def _stacks(report: Report) -> str:
    from chainer_profile.report.pictures import stacks

    return stacks.render_folded(report.summary)


FORMATS = (
    Format("layers.csv", _layers),
    Format("links.csv", _links),
    Format("report.md", _markdown),
    Format("advice.md", _advice),
    Format("layers.png", _png("layers.png")),
    Format("layers.svg", _svg("layers.png")),
    Format("report.html", _page),
    Format("roofline.png", _png("roofline.png")),
    Format("roofline.svg", _svg("roofline.png")),
    Format("report.json", _json, "json"),
    Format("trace.json", _trace, "trace"),
    Format("stacks.folded", _stacks, "folded"),
)

#: Files by the names of their formats.
FILES = {format.name: format.file for format in FORMATS if format.name}
#: Other values of ``--format``: the usual reports even for a short program, which has fewer by
#: default; all formats; and no report at all.
PAGE, ALL, NONE = "page", "all", "none"
#: A trace that shows one more trial, by its number from 0.
_TRACE = re.compile(r"trace:([0-9]{1,9})")


def parse_formats(text: str) -> tuple[str, ...]:
    """Parse a value of ``--format``, such as ``json,trace:17``; replace ``all`` by all formats."""
    names = [name.strip() for name in text.split(",")]
    if NONE in names:
        if len(names) > 1:
            raise UsageError("none means no report: give it alone")
        return (NONE,)
    for name in names:
        if name not in (*FILES, PAGE, ALL) and not _TRACE.fullmatch(name):
            raise UsageError(
                f"unknown format {name!r}: choose {', '.join(FILES)}, {PAGE} or {ALL} (CSV, plots, "
                f"report.md and report.html are written anyway, except with {NONE})"
            )
    everything = (*FILES, *filter(_TRACE.fullmatch, names))
    return everything if ALL in names else tuple(dict.fromkeys(names))


def trace_trial(formats: Sequence[str], n_trials: int | None = None) -> int | None:
    """The additional trial of a trace; None without one.

    Raises:
        UsageError: A run of ``n_trials`` has no such trial.
    """
    numbers = [int(match[1]) for name in formats if (match := _TRACE.fullmatch(name))]
    trial = numbers[-1] if numbers else None
    if trial is not None and n_trials is not None and trial >= n_trials:
        trials = f"the trials are 0 to {n_trials - 1}" if n_trials else "there are no trials"
        raise UsageError(f"--format trace:{trial}: {trials}")
    return trial


def is_report(name: str) -> bool:
    """Whether this is a name of a report, budget or advice in a run's folder."""
    return name in ("advice.json", "budget.json", *(format.file for format in FORMATS))
