"""The report's Markdown as safe HTML, and the page's own scripts with their hashes."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Iterable


@cache
def _markdown() -> MarkdownIt:
    # Without this preset's html option, tags in a name stay text.
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def blocks(parts: Iterable[str]) -> Markup:
    """Blocks of the report as HTML.

    What points to another file is left out, since the page stands alone: pictures and what is
    written below them, and paragraphs with links. So are headings: the page has its own.
    """
    kept = (part for part in parts if not part.startswith(("#", "![", "*One")))
    return Markup("").join(_block(part) for part in kept)


def _block(part: str) -> Markup:
    tokens = _markdown().parse(part)
    children = [child for token in tokens for child in token.children or ()]
    if any(child.type in ("link_open", "image") for child in children):
        return Markup("")
    html = str(_markdown().renderer.render(tokens, _markdown().options, {}))
    # Wide tables scroll within themselves.
    html = html.replace("<table>", '<div class="scroll"><table>')
    return Markup(html.replace("</table>", "</table></div>"))


def inline(sentence: str) -> Markup:
    """One sentence of the report."""
    return Markup(_markdown().renderInline(sentence))


def own_file(name: str) -> str:
    """A file that comes with the page's code."""
    return files("chainer_profile.report.page").joinpath(name).read_text(encoding="utf-8")


@cache
def own_script() -> str:
    """The page's own script: its files in one block, which leaves no names behind."""
    parts = (own_file(name) for name in ("tables.js", "page.js"))
    return script_text('"use strict";\n{\n' + "\n".join(parts) + "}\n")


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
