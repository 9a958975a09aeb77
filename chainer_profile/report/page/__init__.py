"""Summary -> ``report.html``: everything about a run on one page that needs nothing else.

The page is one file without any request: its scripts, BokehJS among them, stand in it, and its
policy allows only these, known by their hashes. Names of networks and layers are data: the
template escapes them, and the page's script shows them as text.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.comparison.compare import Comparison
    from chainer_profile.report.page.engines import Engines


def render(
    summary: Summary, *, engines: Engines | None = None, comparisons: Sequence[Comparison] = ()
) -> str:
    """The page as HTML; the same summary gives the same page.

    Args:
        summary: The summary of a run.
        engines: Other engines that ran the same network, if any.
        comparisons: Comparisons of runs, if any.
    """
    from chainer_profile.report.page import html, sections

    own, bokeh = html.own_script(), html.bokeh_script()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {html.digest(own)} {html.digest(bokeh)}",
            "style-src 'unsafe-inline'",
            "img-src data:",
            "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return _template().render(
        **sections.context(summary, engines, comparisons),
        policy=policy,
        style=html.own_file("page.css"),
        own_script=own,
        bokeh_script=bokeh,
    )


@cache
def _template() -> jinja2.Template:
    import jinja2

    from chainer_profile.report.page.html import own_file

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(own_file("page.html"))
