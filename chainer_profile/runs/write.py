"""Writing the reports of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import replacing
from chainer_profile.runs.wanted import FILES, USUAL, Wanted

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary


def write_reports(
    folder: Path, summary: Summary, wanted: Wanted = USUAL, only: Collection[str] | None = None
) -> list[Path]:
    """Write everything that is made from a recording; returns the files.

    Args:
        folder: Where they go.
        summary: What they are made from.
        wanted: What is wanted beside the usual files.
        only: Names of files: no others are made. None for all of them.

    Raises:
        ProfileError: A file cannot be written, or a package that one needs is missing.
    """
    if only is not None:
        chosen = tuple(name for name in wanted.formats if FILES[name] in only)
        wanted = replace(wanted, formats=chosen)
    usual = _usual_reports(summary, wanted) if wanted.usual else {}
    contents = {name: make() for name, make in usual.items() if only is None or name in only}
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.write(content)
    # What may fail for want of a package comes last.
    for name, content in asked_for(summary, wanted):
        with replacing(folder / name) as file:
            file.write(content)
        contents[name] = content
    return [folder / name for name in contents]


def _usual_reports(summary: Summary, wanted: Wanted) -> dict[str, Callable[[], bytes]]:
    from chainer_profile.analyse.roofline import has_plot
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.report import csv_file as csv
    from chainer_profile.report import links_csv, page
    from chainer_profile.report.pictures import layers as plot
    from chainer_profile.report.pictures import roofline
    from chainer_profile.report.text import of_kind
    from chainer_profile.report.writers import markdown

    def report() -> bytes:
        return markdown.render(
            summary, plot="layers.png", table="layers.csv", links="links.csv", title=wanted.title
        ).encode()

    usual: dict[str, Callable[[], bytes]] = {
        "layers.csv": lambda: csv.render(summary).encode(),
        "links.csv": lambda: links_csv.render(summary).encode(),
        "layers.png": lambda: plot.render(summary, "png"),
        "layers.svg": lambda: plot.render(summary, "svg"),
        "report.md": report,
        "report.html": lambda: page.render(summary).encode(),
    }
    if has_plot(summary.recording, summary.layers):
        usual["roofline.png"] = lambda: roofline.render(summary, "png")
        usual["roofline.svg"] = lambda: roofline.render(summary, "svg")
    for kind in summary.kinds[1:]:

        def layers(number: int = kind.number) -> bytes:
            other = summary.recording.variant(number)
            if not other.layers:  # a trial without calls
                return csv.table_text(csv.COLUMNS, ()).encode()
            return csv.render(summarise(other, summary.hotspots.rule)).encode()

        usual[of_kind("layers.csv", kind.number)] = layers
    return usual


def asked_for(summary: Summary, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    """The files that are wanted, by their names; one that cannot be made comes after the others.

    Raises:
        ProfileError: A package that one of them needs is not installed, or there are no trials.
        UsageError: There is no trial of that number.
    """
    failed: ProfileError | None = None
    for name in wanted.formats:
        try:
            content = _made(name, summary, wanted)
        except ProfileError as error:
            failed = failed or error
        else:
            yield FILES[name], content
    if failed is not None:
        raise failed


def _made(name: str, summary: Summary, wanted: Wanted) -> bytes:
    from chainer_profile.report.pictures import stacks, trace
    from chainer_profile.report.writers import json_report, latex, pdf

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
