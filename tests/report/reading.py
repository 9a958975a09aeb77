"""What readers see of documents: Markdown, and lines on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from markdown_it import MarkdownIt

from chainer_profile.analyse.summary import Summary
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, link_frame
from chainer_profile.report.content.profile import ReportTitle, overview, report
from chainer_profile.report.document import Block
from chainer_profile.report.tables import Column, columns, to_csv
from chainer_profile.report.writers import markdown, terminal


@dataclass
class Report:
    """A report as a reader sees it: headings, paragraphs, list items, tables."""

    headings: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    images: list[tuple[str, str]] = field(default_factory=list)
    bold_rows: list[tuple[str, str]] = field(default_factory=list)
    html: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    tables_before: dict[str, int] = field(default_factory=dict)

    @property
    def words(self) -> str:
        cells = [cell for table in self.tables for row in table for cell in row]
        return "\n".join([*self.headings, *self.text, *cells])

    def table(self, head: str) -> list[list[str]]:
        """The rows of the only table whose head begins so, without the head."""
        (found,) = [table for table in self.tables if table[0][0] == head]
        return found[1:]

    def bold(self, head: str) -> list[str]:
        """The first cells of the bold rows of tables whose head begins so."""
        return [cell for table, cell in self.bold_rows if table == head]

    def after(self, heading: str) -> list[list[str]]:
        """The first table behind a heading, with its head."""
        return self.tables[self.tables_before[heading]]


def read(markdown: str) -> Report:
    report = Report()
    kind = ""
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown):
        if token.type in ("heading_open", "paragraph_open", "th_open", "td_open"):
            kind = token.type
        elif token.type == "table_open":
            report.tables.append([])
        elif token.type == "tr_open":
            report.tables[-1].append([])
        elif token.type == "fence":
            report.code.append(token.content)
        elif token.type == "html_block":
            report.html.append(token.content)
        elif token.type == "inline":
            children = token.children or []
            shown = "".join(c.content if c.type != "softbreak" else "\n" for c in children)
            report.images += [
                (c.content, str(c.attrs["src"])) for c in children if c.type == "image"
            ]
            report.html += [c.content for c in children if c.type == "html_inline"]
            report.links += [str(c.attrs["href"]) for c in children if c.type == "link_open"]
            if kind == "heading_open":
                report.headings.append(shown)
                report.tables_before[shown] = len(report.tables)
            elif kind == "paragraph_open":
                report.text.append(shown)
            else:
                report.tables[-1][-1].append(shown)
                first = len(report.tables[-1][-1]) == 1
                if first and any(c.type == "strong_open" for c in children):
                    report.bold_rows.append((report.tables[-1][0][0], shown))
    return report


def as_markdown(blocks: Iterable[Block]) -> str:
    """Blocks as Markdown."""
    return markdown.write(blocks)


def report_md(summary: Summary, title: ReportTitle | None = None) -> str:
    """A run's ``report.md``."""
    return markdown.write(report(summary, title))


def on_terminal(summary: Summary, width: int | None = 200, **shown: Any) -> str:
    """What a terminal of this width shows of a run; see :func:`.profile.overview`."""
    return terminal.written(overview(summary, **shown), width)


def layers_csv(summary: Summary) -> str:
    return to_csv(LAYER_COLUMNS, summary.layers)


def links_csv(summary: Summary) -> str:
    return to_csv(LINK_COLUMNS, link_frame(summary.links))


def column(
    name: str, cell: Callable[[Any], Any], title: str = "", *, kind: str = "figure", **more: Any
) -> Column:
    """A column by hand: its heading, what makes a cell of a row, its kind."""
    made = columns(f"one | | {kind}", one=cell)["one"]
    return replace(made, name=name, title=title or name, **more)
