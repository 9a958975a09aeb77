"""Blocks -> an HTML page: one file that makes no requests. Its policy allows only its script."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache, partial
from html import escape
from importlib.resources import files
from string import Template
from types import MappingProxyType
from typing import TYPE_CHECKING

from chainer_profile.report.document import PAGE, Figure, Heading, blocks_in_form
from chainer_profile.report.tables import Table
from chainer_profile.report.text import model_name, printable, settings_text
from chainer_profile.report.writers import html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.content.profile import ReportTitle
    from chainer_profile.report.content.related import RelatedResults
    from chainer_profile.report.document import Block, Section
    from chainer_profile.report.pictures.figures import Picture

#: Rows of a table that are visible at first.
_VISIBLE_ROWS = 100


def render(
    summary: Summary,
    related: RelatedResults | None = None,
    drawn: Mapping[str, Picture] | None = None,
    prepared: Sequence[Section] = (),
    title: ReportTitle | None = None,
) -> str:
    """Format ``report.html``.

    Args:
        summary: The run.
        related: The advice and the program's time, if known.
        drawn: Pictures by file name; None to draw them.
        prepared: The report's sections, if they were made before.
        title: Title and author; without a title, the page has the run's name.
    """
    from chainer_profile.report import pictures
    from chainer_profile.report.content import profile

    settings, title = summary.recording.settings, title or profile.ReportTitle()
    kind = "Layer-wise profile" + (f" of {model_name(settings)}" if title.heading else "")
    about = [settings_text(settings), *(f"{name}: {value}" for name, value in title.rows())]
    drawn = pictures.run_pictures(summary) if drawn is None else drawn
    heading = Heading(1, title.heading or profile.subject(summary, related))
    blocks = blocks_in_form(PAGE, prepared or profile.sections(summary, related))
    return page([heading, *blocks], kind, drawn, about)


def page(
    blocks: Iterable[Block],
    kind: str,
    drawn: Mapping[str, Picture] = MappingProxyType({}),
    about: Sequence[str] = (),
) -> str:
    """Format blocks as a page.

    Args:
        blocks: The report. Its heading of level 1 is the title, headings of level 2 begin sections.
        kind: The kind of report, below the title.
        drawn: Pictures by file name. Figures without a picture are omitted.
        about: Lines below the kind.
    """
    # The template uses these ids.
    title, seen = "", {"answer", "theme", "print", "tip"}
    sections: list[tuple[str, str, list[Block]]] = [("answer", "", [])]
    for block in blocks:
        if isinstance(block, Heading) and block.level == 1:
            title = block.text
        elif isinstance(block, Heading) and block.level == 2:
            name = re.sub(r"[^a-z0-9]+", "-", block.text.lower()).strip("-") or "section"
            while {name, f"{name}-title"} & seen:
                name += "-"
            seen |= {name, f"{name}-title"}
            sections.append((name, block.text, []))
        else:
            sections[-1][2].append(block)
    # The answer is empty if each of several comparisons has its verdict in its own section.
    sections = [section for section in sections if section[2]]
    figures = partial(_figure, drawn=drawn)
    script = template_file("page.js")
    # The policy allows the script with this hash.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return Template(template_file("page.html")).substitute(
        policy=(
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
            "img-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
        ),
        title=html.text(title),
        plain_title=escape(printable(title)),
        kind=html.text(kind),
        plain_kind=escape(printable(kind)),
        about="\n".join(f'<p class="muted">{html.text(line)}</p>' for line in about),
        first=sections[0][0],
        nav="".join(
            f'<li><a href="#{name}">{html.text(heading)}</a></li>'
            for name, heading, _ in sections
            if heading
        ),
        sections="\n".join(_section(*section, figures) for section in sections),
        style=template_file("page.css"),
        script=script,
    )


def _section(
    name: str, heading: str, blocks: Sequence[Block], figures: Callable[[Figure], str]
) -> str:
    # Pictures come before the tables of the section.
    first = next((index for index, block in enumerate(blocks) if isinstance(block, Table)), 0)
    rest = sorted(blocks[first:], key=lambda block: not isinstance(block, Figure))
    content = html.write([*blocks[:first], *rest], figures=figures, max_rows=_VISIBLE_ROWS)
    label = f'aria-labelledby="{name}-title"' if heading else 'aria-label="Answer"'
    title = f'<h2 id="{name}-title">{html.text(heading)}</h2>\n' if heading else ""
    return f'<section id="{name}" {label}>\n{title}{content}\n</section>'


def _figure(figure: Figure, drawn: Mapping[str, Picture]) -> str:
    """Format a figure that scrolls sideways; empty if its picture was not drawn."""
    if figure.file not in drawn:
        return ""
    name = re.sub(r"\W.*", "", figure.file)
    svg = drawn[figure.file].in_page(name, printable(figure.alt))
    caption = f"<figcaption>{html.text(figure.caption)}</figcaption>" if figure.caption else ""
    label = f'tabindex="0" role="group" aria-label="{html.text(figure.alt)}"'
    return f'<figure><div class="scroll" {label}>{svg}</div>{caption}</figure>'


@cache
def template_file(name: str) -> str:
    """Read a file of this package: the page's template, style sheet or script."""
    return files("chainer_profile.report.page").joinpath(name).read_text(encoding="utf-8")
