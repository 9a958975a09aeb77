"""Blocks of a report as safe HTML, and the page's own scripts with their hashes."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from chainer_profile.report.document import Heading
from chainer_profile.report.page.data import to_json
from chainer_profile.report.page.drawing import as_json
from chainer_profile.report.text import printable
from chainer_profile.report.writers import html

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bokeh.models import Model

    from chainer_profile.report.document import Block, Figure


def blocks(parts: Iterable[Block]) -> Markup:
    """Blocks of the report as HTML; see :func:`.writers.html.write`."""
    return Markup(html.write(parts))


def context(parts: Iterable[Block], kind: str, drawn: Mapping[str, Model]) -> dict[str, Any]:
    """What the template of a document names: the verdict, and a section for every heading.

    Args:
        parts: The report; its first heading is the title.
        kind: What it is.
        drawn: The charts in the place of its figures, by their files.
    """
    # Names that the page has by itself.
    title, seen = "", {"verdict", "theme", "print", "bokeh"}
    sections: list[tuple[str, str, list[Block]]] = [("verdict", "", [])]
    for block in parts:
        if isinstance(block, Heading) and block.level == 1:
            title = block.text
        elif isinstance(block, Heading) and block.level == 2:
            name = re.sub(r"[^a-z0-9]+", "-", block.text.lower()).strip("-") or "section"
            while {name, f"{name}-title"} & seen:
                name += "-"
            seen |= {name, f"{name}-title"}
            sections.append((name, printable(block.text), []))
        else:
            sections[-1][2].append(block)
    # Of several comparisons each has a verdict in its own section.
    sections = [section for section in sections if section[2]]
    return {
        "title": printable(title),
        "kind": kind,
        "first": sections[0][0],
        "sections": [
            (name, heading, Markup(html.write(found, figures=partial(_chart, drawn=drawn))))
            for name, heading, found in sections
        ],
        "charts": {name: to_json(as_json(chart, name)) for name, chart in drawn.items()},
    }


def _chart(figure: Figure, drawn: Mapping[str, Model]) -> str:
    """The place of a chart; nothing where a figure has none."""
    if figure.file not in drawn:
        return ""
    caption = f'<p class="caption">{html.text(figure.caption)}</p>' if figure.caption else ""
    return (
        f'<div class="chart" data-chart="{html.text(figure.file)}" role="img" '
        f'aria-label="{html.text(figure.alt)}"></div>{caption}'
    )


def own_file(name: str) -> str:
    """A file that comes with the page's code."""
    return files("chainer_profile.report.page").joinpath(name).read_text(encoding="utf-8")


@cache
def own_script(names: tuple[str, ...]) -> str:
    """The page's own script: its files in one block, which leaves no names behind."""
    return script_text('"use strict";\n{\n' + "\n".join(map(own_file, names)) + "}\n")


@cache
def bokeh_script() -> str:
    """BokehJS, such that it can stand in a page."""
    from bokeh.resources import Resources

    return script_text(Resources(mode="inline", components=["bokeh"]).js_raw[0])


def script_text(script: str) -> str:
    """A script that does not end the element that it stands in."""
    text = script.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def digest(script: str) -> str:
    """The hash by which the page's policy knows a script."""
    value = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return f"'sha256-{value}'"
