"""What is to be seen in a browser: pages that need nothing else.

A page is one file without any request: its scripts, BokehJS among them, stand in it, and its policy
allows only these, known by their hashes. Names of networks and layers are data: they are escaped,
and the page's script shows them as text.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import jinja2

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.comparison.compare import Comparison
    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.ranks.merging import Ranks
    from chainer_profile.record.recording import Recording
    from chainer_profile.report.content.profile import Beside
    from chainer_profile.report.document import Block

#: Rows of a comparison's table of layers.
_MAX_CHANGED = 200
#: Rows of a table of ranks or collectives.
_MAX_ROWS = 64


def render(summary: Summary, beside: Beside | None = None) -> str:
    """``report.html``: everything about a run; the same summary gives the same page.

    Args:
        summary: The summary of a run.
        beside: What else is known of it.
    """
    from chainer_profile.report.page import sections

    scripts = ("common.js", "tables.js", "run.js", "begin.js")
    return _page("run.html", scripts, sections.context(summary, beside))


def render_comparison(comparisons: Sequence[Comparison]) -> str:
    """``comparison.html``: the verdict, then the layers that changed.

    Args:
        comparisons: Comparisons of one run with others.
    """
    from chainer_profile.report.content.comparison import report
    from chainer_profile.report.page.comparing import comparison_chart

    plots = [f"comparison{at}" for at in range(len(comparisons))]
    drawn = {
        plot: chart
        for plot, comparison in zip(plots, comparisons, strict=True)
        if (chart := comparison_chart(comparison)) is not None
    }
    blocks = report(comparisons, plots=plots, limit=_MAX_CHANGED)
    return _document(blocks, "Comparison", drawn)


def render_engines(run: EnginesRun, recordings: Mapping[str, Recording]) -> str:
    """``engines.html``: the verdict, then the engines.

    Args:
        run: The run.
        recordings: The recordings of engines that timed their nodes, by the engines' names.
    """
    from chainer_profile.report.content.engines import PLOT, report
    from chainer_profile.report.page.comparing import engines_chart

    drawn = {PLOT: engines_chart(run, recordings)} if run.measured else {}
    return _document(report(run, recordings), "Engines", drawn)


def render_ranks(ranks: Ranks) -> str:
    """``ranks.html``: what is said of the ranks, and every rank's layers to choose from.

    Args:
        ranks: The ranks.
    """
    from chainer_profile.report.content.ranks import report
    from chainer_profile.report.page import choosing, html

    context = html.context(report(ranks, _MAX_ROWS), "Ranks", {})
    scripts = ("common.js", "tables.js", "ranks.js", "begin.js")
    return _page("document.html", scripts, choosing.with_ranks(context, ranks))


def _document(blocks: Iterable[Block], kind: str, drawn: Mapping[str, Any]) -> str:
    from chainer_profile.report.page import html

    return _page("document.html", ("common.js", "begin.js"), html.context(blocks, kind, drawn))


def _page(template: str, scripts: Sequence[str], context: dict[str, Any]) -> str:
    from chainer_profile.report.page import html

    own = html.own_script(scripts)
    bokeh = html.bokeh_script() if context["charts"] else ""
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
    return (
        _templates()
        .get_template(template)
        .render(
            {"data": "", "subtitle": "", **context},
            policy=policy,
            style=html.own_file("page.css"),
            own_script=own,
            bokeh_script=bokeh,
        )
    )


@cache
def _templates() -> jinja2.Environment:
    import jinja2

    from chainer_profile.report.page.html import own_file

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(own_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
