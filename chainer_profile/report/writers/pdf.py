"""Summary -> ``report.pdf``: the report of an experiment on A4 pages, with its figures in it."""

from __future__ import annotations

import io
import warnings
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.report.content.coursework import ReportTitle, blocks, heading_text
from chainer_profile.report.document import Code, Figure, Heading, Table, Text, caption_text
from chainer_profile.report.text import model_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.figure import Figure as Drawing

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block
    from chainer_profile.report.writers.pdf_page import Pages, Picture

_PLOT, _ROOFLINE = "layers.svg", "roofline.svg"
#: Height below a heading that has to be there for text to begin.
_LINES = 22.0
#: The date of a file that says when no run began.
_UNKNOWN = datetime(2000, 1, 1, tzinfo=timezone.utc)


def require_packages() -> None:
    """See that the libraries which write PDF are installed.

    Raises:
        ProfileError: One of them is not.
    """
    try:
        import fpdf  # noqa: F401
        import uharfbuzz  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise ProfileError(
            "a PDF needs the packages fpdf2 and uharfbuzz: python -m pip install fpdf2 uharfbuzz"
        ) from error


def render(
    summary: Summary,
    *,
    title: ReportTitle | None = None,
    table: str = "layers.csv",
    links: str = "links.csv",
) -> bytes:
    """The report as a PDF; the same summary gives the same bytes.

    It has all that ``report.md`` has, but for the columns of the CSV files.

    Args:
        summary: The summary of a run.
        title: What the report says of itself.
        table: Name of the file with the table of all layers.
        links: Name of the file with the table of all links.

    Raises:
        ProfileError: The library that writes PDF is not installed.
    """
    require_packages()
    from chainer_profile.report.writers.pdf_page import Pages

    title = title or ReportTitle()
    name = heading_text(summary, title)
    parts = blocks(
        summary, title, plot=_PLOT, table=table, links=links, roofline=_ROOFLINE, files=False
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="fpdf")
        pages = Pages(name)
        _describe(pages, summary, title, name)
        pages.put_title(name, title.rows())
        _Writer(pages, _pictures(summary)).write(parts)
        return bytes(pages.output())


def _describe(pages: Pages, summary: Summary, title: ReportTitle, name: str) -> None:
    """What the file says of itself."""
    pages.set_title(name)
    pages.set_subject(f"Layer-wise profile of {model_name(summary.recording.settings)}")
    for row, value in title.rows():
        if row == "Author":
            pages.set_author(value)
        elif row == "Course":
            pages.set_keywords(value)
    pages.set_creator("chainer-profile")
    try:
        began = datetime.fromisoformat(summary.recording.environment.started.replace("Z", "+00:00"))
    except ValueError:
        began = _UNKNOWN
    pages.set_creation_date(began if began.tzinfo else began.replace(tzinfo=timezone.utc))


#: Inches; on paper a wider plot would be shown smaller, and its words with it.
_PLOT_WIDTH = 7.2


def _pictures(summary: Summary) -> dict[str, Callable[[], Picture]]:
    """The figures by their addresses."""
    from chainer_profile.report.pictures import layers as plot
    from chainer_profile.report.pictures import roofline

    return {
        _PLOT: lambda: _picture(plot.figure(summary, widest=_PLOT_WIDTH)),
        _ROOFLINE: lambda: _picture(roofline.figure(summary)),
    }


def _picture(drawing: Drawing) -> Picture:
    import matplotlib as mpl

    from chainer_profile.report.pictures.figures import STYLE
    from chainer_profile.report.writers.pdf_page import Picture

    file = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    style: Any = STYLE | {"svg.fonttype": "path"}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        drawing.savefig(file, format="svg", metadata=nothing)
    width, height = drawing.get_size_inches()
    return Picture(file.getvalue(), float(width), float(height))


class _Writer:
    """Writes blocks on pages: a heading, a caption and what belongs to them stay together."""

    def __init__(self, pages: Pages, pictures: dict[str, Callable[[], Picture]]) -> None:
        self._pages = pages
        self._draw = pictures
        self._drawn: dict[str, Picture] = {}

    def write(self, blocks: Iterable[Block]) -> None:
        """Write the report."""
        from chainer_profile.report.writers.pdf_text import (
            cells,
            code_lines,
            passages,
            pieces,
            plain,
        )

        parts = list(blocks)
        pages = self._pages
        for at, block in enumerate(parts):
            if isinstance(block, Heading):
                self._turn(parts[at + 1 :])
                pages.need(self._height(parts[at:]))
                pages.put_heading(block.level, plain(block.markdown))
            elif isinstance(block, Text):
                self._turn(parts[at:])
                if at + 1 < len(parts) and isinstance(parts[at + 1], Table):
                    pages.need(self._height(parts[at:]))
                for passage in passages(block.markdown):
                    # A few lines are not parted by the end of a page.
                    pages.need(min(pages.text_height(passage.pieces), _LINES))
                    pages.put_passage(passage)
            elif isinstance(block, Code):
                self._turn([block])
                pages.put_code(code_lines(block.markdown))
            else:
                label, words = caption_text(block)
                caption = pieces(words)
                self._turn([block])
                pages.need(self._height(parts[at:]))
                if isinstance(block, Table):
                    pages.put_caption(label, caption)
                    pages.ln(1)
                    pages.put_table(cells(block.markdown))
                else:
                    pages.put_figure(self._picture(block), plain(words))
                    pages.put_caption(label, caption)
                    pages.ln(3.5)

    def _picture(self, block: Figure) -> Picture:
        name = block.markdown.rpartition("(")[2].rstrip(")")
        if name not in self._drawn:
            self._drawn[name] = self._draw[name]()
        return self._drawn[name]

    def _turn(self, parts: list[Block]) -> None:
        """A page that lies, where what comes is a table that needs it; text goes with its table."""
        from chainer_profile.report.writers.pdf_text import cells

        for block in parts:
            if isinstance(block, Table):
                self._pages.turn(self._pages.lies(cells(block.markdown)))
                return
            if not isinstance(block, Text):
                break
        self._pages.turn(False)

    def _height(self, parts: list[Block]) -> float:
        """The height that has to be left for the first block to begin on this page."""
        from chainer_profile.report.writers.pdf_text import cells, pieces

        pages = self._pages
        height = 0.0
        for block in parts:
            if isinstance(block, Heading):
                height += 14.0 if block.level == 2 else 10.0
            elif isinstance(block, Text):
                height += pages.text_height(pieces(block.markdown))
                if height > _LINES * 2:
                    return height if height < _LINES * 4 else _LINES
            elif isinstance(block, Code):
                return height + _LINES
            else:
                height += pages.caption_height(pieces(block.caption)) + 3
                if isinstance(block, Table):
                    return height + pages.table_height(cells(block.markdown))
                return height + pages.figure_height(self._picture(block))
        return height
