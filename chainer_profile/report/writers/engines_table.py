"""A run of several engines -> what is printed on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from chainer_profile.report.aligned import aligned_table
from chainer_profile.report.content.engines_text import (
    EXPLAINED,
    about_lines,
    fusion_lines,
    next_steps,
    note_lines,
    other_lines,
    table_columns,
    warnings,
    wrong_lines,
)
from chainer_profile.report.text import environment_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.record.recording import Recording


def render(run: EnginesRun, recordings: Mapping[str, Recording], console: Console) -> None:
    """Print what was run, the engines, what became of the layers, and what to do.

    Args:
        run: The run.
        recordings: The recordings of engines that timed their nodes, by the engines' names.
        console: Where to print; it decides about colour and width.
    """

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style))

    for line in environment_lines(run.environment):
        say(line, "dim")
    for line in about_lines(run):
        say(line)
    for line in warnings(run):
        say(line, "yellow")
    if run.measured:
        say("")
        lines = aligned_table(table_columns(run), run.measured, console.width)
        styles = ["bold", "dim", *("bold red" if e.wrong else "" for e in run.measured)]
        for line, style in zip(lines, styles, strict=True):
            console.print(Text(line, style=style), soft_wrap=True)
        say(EXPLAINED, "dim")
    blocks = (
        (wrong_lines(run), "bold red"),
        (other_lines(run), "yellow"),
        (fusion_lines(run, recordings), ""),
        (note_lines(run), "dim"),
        (list(next_steps(run)), "bold"),
    )
    for found, style in blocks:
        if found:
            say("")
        for line in found:
            say(line, style)
