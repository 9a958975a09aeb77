"""Summary -> what the page's template shows: texts, tables and the charts' JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainer_profile.analyse.roofline import has_plot
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_duration,
    format_percent,
    plural,
)
from chainer_profile.report.columns import group_columns, phase_columns
from chainer_profile.report.content.device_section import device
from chainer_profile.report.content.engines_text import node_columns
from chainer_profile.report.content.gpu_text import gpu_rows, on_gpu, option_rows
from chainer_profile.report.content.memory_section import memory
from chainer_profile.report.content.method import method_points
from chainer_profile.report.content.next_steps import next_steps
from chainer_profile.report.content.result_section import MAX_GROUPS, hotspots, kinds
from chainer_profile.report.content.work_section import work
from chainer_profile.report.page import charts, comparing, data
from chainer_profile.report.page.drawing import as_json
from chainer_profile.report.page.html import blocks, inline
from chainer_profile.report.page.roofline_chart import roofline_chart
from chainer_profile.report.rows import group_rows, has_blocks, phase_rows, phases_of, shortened
from chainer_profile.report.text import (
    environment_rows,
    gaps,
    input_text,
    interruption,
    mode_text,
    model_name,
    printable,
    settings_text,
    totals_rows,
    trial_text,
    trials_text,
    versions,
    weights_text,
)
from chainer_profile.report.writers.comparison_markdown import render as comparison_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from markupsafe import Markup

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.comparison.compare import Comparison
    from chainer_profile.report.columns import Column
    from chainer_profile.report.page.engines import Engines

_HOTTEST = 8
#: Rows of a comparison's table of layers.
_MAX_CHANGED = 60


@dataclass(frozen=True)
class Table:
    """A small table: headings, for each column whether it is text, rows, and which are bold."""

    head: tuple[str, ...]
    is_text: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: tuple[bool, ...] = ()


def context(
    summary: Summary, engines: Engines | None, comparisons: Sequence[Comparison]
) -> dict[str, Any]:
    """Everything that the template names.

    Args:
        summary: The summary of a run.
        engines: Other engines that ran the same network, if any.
        comparisons: Comparisons of runs, if any.
    """
    recording = summary.recording
    drawn = _charts(summary)
    compared = []
    for place, comparison in enumerate(comparisons):
        chart = comparing.comparison_chart(comparison)
        if chart is not None:
            drawn[f"comparison{place}"] = chart
        compared.append(
            {
                "before": printable(comparison.before.name),
                "after": printable(comparison.after.name),
                "text": _comparison(comparison),
                "chart": None if chart is None else f"comparison{place}",
            }
        )
    if engines is not None and engines.rows:
        drawn["engines"] = comparing.engines_chart(engines)
    links = data.link_table(summary)
    layers = data.layer_table(summary)
    return {
        "title": model_name(recording.settings),
        "subtitle": settings_text(recording.settings),
        "notices": [*interruption(recording), *gaps(recording)],
        "cards": _cards(summary),
        "hottest": _hottest(summary),
        "hotspots": blocks(hotspots(summary)),
        "rule": printable(str(summary.hotspots.rule)),
        "n_hot": format_count(len(summary.hotspots.indices)),
        "findings": [
            (finding.severity, f"{printable(finding.text)} {printable(finding.advice)}")
            for finding in summary.findings
        ],
        "steps": [printable(sentence) for sentence in next_steps(summary)],
        "settings": _settings(summary),
        "environment": environment_rows(recording.environment) + gpu_rows(recording),
        "method": [inline(point) for point in method_points(summary)],
        "layers": plural(len(summary.layers), "layer"),
        "on_gpu": on_gpu(summary),
        "strip": len(summary.layers) > charts.MAX_AT_ONCE,
        "kinds": blocks(kinds(summary)),
        "groups": _groups(summary),
        "views": _views(summary),
        "device": blocks(device(summary)),
        "work": blocks(work(summary, "")),
        "has_roofline": "roofline" in drawn,
        "memory": blocks(memory(summary)),
        "has_memory": "memory" in drawn,
        "link_count": 0 if links is None else links["count"],
        "engines": None if engines is None else _engines(engines),
        "comparisons": compared,
        "glossary": _glossary(layers),
        "command": printable(recording.settings.command),
        "versions": ", ".join(versions(recording.environment)),
        "charts": {name: data.to_json(as_json(chart, name)) for name, chart in drawn.items()},
        "data": data.to_json({"layers": layers, "links": links, "samples": data.samples(summary)}),
    }


def _charts(summary: Summary) -> dict[str, Any]:
    histogram, course = charts.distribution_charts()
    drawn: dict[str, Any] = {"layers": charts.layer_chart(summary)}
    for by, _ in _views(summary):
        drawn[by] = charts.group_chart(summary, by)
    drawn |= {"histogram": histogram, "course": course}
    if has_plot(summary.recording, summary.layers):
        drawn["roofline"] = roofline_chart(summary)
    if summary.recording.memory is not None:
        drawn["memory"] = charts.memory_chart(summary)
    return drawn


def _views(summary: Summary) -> list[tuple[str, str]]:
    """What the layers can be added up by, and the word for it."""
    views = [("block", "Block")] if has_blocks(summary) else []
    views.append(("function", "Function"))
    if len(phases_of(summary)) > 1:
        views.append(("phase", "Phase"))
    return views


def _cards(summary: Summary) -> list[tuple[str, str, str]]:
    """The times of a whole trial: what, its value, and what is to be said beside it."""
    rows = totals_rows(summary.totals, on_device=summary.recording.on_device)
    cards = []
    for name, value in rows:
        if value != NOT_KNOWN:
            figure, _, more = value.partition(" (")
            cards.append((name, figure, more.removesuffix(")")))
    return cards


def _hottest(summary: Summary) -> list[dict[str, Any]]:
    layers = summary.layers.sort_values("median_s", ascending=False, kind="stable").head(_HOTTEST)
    most = float(layers["share"].max()) or 1.0
    several = len(phases_of(summary)) > 1
    return [
        {
            "index": int(row.Index),
            "label": printable(row.label),
            "path": printable(row.path),
            "phase": printable(row.phase) if several else "",
            "time": format_duration(row.median_s),
            "share": format_percent(row.share),
            "width": round(100 * row.share / most, 1),
            "hot": bool(row.hot),
        }
        for row in layers.itertuples()
    ]


def _settings(summary: Summary) -> list[tuple[str, str]]:
    recording = summary.recording
    settings = recording.settings
    rows = [
        ("Network", f"{model_name(settings)}, {weights_text(settings)}"),
        ("Engine", " ".join(filter(None, (settings.engine, settings.precision)))),
        ("Trial", trial_text(recording)),
        ("Layers", format_count(len(summary.layers))),
        ("Input", input_text(settings)),
        ("Batch", plural(settings.batchsize, "image")),
        ("Device", settings.device),
        ("Mode", mode_text(settings)),
        *option_rows(settings),
        ("Trials", trials_text(recording)),
    ]
    return [(name, printable(value)) for name, value in rows if value]


def _groups(summary: Summary) -> list[tuple[str, Table]]:
    """The tables by phase, block and function."""
    phases = phases_of(summary)
    tables = []
    if len(phases) > 1:
        rows = phase_rows(summary)
        tables.append(("By phase", _table(phase_columns(), rows, [row.whole for row in rows])))
    for by, title in (("function", "By function"), ("block", "By block")):
        if by == "function" or has_blocks(summary):
            found = shortened(group_rows(summary, by), MAX_GROUPS)
            tables.append((title, _table(group_columns(by, phases), found)))
    return tables


def _table(columns: Sequence[Column], rows: Iterable[object], bold: Sequence[bool] = ()) -> Table:
    return Table(
        tuple(column.title or column.name for column in columns),
        tuple(column.folds is not None for column in columns),
        tuple(tuple(column.cell(row) for column in columns) for row in rows),
        tuple(bold),
    )


def _comparison(comparison: Comparison) -> Markup:
    text = comparison_markdown([comparison], plots=[""], limit=_MAX_CHANGED)
    return blocks(text.split("\n\n"))


def _engines(engines: Engines) -> dict[str, Any]:
    head = ("engine", "precision", "median", "mean", "95th percentile", "speed", "outputs", "")
    rows = tuple(
        (
            " ".join(filter(None, (printable(row.name), printable(row.version)))),
            printable(row.precision),
            format_duration(row.median_s),
            format_duration(row.mean_s),
            format_duration(row.p95_s),
            printable(row.speedup),
            printable(row.difference),
            printable(row.note),
        )
        for row in engines.rows
    )
    shown = [at for at in range(len(head)) if any(row[at] for row in rows)]
    table = Table(
        tuple(head[at] for at in shown),
        tuple(at in (0, 1, 6, 7) for at in shown),
        tuple(tuple(row[at] for at in shown) for row in rows),
    )
    functions = comparing.by_time(engines)
    return {
        "table": table,
        "notes": [printable(note) for note in engines.notes],
        "steps": [printable(step) for step in engines.steps],
        "nodes": [
            {
                "name": printable(one.name),
                "text": printable(one.text),
                "table": _table(node_columns(), one.rows),
            }
            for one in engines.nodes
        ],
        "functions": [printable(name) for name in functions[: comparing.MAX_FUNCTIONS]],
        "others": len(functions) > comparing.MAX_FUNCTIONS,
    }


def _glossary(layers: dict[str, Any]) -> list[tuple[str, str]]:
    """The columns of the table of layers that are there."""
    return [(column["title"], column["meaning"]) for column in layers["columns"]]
