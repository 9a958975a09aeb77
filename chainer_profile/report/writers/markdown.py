"""Summary -> ``report.md``: the report of an experiment, with everything computed from the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.report.content.coursework import ReportTitle, blocks, heading_text
from chainer_profile.report.document import Figure, Heading, Table, caption_text
from chainer_profile.report.markdown_syntax import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block


def render(
    summary: Summary,
    *,
    plot: str = "layers.png",
    table: str = "layers.csv",
    links: str = "links.csv",
    roofline: str = "roofline.png",
    title: ReportTitle | None = None,
) -> str:
    """The report as Markdown (GitHub's tables).

    Args:
        summary: The summary of a run.
        plot: Address of the bar plot, as seen from the report.
        table: Address of the table of all layers, as seen from the report.
        links: Address of the table of all links, as seen from the report.
        roofline: Address of the roofline plot, as seen from the report.
        title: What the report says of itself.
    """
    title = title or ReportTitle()
    lines = [f"# {text(heading_text(summary, title))}", *_by_whom(title)]
    for block in blocks(summary, title, plot=plot, table=table, links=links, roofline=roofline):
        lines += _markdown(block)
    return "\n\n".join(lines) + "\n"


def _by_whom(title: ReportTitle) -> Iterator[str]:
    said = [f"**{name}**: {text(value)}" for name, value in title.rows()]
    if said:
        # Two spaces at the end begin a new line.
        yield "  \n".join(said)


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {block.markdown}"
    elif isinstance(block, Table):
        label, words = caption_text(block)
        yield f"**{label}** {words}"
        yield block.markdown
    elif isinstance(block, Figure):
        label, words = caption_text(block)
        yield block.markdown
        yield f"*{label} {words}*"
    else:
        yield block.markdown
