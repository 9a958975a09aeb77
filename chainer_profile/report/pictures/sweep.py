"""Results of a sweep -> plots: latency by network, latency and throughput by batch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from chainer_profile.analyse.case_result import CaseResult, several_machines
from chainer_profile.basics import units
from chainer_profile.report.pictures import figures
from chainer_profile.report.text import printable, shorten

# By Okabe and Ito, for colour-blind readers; in an order that differs in lightness too.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#777777", "#222222")
_MARKERS = "osD^vP*X"
_MAX_PANELS = 8
_MAX_SERIES = len(_COLOURS)
_MAX_NAME = 28
_PANEL_HEIGHT = 2.7
_BATCH_WIDTH = 9.6
_MIN_WIDTH, _MAX_WIDTH = 6.4, 20.0
#: A case is noisy whose standard deviation is a larger part of its median.
_NOISY = 0.2
#: Bars with more series than this carry no numbers.
_MAX_NUMBERED = 4


def pictures(results: Sequence[CaseResult]) -> dict[str, figures.Picture]:
    """The plots that these results have, by their files."""
    good = [result for result in results if not math.isnan(result.median_s)]
    plots = {}
    if good:
        plots["latency-by-network.png"] = figures.Picture(lambda: latency_figure(good))
    if batch_series(good):
        plots["by-batch-size.png"] = figures.Picture(lambda: batch_figure(good))
    return plots


#: Parts of a case's name, and how each is written.
_PARTS: dict[str, Callable[[CaseResult], str]] = {
    "batch": lambda run: f"batch {units.format_count(run.settings.batchsize)}",
    "input": lambda run: f"input {run.input_text}",
    "network": lambda run: printable(run.settings.model),
    "phase": lambda run: run.settings.phase,
    "device": lambda run: run.settings.device,
    "dtype": lambda run: run.settings.dtype,
    "threads": lambda run: units.plural(n, "thread") if (n := run.settings.threads) else "",
    "seed": lambda run: f"seed {run.settings.seed}",
    "trials": lambda run: units.plural(run.settings.trials, "trial"),
    "machine": lambda run: printable(run.machine),
}


def _named(
    results: Sequence[CaseResult], parts: Sequence[str]
) -> list[tuple[str, list[CaseResult]]]:
    """Results grouped by those of these parts in which they differ, with a name for each group."""
    differing = [part for part in parts if _differ(results, part)]
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        texts = (_PARTS[part](result) for part in differing)
        groups.setdefault(", ".join(filter(None, texts)), []).append(result)
    return list(groups.items())


def _differ(results: Sequence[CaseResult], part: str) -> bool:
    return len(set(map(_PARTS[part], results))) > 1


def _others(results: Sequence[CaseResult]) -> list[str]:
    machine = ["machine"] if several_machines(results) else []
    return ["device", "dtype", "threads", "seed", "trials", *machine]


def _networks(results: Sequence[CaseResult]) -> list[str]:
    return list(dict.fromkeys(result.settings.model for result in results))


@figures.drawing()
def latency_figure(results: Sequence[CaseResult]) -> Figure:
    """Grouped bars: median latency by network, with whiskers of one standard deviation.

    Every input and phase has a panel of its own, since their times differ by far.
    """
    panels = _named(results, ("input", "phase"))
    shown = panels[:_MAX_PANELS]
    # A part that differs between panels alone has no colour.
    parts = ("batch", *_others(results))
    differing = [part for part in parts if any(_differ(group, part) for _, group in panels)]
    every_series = _named(results, differing)
    series = every_series[:_MAX_SERIES]
    networks = max((_networks(group) for _, group in shown), key=len)
    width = min(_MAX_WIDTH, max(_MIN_WIDTH, 1.2 + 0.3 * len(networks) * (len(series) + 1)))
    fig = figures.blank(width, 1.1 + _PANEL_HEIGHT * len(shown))
    axes = fig.subplots(len(shown), squeeze=False)[:, 0]
    for ax, (name, group) in zip(axes, shown, strict=True):
        _draw_panel(ax, name or f"input {group[0].input_text}", group, series)
    left_out = len(panels) - len(shown) + len(every_series) - len(series)
    _title(fig, "Latency by network, median and standard deviation", results, left_out)
    if len(series) > 1:
        _legend(fig, series, [Patch(facecolor=colour) for colour in _COLOURS])
    return fig


def _draw_panel(
    ax: Axes, name: str, group: list[CaseResult], series: list[tuple[str, list[CaseResult]]]
) -> None:
    networks = _networks(group)
    wide = 0.8 / len(series)
    top = 0.0
    for at, (_, of_series) in enumerate(series):
        members = [result for result in group if result in of_series]
        x = np.array([networks.index(result.settings.model) for result in members], float)
        x += (at - (len(series) - 1) / 2) * wide
        typical = np.array([result.median_s * 1e3 for result in members])
        std = np.array([result.std_s * 1e3 for result in members])
        ax.bar(x, typical, width=wide * 0.92, color=_COLOURS[at])
        finite = np.isfinite(std)
        _whiskers(ax, x[finite], typical[finite], std[finite], fmt="none", ecolor=figures.INK)
        reach = typical + np.where(finite, std, 0)
        top = max(top, float(reach.max(initial=0)))
        for place, height, value, result in zip(x, reach, typical, members, strict=True):
            mark = "*" if _noisy(result) else ""
            if mark or len(series) <= _MAX_NUMBERED:
                number = units.format_significant(value, 3) if len(series) <= _MAX_NUMBERED else ""
                ax.annotate(
                    f"{number}{mark}",
                    (place, height),
                    (0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=figures.TEXT - 2,
                )
    ax.set_ylim(0, (top or 1.0) * 1.14)
    names = [shorten(printable(network), _MAX_NAME) for network in networks]
    turned = sum(map(len, names)) > 70
    ax.set_xticks(
        range(len(networks)),
        names,
        rotation=30 if turned else 0,
        ha="right" if turned else "center",
        parse_math=False,
    )
    ax.set_xlim(-0.6, len(networks) - 0.4)
    ax.set_ylabel("latency [ms]")
    ax.set_title(name, fontsize=figures.TEXT, loc="left", parse_math=False)
    figures.plain_axes(ax, "y")
    ax.tick_params(axis="x", length=0)


def batch_series(results: Sequence[CaseResult]) -> list[tuple[str, list[CaseResult]]]:
    """Cases that differ in their batch size only, from small to large; two of them at least."""
    groups = _named(results, ("network", "input", "phase", *_others(results)))
    by_size = attrgetter("settings.batchsize")
    ordered = ((name, sorted(group, key=by_size)) for name, group in groups)
    return [(name, group) for name, group in ordered if len(set(map(by_size, group))) > 1]


@figures.drawing()
def batch_figure(results: Sequence[CaseResult]) -> Figure:
    """Two panels: latency with its standard deviation, and inputs a second, by batch size."""
    series = batch_series(results)
    shown = series[:_MAX_SERIES]
    height = 4.1 + 0.18 * -(-len(shown) // _legend_columns(shown, _BATCH_WIDTH))
    fig = figures.blank(_BATCH_WIDTH, height)
    left, right = fig.subplots(1, 2)
    handles: list[Any] = []
    for at, (_, group) in enumerate(shown):
        batch = [result.settings.batchsize for result in group]
        typical = np.array([result.median_s * 1e3 for result in group])
        std = np.nan_to_num([result.std_s * 1e3 for result in group])
        style: dict[str, Any] = {"color": _COLOURS[at], "marker": _MARKERS[at]}
        style |= {"markersize": 4, "linewidth": 1.2}
        _whiskers(left, batch, typical, std, **style)
        right.plot(batch, [result.fps for result in group], **style)
        handles.append(Line2D([], [], **style))
    sizes = sorted({r.settings.batchsize for _, group in shown for r in group})
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(_apart(sizes), list(map(units.format_count, _apart(sizes))))
        ax.minorticks_off()
        ax.set_xlabel("batch size")
        figures.plain_axes(ax, "y")
    left.set_ylabel("latency [ms]")
    right.set_ylabel("throughput [inputs/s]")
    right.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for ax in (left, right):
        ax.set_ylim(bottom=0)
    _title(fig, "Latency and throughput by batch size", results, len(series) - len(shown))
    if len(shown) > 1 or shown[0][0]:
        _legend(fig, shown, handles)
    return fig


def _whiskers(ax: Axes, x: Any, typical: Any, std: Any, **style: Any) -> None:
    """Whiskers of one standard deviation, which do not go below 0."""
    low = np.minimum(std, typical)
    ax.errorbar(x, typical, yerr=np.vstack([low, std]), elinewidth=0.8, capsize=2.5, **style)


def _apart(sizes: Sequence[int]) -> list[int]:
    """Batch sizes to name on a logarithmic axis: not nearer than a part of its length."""
    least = math.log2(sizes[-1] / sizes[0]) / 12 if len(sizes) > 1 else 0.0
    kept: list[int] = []
    for size in sizes:
        if not kept or math.log2(size / kept[-1]) >= least:
            kept.append(size)
    return kept


def _title(fig: Figure, title: str, results: Sequence[CaseResult], left_out: int) -> None:
    devices = dict.fromkeys(case.processor or case.settings.device for case in results)
    where = shorten(", ".join(map(printable, devices)), int(fig.get_figwidth() * 12))
    lines = [title, where, _run(results)]
    if any(map(_noisy, results)):
        lines.append(f"* noisy: the standard deviation is above {_NOISY:.0%} of the median")
    if several_machines(results):
        lines.append("from several machines: compare with care")
    if left_out:
        lines.append(f"{units.format_count(left_out)} more not drawn")
    figures.entitle(fig, "\n".join(lines), figures.TEXT + 0.5)


def _run(results: Sequence[CaseResult]) -> str:
    """Phase, trials and threads of the cases, with all values of those that differ."""
    settings = [result.settings for result in results]
    trials = sorted({result.timed for result in results})
    threads = sorted({n for result in results if (n := result.threads) is not None})
    parts = [
        " and ".join(dict.fromkeys(printable(asked.phase) for asked in settings)),
        f"{_range(trials)} trials",
        f"{_range(threads)} BLAS thread{'' if threads == [1] else 's'}" if threads else "",
    ]
    return ", ".join(filter(None, parts))


def _range(numbers: Sequence[int]) -> str:
    if len(numbers) < 2:
        return "".join(map(units.format_count, numbers))
    return f"{units.format_count(numbers[0])} to {units.format_count(numbers[-1])}"


def _noisy(result: CaseResult) -> bool:
    return bool(result.std_s > _NOISY * result.median_s)


def _legend(
    fig: Figure, series: Sequence[tuple[str, list[CaseResult]]], handles: Sequence[Any]
) -> None:
    entries = zip(map(_label, series), handles, strict=False)
    figures.legend_below(fig, entries, _legend_columns(series, fig.get_figwidth()))


def _label(series: tuple[str, list[CaseResult]]) -> str:
    return shorten(series[0], 60) or "all"


def _legend_columns(series: Sequence[tuple[str, list[CaseResult]]], width: float) -> int:
    """How many entries of a legend a line has, in a figure of so many inches."""
    longest = max(len(_label(named)) for named in series)
    return max(1, min(len(series), int(width * 13 / (longest + 6))))
