"""Summary, comparison or network -> a piece of HTML for a notebook.

It brings its own style, takes the notebook's colours, and needs no script and no network. All that
comes from a recording is data: it is escaped, and no formula is made of it.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from chainer_profile.analyse.summary import WARNING
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_bare_percent,
    format_count,
    format_percent,
    format_shapes,
    plural,
)
from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.comparison.significance import FASTER, SLOWER
from chainer_profile.record.network import TEXTS
from chainer_profile.report import layer_columns
from chainer_profile.report.columns import (
    Column,
    group_columns,
    kind_columns,
    phase_columns,
    tree_columns,
)
from chainer_profile.report.content import comparison_text
from chainer_profile.report.content.device_section import device_rows, explained, pace
from chainer_profile.report.content.gpu_text import gpu_lines, on_gpu
from chainer_profile.report.content.memory_section import memory_sentences
from chainer_profile.report.rows import group_rows, phase_rows, phases_of, shortened, tree_rows
from chainer_profile.report.text import (
    Row,
    environment_lines,
    gaps,
    interruption,
    model_name,
    printable,
    settings_text,
    totals_rows,
    trial_text,
    trials_text,
)
from chainer_profile.report.writers import model_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.comparison.compare import Comparison, Side
    from chainer_profile.record.network import ModelSummary
    from chainer_profile.record.recording import Recording

#: Rows of a table of layers, where no other number is asked for.
LIMIT = 10
#: Rows of a network's table.
MODEL_LIMIT = 200
_KEYS = ("index", "path", "function", "phase", "output_shapes")
_TIMES = ("median", "ci", "mean", "p95", "host", "gap", "busy", "share")
#: Texts of more characters take several lines.
_LONG = 40
_BY = {"function": "function", "link": "link", "block": "block", "shape": "function and shape"}

# A red, and a grey and a blue that can be seen on white and on black. Words keep the notebook's own
# colour. MathJax passes over the classes below: a name in dollar signs is no formula.
_STYLE = """<style>
.chainer-profile{color:inherit;background:none;font-size:13px;line-height:1.45;max-width:76em}
.chainer-profile p{margin:.25em 0}
.chainer-profile ul{margin:.25em 0;padding-left:1.4em}
.chainer-profile .dim{opacity:.75}
.chainer-profile .totals{display:grid;grid-template-columns:repeat(auto-fill,minmax(30em,1fr));\
gap:0 1.6em;margin:.5em 0}
.chainer-profile .totals div{display:flex;justify-content:space-between;gap:1em;\
border-bottom:1px solid rgba(128,128,128,.3)}
.chainer-profile .totals span:last-child{text-align:right}
.chainer-profile .wide{overflow-x:auto;max-height:36em;overflow-y:auto}
.chainer-profile table{border-collapse:collapse;border:0;margin:.4em 0;font-size:12px;color:inherit}
.chainer-profile tbody tr,.chainer-profile tbody tr:nth-child(n){background:none}
.chainer-profile th,.chainer-profile td{border:0;padding:.12em .7em .12em 0;text-align:right;\
vertical-align:top;white-space:nowrap;font-variant-numeric:tabular-nums;max-width:none}
.chainer-profile th{font-weight:600;vertical-align:bottom}
.chainer-profile thead tr{border-bottom:1px solid rgba(128,128,128,.6)}
.chainer-profile .text{text-align:left}
.chainer-profile .long{white-space:normal;overflow-wrap:anywhere;min-width:20em}
.chainer-profile .strong td{font-weight:600}
.chainer-profile td.bar{width:6em;min-width:6em;padding-right:0;vertical-align:middle}
.chainer-profile .bar i{display:block;height:.75em;min-width:1px;background:#8293a8}
.chainer-profile .hot .bar i{background:#cc3311}
.chainer-profile .slower td:first-child{box-shadow:inset 3px 0 #cc3311}
.chainer-profile .faster td:first-child{box-shadow:inset 3px 0 #3f86c6}
.chainer-profile .marked td:first-child,.chainer-profile .marked th:first-child{padding-left:.7em}
.chainer-profile summary{cursor:pointer}
.chainer-profile pre{margin:0;padding-left:1.5em;background:none;color:inherit}
</style>"""


def summary_html(
    summary: Summary,
    *,
    limit: int | None = LIMIT,
    group_by: str | None = None,
    tree: bool = False,
    depth: int = DEFAULT_DEPTH,
) -> str:
    """What was run, its totals, hottest layers or links, groups, memory and findings.

    Args:
        summary: The summary of a run.
        limit: Rows of the layer table and of the groups at most; None for all.
        group_by: One of :data:`~.words.GROUPS`, for the table of groups, which is
            then unfolded; None for functions, folded.
        tree: Show the tree of links in place of the layers.
        depth: Levels of the tree below the network.
    """
    recording = summary.recording
    totals = totals_rows(summary.totals, on_device=recording.on_device)
    parts = [*_run(recording), _totals([*totals, *device_rows(summary)])]
    if summary.device is not None and summary.device.launch_bound:
        parts.append(f"<p><b>launch bound</b>: {_text(pace(summary.device))}</p>")
    if len(phases_of(summary)) > 1:
        phases = phase_rows(summary)
        parts.append(_table(phase_columns(), phases, strong=[row.whole for row in phases]))
    if summary.kinds:
        parts.append(_table(kind_columns(), summary.kinds))
    parts += _links(summary, depth) if tree else _layers(summary, limit)
    parts.append(_groups(summary, group_by or "function", limit, unfolded=group_by is not None))
    parts += [f"<p>{_text(sentence)}</p>" for sentence in memory_sentences(summary)]
    if summary.findings:
        parts.append("<ul>")
        for finding in summary.findings:
            name = f"<b>{_text(finding.severity)}</b>"
            name = name if finding.severity == WARNING else _text(finding.severity)
            parts.append(f"<li>{name}: {_text(finding.text)} {_text(finding.advice)}</li>")
        parts.append("</ul>")
    lines = [*environment_lines(recording.environment), *gpu_lines(recording)]
    if lines:
        parts.append(_folded("Environment", "".join(f"<p>{_text(line)}</p>" for line in lines)))
    return _fragment(parts)


def recording_html(recording: Recording) -> str:
    """The same of a recording, with the usual rule for hotspots; one without trials says so."""
    from chainer_profile.analyse.summaries import summarise

    try:
        return summary_html(summarise(recording))
    except ProfileError as error:
        said = str(error)
    return _fragment([*_run(recording), f"<p>{_text(said)}.</p>"])


def comparison_html(comparison: Comparison, *, limit: int | None = LIMIT) -> str:
    """What was compared, what else differs, the totals, and the layers that changed.

    Args:
        comparison: A comparison.
        limit: Rows of the layer table at most; None for all.
    """
    words = comparison_text
    parts = [
        f"<p>{_side('before', comparison.before)}<br>{_side('after', comparison.after)}</p>",
        f"<p>{_text(words.differences_line(comparison))}</p>",
        f"<p>{_text(words.machine_line(comparison))}</p>",
        *(f'<p class="dim">{_text(note)}</p>' for note in words.notes(comparison)),
    ]
    if len(comparison.totals):
        parts.append(_verdicts(words.total_columns(), comparison.totals))
    parts.append(f"<p><b>{_text(words.counts_line(comparison))}</b></p>")
    layers = words.shown_layers(comparison, sort="change", everything=False)
    shown = layers if limit is None else layers.head(limit)
    if len(shown):
        parts.append(_verdicts(words.layer_columns(comparison), shown))
    if hidden := words.hidden_line(len(layers) - len(shown), wide=False):
        parts.append(f"<p>{_text(hidden)}</p>")
    if len(shown):
        note = "Times are medians in ms; 95 % is the interval of the factor."
        parts.append(f'<p class="dim">{note}</p>')
    parts += [f"<p>{_text(line)}</p>" for line in words.unmatched_lines(comparison)]
    return _fragment(parts)


def model_html(summary: ModelSummary, *, limit: int | None = MODEL_LIMIT) -> str:
    """A network's layers, totals and estimated memory.

    Args:
        summary: What :func:`chainer_profile.analyse.summary` gives.
        limit: Rows at most; None for all.
    """
    pairs = zip(summary.input_shapes, summary.input_dtypes, strict=True)
    inputs = ", ".join(f"{format_shapes((shape,))} {dtype}" for shape, dtype in pairs)
    names = model_table.DEFAULTS[model_table.LAYERS]
    columns = [
        Column(name, _model_cell(name), folds=1 if name in TEXTS else None) for name in names
    ]
    table = summary.table if limit is None else summary.table.head(limit)
    parts = [
        f"<p>{_name(summary.name)} {_text(f'input {inputs}; one forward pass in test mode')}</p>",
        _totals([*model_table.totals_rows(summary), *model_table.memory_rows(summary)]),
        _table(columns, table.reset_index().to_dict("records")),
    ]
    if hidden := len(summary.table) - len(table):
        parts.append(f"<p>{plural(hidden, 'row')} not shown: print() shows all.</p>")
    parts += [f'<p class="dim">{_text(note)}</p>' for note in model_table.notes(summary)]
    return _fragment(parts)


# -- parts


def _run(recording: Recording) -> list[str]:
    """What was run, and what is missing."""
    settings = recording.settings
    about = f"{trials_text(recording)}; {plural(len(recording.layers), 'layer')}"
    sentences = [*interruption(recording), *gaps(recording)]
    return [
        f"<p>{_name(model_name(settings))} {_text(settings_text(settings))}<br>"
        f"trial: {_text(trial_text(recording))}<br>{_text(about)}</p>",
        *(f"<p><b>{_text(sentence)}</b></p>" for sentence in sentences),
    ]


def _layers(summary: Summary, limit: int | None) -> list[str]:
    """The slowest layers."""
    layers = summary.layers.sort_values("median_s", ascending=False, kind="stable")
    shown = layers if limit is None else layers.head(max(0, limit))
    rows = list(shown.itertuples())
    several = len(phases_of(summary)) > 1
    columns = [
        *layer_columns.columns(_KEYS, several_phases=several),
        *layer_columns.with_content(layer_columns.columns(_TIMES), rows),
    ]
    parts = [_table(columns, rows, shares=shown["share"].tolist(), hot=shown["hot"].tolist())]
    if hidden := len(layers) - len(shown):
        share = format_percent(float(layers["share"].iloc[len(shown) :].sum()))
        parts.append(f"<p>{plural(hidden, 'layer')} not shown: {share} of the layers' time.</p>")
    kind = "inclusive" if summary.recording.settings.inclusive else "self times"
    note = f"Red: {summary.hotspots.rule}. Times are {kind}{on_gpu(summary)}"
    note += f"; {layer_columns.interval_note(layers)}. "
    said = explained([column.name for column in columns])
    return [*parts, f'<p class="dim">{_text(note + said)}</p>']


def _links(summary: Summary, depth: int) -> list[str]:
    """The tree of links."""
    links, beside = tree_rows(summary, depth)
    rows = [*links, *beside]
    # HTML folds spaces at the begin of a cell. The bars stand in the place of the hot layers.
    first, *others, _ = tree_columns(phases_of(summary), rows, indent=True)
    columns = [replace(first, cell=lambda row: row.name), *others]
    table = _table(
        columns,
        rows,
        shares=[row.share for row in rows],
        hot=[row.marked for row in rows],
        strong=[row.share is None for row in rows],
        depths=[row.depth for row in rows],
    )
    note = (
        f"Red: {summary.hotspots.rule}, and not in a row below. Inclusive is a link with all links "
        "below it, exclusive the functions that it calls itself."
    )
    parts = [table, f'<p class="dim">{_text(note)}</p>']
    if hidden := int((summary.links["depth"] > depth).sum()):
        said = f"{plural(hidden, 'link')} below not shown; their times are in the rows above them."
        parts.insert(1, f"<p>{said}</p>")
    return parts


def _groups(summary: Summary, by: str, limit: int | None, *, unfolded: bool) -> str:
    rows = group_rows(summary, by)
    rows = rows if limit is None else shortened(rows, max(1, limit))
    table = _table(
        group_columns(by, phases_of(summary)),
        rows,
        shares=[row.share for row in rows],
        hot=[row.hot > 0 for row in rows],
    )
    return _folded(f"By {_BY.get(by, by)}", table, unfolded=unfolded)


def _side(which: str, side: Side) -> str:
    said = comparison_text.side_text(side)
    return f"<b>{which}</b> {_text(said.removeprefix(f'{which}: '))}"


def _model_cell(name: str) -> Any:
    def cell(row: dict[str, Any]) -> str:
        value = row[name]
        if isinstance(value, tuple):
            return format_shapes(value)
        if isinstance(value, str):
            return value or NOT_KNOWN
        return NOT_KNOWN if pd.isna(value) else format_count(int(value))

    return cell


# -- HTML


def _fragment(parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    classes = "chainer-profile tex2jax_ignore mathjax_ignore"
    return f'<div class="{classes}">\n{_STYLE}\n{body}\n</div>'


def _text(text: str) -> str:
    return escape(printable(text))


def _name(name: str) -> str:
    """A network's name, whose direction of writing is its own."""
    return f"<b><bdi>{_text(name)}</bdi></b>"


def _totals(rows: Sequence[Row]) -> str:
    known = (row for row in rows if row[1] != NOT_KNOWN)
    cells = (f"<div><span>{_text(n)}</span><span>{_text(v)}</span></div>" for n, v in known)
    return f'<div class="totals">{"".join(cells)}</div>'


def _folded(title: str, content: str, *, unfolded: bool = False) -> str:
    state = " open" if unfolded else ""
    return f"<details{state}><summary>{_text(title)}</summary>{content}</details>"


def _verdicts(columns: Sequence[Column], table: pd.DataFrame) -> str:
    """A table whose rows have verdicts."""
    marks = {SLOWER: "slower", FASTER: "faster"}
    classes = [marks.get(verdict, "") for verdict in table["verdict"]]
    rows = comparison_text.rows(table)
    return _table(columns, rows, classes=classes).replace("<table>", '<table class="marked">', 1)


def _table(
    columns: Sequence[Column],
    rows: Sequence[Any],
    *,
    shares: Sequence[float | None] | None = None,
    hot: Sequence[bool] = (),
    strong: Sequence[bool] = (),
    classes: Sequence[str] = (),
    depths: Sequence[int] = (),
) -> str:
    """A table: a bar for the share of every row where there are shares, the first cell indented."""
    heads = [_cell("th", column, _text(column.title or column.name)) for column in columns]
    largest = max((share for share in shares or () if share is not None), default=0.0)
    lines = [f"<thead><tr>{''.join(heads)}{'' if shares is None else '<th></th>'}</tr></thead>"]
    for at, row in enumerate(rows):
        names = [
            *(["hot"] if any(hot[at : at + 1]) else []),
            *(["strong"] if any(strong[at : at + 1]) else []),
            *filter(None, classes[at : at + 1]),
        ]
        cells = [_cell("td", column, _text(column.cell(row))) for column in columns]
        if depths and depths[at]:
            cells[0] = cells[0].replace(">", f' style="padding-left:{depths[at]}em">', 1)
        if shares is not None:
            cells.append(_bar(shares[at], largest))
        kind = f' class="{" ".join(names)}"' if names else ""
        lines.append(f"<tr{kind}>{''.join(cells)}</tr>")
    body = "\n".join(lines[1:])
    return f'<div class="wide"><table>{lines[0]}<tbody>\n{body}\n</tbody></table></div>'


def _cell(tag: str, column: Column, content: str) -> str:
    kind = ""
    if column.folds is not None:
        kind = ' class="text long"' if len(content) > _LONG else ' class="text"'
    return f"<{tag}{kind}>{content}</{tag}>"


def _bar(share: float | None, largest: float) -> str:
    """A bar as long as the share is to the largest one."""
    if share is None or not largest > 0:
        return '<td class="bar"></td>'
    return f'<td class="bar"><i style="width:{format_bare_percent(share / largest)}%"></i></td>'
