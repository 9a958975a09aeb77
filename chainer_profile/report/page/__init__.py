"""A report's blocks as a page: one file without any request, whose policy allows one script."""

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

from chainer_profile.report.document import PAGE, Figure, Heading, shown_in
from chainer_profile.report.tables import Table
from chainer_profile.report.text import model_name, printable, settings_text
from chainer_profile.report.writers import html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.content.beside import Beside
    from chainer_profile.report.content.profile import ReportTitle
    from chainer_profile.report.document import Block, Section
    from chainer_profile.report.pictures.figures import Picture

#: Rows of a table that are there at first.
_MOST = 100


def render(
    summary: Summary,
    beside: Beside | None = None,
    drawn: Mapping[str, Picture] | None = None,
    made: Sequence[Section] = (),
    title: ReportTitle | None = None,
) -> str:
    """``report.html``: everything about a run, with the title and the author that were given."""
    from chainer_profile.report import pictures
    from chainer_profile.report.content import profile

    settings, title = summary.recording.settings, title or profile.ReportTitle()
    kind = "Layer-wise profile" + (f" of {model_name(settings)}" if title.heading else "")
    about = [settings_text(settings), *(f"{name}: {value}" for name, value in title.rows())]
    drawn = pictures.run_pictures(summary) if drawn is None else drawn
    heading = Heading(1, title.heading or profile.subject(summary, beside))
    blocks = shown_in(PAGE, made or profile.sections(summary, beside))
    return page([heading, *blocks], kind, drawn, about)


def page(
    blocks: Iterable[Block],
    kind: str,
    drawn: Mapping[str, Picture] = MappingProxyType({}),
    about: Sequence[str] = (),
) -> str:
    """A report as a page; its first heading is the title, and one of level 2 begins a section."""
    # Names that the page has by itself.
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
    # Of several comparisons each has a verdict in its own section.
    sections = [section for section in sections if section[2]]
    figures = partial(_figure, drawn=drawn)
    script = own_file("page.js")
    # The hash by which the policy allows it.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return Template(own_file("page.html")).substitute(
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
        style=own_file("page.css"),
        script=script,
    )


def _section(
    name: str, heading: str, blocks: Sequence[Block], figures: Callable[[Figure], str]
) -> str:
    # A picture says more than the tables that it is of.
    first = next((at for at, block in enumerate(blocks) if isinstance(block, Table)), 0)
    rest = sorted(blocks[first:], key=lambda block: not isinstance(block, Figure))
    content = html.write([*blocks[:first], *rest], figures=figures, most=_MOST)
    label = f'aria-labelledby="{name}-title"' if heading else 'aria-label="Answer"'
    title = f'<h2 id="{name}-title">{html.text(heading)}</h2>\n' if heading else ""
    return f'<section id="{name}" {label}>\n{title}{content}\n</section>'


def _figure(figure: Figure, drawn: Mapping[str, Picture]) -> str:
    """A picture, which scrolls where there is no room; nothing where there is none."""
    if figure.file not in drawn:
        return ""
    name = re.sub(r"\W.*", "", figure.file)
    svg = drawn[figure.file].in_page(name, printable(figure.alt))
    caption = f"<figcaption>{html.text(figure.caption)}</figcaption>" if figure.caption else ""
    label = f'tabindex="0" role="group" aria-label="{html.text(figure.alt)}"'
    return f'<figure><div class="scroll" {label}>{svg}</div>{caption}</figure>'


@cache
def own_file(name: str) -> str:
    """A file that comes with the page's code."""
    return files("chainer_profile.report.page").joinpath(name).read_text(encoding="utf-8")
