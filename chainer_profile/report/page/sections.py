"""Summary -> what the page's template shows: texts, tables and the charts' JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainer_profile.analyse.findings import NOTE, STEP, WARNING
from chainer_profile.analyse.roofline import has_plot
from chainer_profile.basics.units import (
    format_count,
    format_duration,
    format_percent,
    plural,
)
from chainer_profile.report.charts.bars import names_of
from chainer_profile.report.content.advice import section as tried
from chainer_profile.report.content.answer import answer
from chainer_profile.report.content.budget import section as program
from chainer_profile.report.content.counters_section import counters
from chainer_profile.report.content.device_section import device
from chainer_profile.report.content.gpu_text import gpu_rows, on_gpu
from chainer_profile.report.content.inside_section import inside
from chainer_profile.report.content.memory_section import memory
from chainer_profile.report.content.method import method_points
from chainer_profile.report.content.profile import experiment_rows, subject
from chainer_profile.report.content.result_section import (
    by_block,
    by_function,
    hotspots,
    kinds,
    phases,
)
from chainer_profile.report.content.totals import totals
from chainer_profile.report.content.work_section import work
from chainer_profile.report.document import points
from chainer_profile.report.page import boxes, charts, data
from chainer_profile.report.page.drawing import as_json
from chainer_profile.report.page.html import blocks
from chainer_profile.report.page.roofline_chart import roofline_chart
from chainer_profile.report.rows import has_blocks, phases_of
from chainer_profile.report.text import (
    environment_rows,
    printable,
    settings_text,
    versions,
)

if TYPE_CHECKING:
    from markupsafe import Markup

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.content.profile import Beside

_HOTTEST = 8


def context(summary: Summary, beside: Beside | None = None) -> dict[str, Any]:
    """Everything that the template of a run names."""
    recording = summary.recording
    advice, budget = (None, None) if beside is None else (beside.advice, beside.budget)
    drawn = _charts(summary)
    links = data.link_table(summary)
    layers = data.layer_table(summary)
    return {
        "title": subject(summary, budget),
        "subtitle": settings_text(recording.settings),
        "kind": "Layer-wise profile",
        "first": "summary",
        "program": blocks(program(budget, summary)) if budget is not None else "",
        "budget": boxes.budget(budget) if budget is not None else "",
        "answer": blocks(answer(summary, advice)),
        "doubtful": any(finding.severity == WARNING for finding in summary.findings),
        "parts": boxes.parts(summary),
        "timeline": boxes.timeline(summary),
        "icicles": boxes.icicles(summary),
        "phases": phases_of(summary),
        "cards": totals(summary),
        "hottest": _hottest(summary),
        "hotspots": blocks(hotspots(summary)),
        "rule": printable(str(summary.hotspots.rule)),
        "n_hot": format_count(len(summary.hotspots.indices)),
        "findings": [
            (finding.severity, printable(finding.said(full=True)))
            for finding in summary.findings
            if finding.severity == NOTE
        ],
        "steps": [
            printable(finding.said(full=True))
            for finding in summary.findings
            if finding.severity == STEP
        ],
        "tried": blocks(tried(advice)) if advice is not None else "",
        "settings": experiment_rows(summary),
        "environment": environment_rows(recording.environment) + gpu_rows(recording),
        "method": blocks([points(method_points(summary))]),
        "layers": plural(len(summary.layers), "layer"),
        "on_gpu": on_gpu(summary),
        "strip": len(summary.layers) > charts.MAX_AT_ONCE,
        "kinds": blocks(kinds(summary)),
        "groups": _groups(summary),
        "views": _views(summary),
        "device": blocks(device(summary)),
        "work": blocks(work(summary)),
        "has_roofline": "roofline" in drawn,
        "counters": blocks(counters(summary)),
        "inside": blocks(inside(summary)),
        "memory": blocks(memory(summary)),
        "memory_parts": boxes.memory(summary),
        "has_memory": "memory" in drawn,
        "link_count": 0 if links is None else links["count"],
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


def _hottest(summary: Summary) -> list[dict[str, Any]]:
    layers = summary.layers.sort_values("typical_s", ascending=False, kind="stable").head(_HOTTEST)
    most = float(layers["share"].max()) or 1.0
    names = names_of(summary)
    several = len(phases_of(summary)) > 1
    return [
        {
            "index": int(row.Index),
            "name": names[int(row.Index)],
            "label": printable(row.label),
            "phase": printable(row.phase) if several else "",
            "time": format_duration(row.typical_s),
            "share": format_percent(row.share),
            "width": round(100 * row.share / most, 1),
            "hot": bool(row.hot),
        }
        for row in layers.itertuples()
    ]


def _groups(summary: Summary) -> list[tuple[str, Markup]]:
    """The tables by phase, function and block."""
    sections = {
        "By phase": phases(summary),
        "By function": by_function(summary),
        "By block": by_block(summary),
    }
    made = {name: blocks(found) for name, found in sections.items()}
    return [(name, found) for name, found in made.items() if found]


def _glossary(layers: dict[str, Any]) -> list[tuple[str, str]]:
    """The columns of the table of layers that are there."""
    return [(column["title"], column["meaning"]) for column in layers["columns"]]
