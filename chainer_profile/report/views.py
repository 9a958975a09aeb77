"""Views of recordings, summaries, comparisons and networks, at a prompt and in a notebook."""

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

#: Characters of a line where there is no terminal that says how many.
WIDTH = 110
#: Rows of a table at most: at a prompt, in a notebook, and of a network's table.
LIMIT, NOTEBOOK_LIMIT, MODEL_LIMIT = 20, 10, 200

# A red, and a grey and a blue that can be seen on white and on black. Words keep the notebook's own
# colour. MathJax passes over the classes below: a name in dollar signs is no formula.
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
    """A recording in short: ``<Recording of resnet20: 66 layers x 1,000 trials, ...>``."""
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
    """A summary in short: ``<Summary of resnet20: 6.722 ms a trial, 66 layers, ...>``."""
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
    """A comparison in short: ``<Comparison of A with B: unprofiled trial 1.11x faster, ...>``.

    Verdicts are those of the comparison.
    """
    from chainer_profile.report.content.comparison_words import change, counts_line

    parts = []
    if comparison.headline:
        total = comparison.totals.loc[comparison.headline]
        changed = change(float(total["ratio"]), str(total["verdict"]))
        parts.append(f"{comparison.headline} {changed}")
    parts.append(counts_line(comparison).removesuffix("."))
    names = [printable(side.name) for side in (comparison.before, comparison.after)]
    return f"<Comparison of {names[0]} with {names[1]}: {', '.join(parts)}>"


def summary_text(summary: Summary, *, width: int = WIDTH, **shown: Any) -> str:
    """A first screen as text: the answer, the hottest layers, all findings."""
    return terminal.written(_first_screen(summary, **shown), width)


def summary_html(summary: Summary, **shown: Any) -> str:
    """The same as a piece of HTML."""
    return _fragment(_first_screen(summary, **shown))


def _first_screen(summary: Summary, **shown: Any) -> Iterator[Block]:
    from chainer_profile.report.content.first_screen import first_screen
    from chainer_profile.report.content.layer_section import Shown

    hint = "the Summary's tables have all"
    choices = Shown(**{"limit": NOTEBOOK_LIMIT, "hint": hint, "in_python": True, **shown})
    tables = ["tree" if shown.get("tree") else "layers"] if shown else ["functions", "slowest"]
    tables += ["groups"] if shown.get("group_by") else []
    return first_screen(summary, None, choices, tables=tables, every_finding=True)


def recording_html(recording: Recording) -> str:
    """The same of a recording, with the usual rule for hotspots; one without trials says so."""
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.report.document import text
    from chainer_profile.report.text import interruption, run_lines

    try:
        return summary_html(summarise(recording))
    except ProfileError as error:
        lines = (*run_lines(recording), *interruption(recording), f"{error}.")
        return _fragment([text(line) for line in lines])


def comparison_text(comparison: Comparison) -> str:
    """A comparison as the terminal shows it, in the same way."""
    from chainer_profile.report.content.comparison import compared

    return terminal.written(compared(comparison, limit=LIMIT), WIDTH)


def comparison_html(comparison: Comparison, *, limit: int | None = NOTEBOOK_LIMIT) -> str:
    """The same as a piece of HTML."""
    from chainer_profile.report.content.comparison import compared

    return _fragment(compared(comparison, limit=limit))


def model_text(summary: ModelSummary) -> str:
    """A network as the terminal shows it."""
    from chainer_profile.report.content.network import overview

    return terminal.written(overview(summary), None)


def model_html(summary: ModelSummary) -> str:
    """The same as a piece of HTML."""
    from chainer_profile.report.content.network import overview

    return _fragment(overview(summary, limit=MODEL_LIMIT, hint="print() shows all"))


def _fragment(blocks: Iterable[Block]) -> str:
    """Blocks with a style of their own, which takes the notebook's colours; no script, no network.

    All that comes from a recording is data: it is escaped, and no formula is made of it.
    """
    classes = "chainer-profile tex2jax_ignore mathjax_ignore"
    return f'<div class="{classes}">\n{_STYLE}\n{html.write(blocks, level=3)}\n</div>'
