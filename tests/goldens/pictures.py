"""What pictures show: their words, bars, lines and dots, by numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import cycle, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from chainer_profile import summarise
from chainer_profile.comparison.compare import compare
from chainer_profile.report.content.engines import words_of
from chainer_profile.report.pictures import comparison, engines, layers, roofline, sweep
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import WRONG, make_run, recordings
from tests.fusing import chainer_run, engine_run, in_threes
from tests.goldens.keeping import listed
from tests.report.documents import compared
from tests.report.working import make_device_recording, training, working
from tests.sweeping import make_run as make_case

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _numbers(values: Iterable[Any]) -> str:
    return " ".join(f"{float(value):.4g}" for value in values)


def _words(texts: Iterable[Any]) -> str:
    return " / ".join(text.get_text().replace("\n", " | ") for text in texts)


def _bars(ax: Axes) -> Iterator[tuple[str, str, str]]:
    """Colour, hatch, place and size of each bar, and what it leads to."""
    for bar in ax.patches:
        if isinstance(bar, Rectangle):
            place = _numbers((*bar.get_xy(), bar.get_width(), bar.get_height()))
            yield to_hex(bar.get_facecolor()), bar.get_hatch() or "", place + (bar.get_url() or "")
    for drawn in ax.collections:
        if type(drawn) is not PolyCollection:
            continue
        colours = drawn.get_facecolor() if len(drawn.get_facecolor()) else ["#00000000"]
        urls = [url or "" for url in drawn.get_urls() or [""]]
        for path, colour, url in zip(drawn.get_paths(), cycle(colours), cycle(urls)):
            (left, low), (right, top) = path.vertices[0], path.vertices[2]
            yield to_hex(colour), "", _numbers((left, low, right - left, top - low)) + url


def _shown(ax: Axes) -> Iterator[str]:
    legend = ax.get_legend()
    yield f"title: {ax.get_title(loc='left')}; x: {ax.get_xlabel()}; y: {ax.get_ylabel()}"
    yield f"scales: {ax.get_xscale()} {_numbers(ax.get_xlim())}, {ax.get_yscale()} " + _numbers(
        ax.get_ylim()
    )
    names = [text for text in ax.texts if not text.get_in_layout()]
    across = _words(names or ax.get_xticklabels())
    yield f"labels: {across}; {_words(ax.get_yticklabels())}"
    yield f"texts: {_words(text for text in ax.texts if text not in names)}"
    yield f"legend: {_words(legend.get_texts()) if legend is not None else ''}"
    for (colour, hatch), some in groupby(_bars(ax), key=lambda bar: bar[:2]):
        yield f"bars {colour} {hatch}: {', '.join(place for _, _, place in some)}"
    for line in filter(Artist.get_in_layout, ax.lines):
        xs, ys = (list(values) for values in line.get_data())
        yield f"line {line.get_linestyle()} {line.get_marker()}: {_numbers(xs)}; {_numbers(ys)}"
    for drawn in ax.collections:
        if type(drawn) is PolyCollection:
            continue
        paths = [_numbers(path.vertices.ravel()) for path in drawn.get_paths()]
        dots = [_numbers(place) for place in drawn.get_offsets()]
        urls = [url or "" for url in drawn.get_urls() or []]
        sizes = getattr(drawn, "get_sizes", list)()
        if len(sizes):
            colours = [to_hex(colour) for colour in drawn.get_facecolor()]
            yield f"dots {', '.join(dots)}; of {_numbers(sizes)}; {' '.join([*colours, *urls])}"
        else:
            yield f"paths {', '.join(paths)}"


def _content(figure: Figure) -> Iterator[str]:
    yield figure.get_suptitle()
    for legend in figure.legends:
        yield f"legend of all: {_words(legend.get_texts())}"
    for ax in figure.axes:
        yield from _shown(ax)


@listed()
def pictures() -> dict[str, Iterable[str]]:
    """Every kind of picture."""
    few = make_recording(6)
    slower = make_recording(6, self_ns=few.self_ns * 10, trial_ns=few.self_ns.sum(axis=1) * 10)
    chainer, race = chainer_run(), make_run(WRONG)
    fused = engine_run(chainer_run(2), [(), *in_threes()[:-1], (21, 22)])
    names = "resnet18", "resnet34"
    shapes = ((3, 1024, 2048), 500.0), ((3, 500, 334), 50.0)
    cases = [
        make_case(name, ms * at, input_shape=shape, device=device)
        for at, name in enumerate(names, 1)
        for shape, ms in shapes
        for device in ("cpu", "gpu:0")
    ]
    batches = [make_case(name, 5.0 * n, batchsize=n) for name in names for n in (8, 1, 2)]
    elsewhere = make_case("vgg", machine="there", processor="Another")
    deviations = [make_case(std_s=math.nan), make_case("resnet34", std_s=1.0)]
    longer = few.self_ns.copy()
    longer[:10, 2] *= 100
    nothing = np.zeros((5, 6), np.int64)
    turns = ("forward", "backward", "update", "forward", "forward", "")
    again = [replace(layer, phase=phase) for layer, phase in zip(few.layers, turns, strict=True)]
    figures = {
        "layers": layers.figure(summarise(few, "0.2ms")),
        "slower layers": layers.figure(summarise(slower, "top:3")),
        "no unprofiled trials": layers.figure(summarise(make_recording(3, n_clean=0), "1s")),
        "layers alone": layers.figure(
            summarise(make_recording(3, n_clean=0, trial_ns=None, start_ns=None), "5%")
        ),
        "layers of a training": layers.figure(summarise(make_training(), "top:2")),
        "layers with data": layers.figure(summarise(make_training(data=True))),
        "layers on a GPU": layers.figure(summarise(make_device_recording(n_trials=5))),
        "a long whisker": layers.figure(
            summarise(replace(few, self_ns=longer, trial_ns=longer.sum(axis=1)))
        ),
        "one trial": layers.figure(summarise(make_recording(n_trials=1, n_clean=0))),
        "no time": layers.figure(summarise(make_recording(self_ns=nothing, n_trials=5))),
        "phases that come again": layers.figure(summarise(replace(few, layers=tuple(again)))),
        "blocks": layers.figure(summarise(make_recording(300, 5), "0.2ms")),
        "names without room": layers.figure(summarise(make_recording(60, 5), "top:9"), widest=4),
        "the slowest layers": layers.figure(summarise(make_recording(1500, 5))),
        "memory": layers.memory_figure(training()),
        "roofline": roofline.figure(working()),
        "comparison": comparison.figure(compared()),
        "comparison of an engine": comparison.figure(compare(chainer, fused)),
        "engines": engines.figure(race, recordings()),
        "sweep": sweep.latency_figure(cases),
        "sweep of a case": sweep.latency_figure(cases[:1]),
        "sweep of machines": sweep.latency_figure([*batches, elsewhere]),
        "deviations": sweep.latency_figure(deviations),
        "a sweep of many panels": sweep.latency_figure(
            [make_case(input_shape=(3, 8, width)) for width in range(1, 14)]
        ),
        "a sweep of trials": sweep.latency_figure(
            [*map(make_case, names), make_case(names[0], trials=2)]
        ),
        "sweep by batch": sweep.batch_figure([*batches, cases[0]]),
    }
    found = {name: _content(figure) for name, figure in figures.items()}
    return found | {"engines, in words": words_of(race, recordings()).values()}
