"""Results of a sweep -> plots: latency by network, latency and throughput by batch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from chainer_profile.analyse.case_result import CaseResult, several_machines
from chainer_profile.basics import units
from chainer_profile.report.pictures import figures
from chainer_profile.report.text import ends_text, printable, shorten

# Okabe and Ito's palette for colour-blind readers. Successive colours also differ in lightness.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#777777", "#222222")
_MARKERS = "osD^vP*X"
_MAX_PANELS = 8
_MAX_SERIES = len(_COLOURS)
_MAX_NAME = 28
_PANEL_HEIGHT = 2.7
_BATCH_WIDTH = 9.6
_MIN_WIDTH, _MAX_WIDTH = 6.4, 20.0
#: A case is noisy if its standard deviation is above this fraction of its median.
_NOISY = 0.2
#: With more series than this, bars have no numbers.
_MAX_NUMBERED = 4

#: Style of whiskers of one standard deviation.
_WHISKERS: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2.5}

#: Results by group name.
Groups = dict[str, list[CaseResult]]
FloatArray = NDArray[np.float64]


def pictures(results: Sequence[CaseResult]) -> dict[str, figures.Picture]:
    """The plots of a sweep by file name; only of cases with times."""
    good = [result for result in results if not math.isnan(result.median_s)]
    plots = {}
    if good:
        plots["latency-by-network.png"] = figures.Picture(lambda: latency_figure(good))
    if batch_series(good):
        plots["by-batch-size.png"] = figures.Picture(lambda: batch_figure(good))
    return plots


#: The properties by which cases are grouped, and the function that formats each.
_PROPERTIES: dict[str, Callable[[CaseResult], str]] = {
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


#: All other properties than network, input, phase and batch size.
_OTHERS = ("device", "dtype", "threads", "seed", "trials", "machine")


def _differ(results: Sequence[CaseResult], key: str) -> bool:
    return len(set(map(_PROPERTIES[key], results))) > 1


def _group(results: Sequence[CaseResult], keys: Iterable[str]) -> Groups:
    """Group results by those properties of ``keys`` in which they differ, which name the groups."""
    differing = [key for key in keys if _differ(results, key)]
    groups: Groups = {}
    for result in results:
        texts = (_PROPERTIES[key](result) for key in differing)
        groups.setdefault(", ".join(filter(None, texts)), []).append(result)
    return groups


def _networks(results: Sequence[CaseResult]) -> list[str]:
    return list(dict.fromkeys(result.settings.model for result in results))


@figures.drawing()
def latency_figure(results: Sequence[CaseResult]) -> Figure:
    """Draw the median latency of each network as grouped bars, with one standard deviation.

    Each combination of input and phase has its own panel, because their times differ by far.
    """
    panels = _group(results, ("input", "phase"))
    drawn = _first(panels, _MAX_PANELS)
    # A property that is constant within each panel has no colour.
    keys = ("batch", *_OTHERS)
    differing = [key for key in keys if any(_differ(group, key) for group in panels.values())]
    all_series = _group(results, differing)
    series = _first(all_series, _MAX_SERIES)
    max_networks = max(len(_networks(group)) for group in drawn.values())
    width = min(_MAX_WIDTH, max(_MIN_WIDTH, 1.2 + 0.3 * max_networks * (len(series) + 1)))
    fig = figures.blank(width, 1.1 + _PANEL_HEIGHT * len(drawn))
    axes = fig.subplots(len(drawn), squeeze=False)[:, 0]
    for ax, (name, group) in zip(axes, drawn.items(), strict=True):
        _draw_panel(ax, group, series)
        title = name or f"input {group[0].input_text}"
        ax.set_title(title, fontsize=figures.TEXT, loc="left", parse_math=False)
    left_out = len(panels) - len(drawn) + len(all_series) - len(series)
    _title(fig, "Latency by network, median and standard deviation", results, left_out)
    if len(series) > 1:
        _legend(fig, series, [Patch(facecolor=colour) for colour in _COLOURS])
    return fig


def _first(groups: Groups, count: int) -> Groups:
    return dict(islice(groups.items(), count))


def _times_ms(results: Sequence[CaseResult]) -> tuple[FloatArray, FloatArray]:
    """Medians and standard deviations in ms; an unknown standard deviation is NaN."""
    medians, stds = ([getattr(run, name) for run in results] for name in ("median_s", "std_s"))
    return 1e3 * np.array(medians), 1e3 * np.array(stds)


def _draw_panel(ax: Axes, group: list[CaseResult], series: Groups) -> None:
    networks = _networks(group)
    bar_width = 0.8 / len(series)
    with_numbers = len(series) <= _MAX_NUMBERED
    top = 0.0
    for index, series_results in enumerate(series.values()):
        members = [result for result in group if result in series_results]
        x = np.array([networks.index(result.settings.model) for result in members], float)
        x += (index - (len(series) - 1) / 2) * bar_width
        median, std = _times_ms(members)
        ax.bar(x, median, width=bar_width * 0.92, color=_COLOURS[index])
        ax.errorbar(x, median, yerr=std, fmt="none", ecolor=figures.INK, **_WHISKERS)
        tops = median + np.nan_to_num(std)
        top = max(top, float(tops.max(initial=0)))
        for text_x, text_y, value, result in zip(x, tops, median, members, strict=True):
            number = units.format_significant(value, 3) if with_numbers else ""
            text = number + "*" * _noisy(result)
            ax.annotate(text, (text_x, text_y), (0, 2), fontsize=figures.TEXT - 2, **figures.ABOVE)
    ax.set_ylim(0, (top or 1.0) * 1.14)
    names = [shorten(printable(network), _MAX_NAME) for network in networks]
    many = sum(map(len, names)) > 70
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if many else {}
    ax.set_xticks(range(len(names)), names, parse_math=False, **turned)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylabel("latency [ms]")
    ax.grid(axis="y")
    ax.tick_params(axis="x", length=0)


def batch_series(results: Sequence[CaseResult]) -> Groups:
    """Groups of at least two cases that differ only in batch size, from small to large."""
    groups = _group(results, ("network", "input", "phase", *_OTHERS))
    by_size = attrgetter("settings.batchsize")
    ordered = {name: sorted(group, key=by_size) for name, group in groups.items()}
    return {name: group for name, group in ordered.items() if len(set(map(by_size, group))) > 1}


@figures.drawing()
def batch_figure(results: Sequence[CaseResult]) -> Figure:
    """Draw latency with its standard deviation, and inputs per second, over batch size."""
    series = batch_series(results)
    drawn = _first(series, _MAX_SERIES)
    height = 4.1 + 0.18 * -(-len(drawn) // _legend_columns(drawn, _BATCH_WIDTH))
    fig = figures.blank(_BATCH_WIDTH, height)
    left, right = fig.subplots(1, 2)
    lines = []
    for group, colour, marker in zip(drawn.values(), _COLOURS, _MARKERS, strict=False):
        batch = [result.settings.batchsize for result in group]
        style = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2}
        median, std = _times_ms(group)
        left.errorbar(batch, median, yerr=std, **style, **_WHISKERS)
        lines += right.plot(batch, [result.fps for result in group], **style)
    sizes = _ticks(sorted({r.settings.batchsize for group in drawn.values() for r in group}))
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(sizes, list(map(units.format_count, sizes)))
        ax.minorticks_off()
        ax.set_xlabel("batch size")
        ax.set_ylim(bottom=0)
        ax.grid(axis="y")
    left.set_ylabel("latency [ms]")
    right.set_ylabel("throughput [inputs/s]")
    right.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    _title(fig, "Latency and throughput by batch size", results, len(series) - len(drawn))
    if list(drawn) != [""]:
        _legend(fig, drawn, lines)
    return fig


def _ticks(sizes: Sequence[int]) -> list[int]:
    """The sizes that get a tick on a logarithmic axis, at least 1/12 of its length apart."""
    min_distance = math.log2(sizes[-1] / sizes[0]) / 12 if len(sizes) > 1 else 0.0
    ticks: list[int] = []
    for size in sizes:
        if not ticks or math.log2(size / ticks[-1]) >= min_distance:
            ticks.append(size)
    return ticks


def _title(fig: Figure, title: str, results: Sequence[CaseResult], left_out: int) -> None:
    devices = dict.fromkeys(case.processor or case.settings.device for case in results)
    where = shorten(", ".join(map(printable, devices)), int(fig.get_figwidth() * 12))
    lines = [title, where, _trials_text(results)]
    if any(map(_noisy, results)):
        lines.append(f"* noisy: the standard deviation is above {_NOISY:.0%} of the median")
    if several_machines(results):
        lines.append("from several machines: compare with care")
    if left_out:
        lines.append(f"{units.format_count(left_out)} more not drawn")
    figures.set_title(fig, "\n".join(lines), figures.TEXT + 0.5)


def _trials_text(results: Sequence[CaseResult]) -> str:
    """Format the phase, trials and threads of the cases, with the values of all cases."""
    phases = dict.fromkeys(printable(result.settings.phase) for result in results)
    parts = [" and ".join(phases), f"{ends_text({result.timed for result in results})} trials"]
    if threads := {n for result in results if (n := result.threads) is not None}:
        parts.append(f"{ends_text(threads)} BLAS thread{'' if threads == {1} else 's'}")
    return ", ".join(parts)


def _noisy(result: CaseResult) -> bool:
    return bool(result.std_s > _NOISY * result.median_s)


def _legend(fig: Figure, series: Groups, handles: Iterable[Any]) -> None:
    entries = zip(map(_label, series), handles, strict=False)
    figures.legend_below(fig, entries, _legend_columns(series, fig.get_figwidth()))


def _label(name: str) -> str:
    return shorten(name, 60) or "all"


def _legend_columns(series: Groups, width: float) -> int:
    """Entries per line of the legend, in a figure ``width`` inches wide."""
    longest = max(len(_label(name)) for name in series)
    return max(1, min(len(series), int(width * 13 / (longest + 6))))
