"""Show recordings, summaries, comparisons and networks at a prompt and in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import format_duration, format_percent, plural
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.text import batch_text, model_name, printable, trial_text
from chainer_profile.report.writers import html, terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.comparison.compare import Comparison
    from chainer_profile.record.network import ModelSummary
    from chainer_profile.record.recording import Recording
    from chainer_profile.report.document import Block

#: Characters of a line at a prompt.
WIDTH = 110
#: Most rows of a table: at a prompt, in a notebook, and for a network in a notebook.
LIMIT, NOTEBOOK_LIMIT, MODEL_LIMIT = 20, 10, 200

# The red, grey and blue are visible on white and on black. Text has the notebook's colour. MathJax
# ignores the class tex2jax_ignore, so it does not typeset names in dollar signs.
_STYLE = """<style>
.chainer-profile{color:inherit;background:none;font-size:13px;line-height:1.45;max-width:76em}
.chainer-profile p{margin:.25em 0}
.chainer-profile ul{margin:.25em 0;padding-left:1.4em}
.chainer-profile .aside,.chainer-profile .caption{opacity:.75}
.chainer-profile .notice{border-left:3px solid #c98a00;padding-left:.6em}
.chainer-profile .properties{display:grid;grid-template-columns:repeat(auto-fill,minmax(30em,1fr));\
gap:0 1.6em;margin:.5em 0}
.chainer-profile .properties div{display:flex;justify-content:space-between;gap:1em;\
border-bottom:1px solid rgba(128,128,128,.3)}
.chainer-profile .properties dt,.chainer-profile .properties dd{margin:0;font-weight:inherit}
.chainer-profile .properties dd{text-align:right}
.chainer-profile .scroll{overflow-x:auto;max-height:36em;overflow-y:auto}
.chainer-profile table{border-collapse:collapse;border:0;margin:.4em 0;font-size:12px;color:inherit}
.chainer-profile tbody tr,.chainer-profile tbody tr:nth-child(n){background:none}
.chainer-profile th,.chainer-profile td{border:0;padding:.12em .7em .12em 0;text-align:right;\
vertical-align:top;white-space:nowrap;font-variant-numeric:tabular-nums;max-width:none}
.chainer-profile th{font-weight:600;vertical-align:bottom}
.chainer-profile thead tr{border-bottom:1px solid rgba(128,128,128,.6)}
.chainer-profile .text{text-align:left}
.chainer-profile .long{white-space:normal;overflow-wrap:anywhere;min-width:20em}
.chainer-profile .total td{font-weight:600}
.chainer-profile td.bar{width:6em;min-width:6em;vertical-align:middle}
.chainer-profile .bar i{display:block;height:.75em;min-width:1px;background:#8293a8}
.chainer-profile .hot .bar i{background:#cc3311}
.chainer-profile .slower td:first-child{box-shadow:inset 3px 0 #cc3311;padding-left:.7em}
.chainer-profile .faster td:first-child{box-shadow:inset 3px 0 #3f86c6;padding-left:.7em}
.chainer-profile pre{margin:0;padding-left:1.5em;background:none;color:inherit}
</style>"""


def recording_line(recording: Recording) -> str:
    """Format the ``repr``: ``<Recording of resnet20: 66 layers x 1,000 trials, ...>``."""
    settings = recording.settings
    parts = [
        f"{plural(len(recording.layers), 'layer')} x {plural(recording.n_trials, 'trial')}",
        trial_text(recording),
        batch_text(settings),
        printable(settings.device),
    ]
    if recording.ended != COMPLETE:
        parts.append(printable(recording.ended))
    return f"<Recording of {model_name(settings)}: {', '.join(filter(None, parts))}>"


def summary_line(summary: Summary) -> str:
    """Format the ``repr``: ``<Summary of resnet20: 6.722 ms a trial, 66 layers, ...>``."""
    layers = summary.layers
    hottest = layers.loc[layers["mean_s"].idxmax()]
    trial = summary.totals.trial
    parts = [
        f"{format_duration(trial.median_s)} a trial" if trial else "trials not timed",
        plural(len(layers), "layer"),
        f"slowest {printable(str(hottest['label']))} at {printable(str(hottest['path']))} "
        f"({format_percent(float(hottest['share']))})",
        plural(len(summary.findings), "finding"),
    ]
    return f"<Summary of {model_name(summary.recording.settings)}: {', '.join(parts)}>"


def comparison_line(comparison: Comparison) -> str:
    """Format the ``repr``: ``<Comparison of A with B: unprofiled trial 1.11x faster, ...>``."""
    from chainer_profile.report.content.comparison_words import change_text, counts_line

    parts = []
    if comparison.headline:
        total = comparison.totals.loc[comparison.headline]
        changed = change_text(float(total["ratio"]), str(total["verdict"]))
        parts.append(f"{comparison.headline} {changed}")
    parts.append(counts_line(comparison).removesuffix("."))
    names = [printable(side.name) for side in (comparison.before, comparison.after)]
    return f"<Comparison of {names[0]} with {names[1]}: {', '.join(parts)}>"


def summary_text(summary: Summary, *, width: int = WIDTH, **options: Any) -> str:
    """Format a first screen with all findings as text."""
    return terminal.written(_first_screen(summary, **options), width)


def summary_html(summary: Summary, **options: Any) -> str:
    """Format a first screen with all findings as an HTML fragment."""
    return _fragment(_first_screen(summary, **options))


def _first_screen(summary: Summary, **options: Any) -> Iterator[Block]:
    """The first screen; ``options`` are arguments of :class:`.TableOptions`."""
    from chainer_profile.report.content.first_screen import first_screen
    from chainer_profile.report.content.layer_section import TableOptions

    hint = "the Summary's tables have all"
    table_options = TableOptions(
        **{"limit": NOTEBOOK_LIMIT, "hint": hint, "in_python": True, **options}
    )
    tables = ["functions", "slowest"]
    if options:
        tables = ["tree" if options.get("tree") else "layers"]
    tables += ["groups"] if options.get("group_by") else []
    return first_screen(summary, None, table_options, tables=tables, every_finding=True)


def recording_html(recording: Recording) -> str:
    """Format the first screen of a recording as HTML; for one without trials, the reason."""
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.report.document import text
    from chainer_profile.report.text import interruption, run_lines

    try:
        return summary_html(summarise(recording))
    except ProfileError as error:
        lines = (*run_lines(recording), *interruption(recording), f"{error}.")
        return _fragment([text(line) for line in lines])


def comparison_text(comparison: Comparison) -> str:
    """Format a comparison as the terminal shows it, without colour."""
    from chainer_profile.report.content.comparison import comparison_blocks

    return terminal.written(comparison_blocks(comparison, limit=LIMIT), WIDTH)


def comparison_html(comparison: Comparison, *, limit: int | None = NOTEBOOK_LIMIT) -> str:
    """Format a comparison as an HTML fragment."""
    from chainer_profile.report.content.comparison import comparison_blocks

    return _fragment(comparison_blocks(comparison, limit=limit))


def model_text(summary: ModelSummary) -> str:
    """Format a network's table as the terminal shows it."""
    from chainer_profile.report.content.network import overview

    return terminal.written(overview(summary), None)


def model_html(summary: ModelSummary) -> str:
    """Format a network's table as an HTML fragment."""
    from chainer_profile.report.content.network import overview

    return _fragment(overview(summary, limit=MODEL_LIMIT, hint="print() shows all"))


def _fragment(blocks: Iterable[Block]) -> str:
    """Format blocks as HTML with its own style sheet, without scripts and requests.

    All text is escaped, and neither Markdown nor MathJax interprets it.
    """
    classes = "chainer-profile tex2jax_ignore mathjax_ignore"
    return f'<div class="{classes}">\n{_STYLE}\n{html.write(blocks, level=3)}\n</div>'
