"""The plots of a sweep."""

from __future__ import annotations

import itertools
import math

import pytest

from chainer_profile.report.pictures import sweep as sweep_plot
from chainer_profile.report.pictures.sweep import batch_figure, batch_series, latency_figure
from tests.sweeping import make_run

NETWORKS = ("resnet18", "resnet34", "resnet50")
R3 = [
    make_run(network, factor * (at + 1), input_shape=shape, device=device)
    for at, network in enumerate(NETWORKS)
    for shape, factor in (((3, 1024, 2048), 500.0), ((3, 500, 334), 50.0))
    for device in ("cpu", "gpu:0")
]
BATCHES = [
    make_run(network, 5.0 * batchsize, batchsize=batchsize)
    for network in NETWORKS
    for batchsize in (8, 1, 2)
]


def texts(figure: object) -> list[str]:
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]  # type: ignore[attr-defined]


def test_a_panel_an_input_and_a_bar_a_case() -> None:
    figure = latency_figure(R3)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["input 1024x2048", "input 500x334"]
    for ax in figure.axes:
        assert [label.get_text() for label in ax.get_xticklabels()] == list(NETWORKS)
        assert len(ax.patches) == 6
    assert sorted(bar.get_height() for bar in figure.axes[0].patches)[::2] == [0.5, 1.0, 1.5]
    assert figure.axes[0].get_ylabel() == "latency [s]"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["cpu", "gpu:0"]


def test_no_bars_overlap() -> None:
    for ax in latency_figure([*R3, *BATCHES]).axes:
        ends = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))


def test_one_case() -> None:
    figure = latency_figure(R3[:1])
    assert figure.axes[0].get_title(loc="left") == "input 1024x2048"
    assert not figure.legends


def test_whiskers_are_one_standard_deviation() -> None:
    (bars,) = latency_figure([make_run(mean_ms=2.0)]).axes[0].collections
    (segment,) = bars.get_segments()
    assert segment[:, 1] == pytest.approx([1.8, 2.2])


def test_a_deviation_that_is_not_known_or_larger_than_the_mean() -> None:
    results = [make_run(std_s=math.nan), make_run("resnet34", std_s=1.0)]
    ax = latency_figure(results).axes[0]
    assert ax.get_ylim()[0] == 0
    assert len(ax.collections[0].get_segments()) == 1


def test_what_differs_between_panels_alone_has_no_colour() -> None:
    few = {"input_shape": (3, 1024, 2048), "trials": 2}
    small = [make_run(network) for network in NETWORKS]
    large = [make_run(network, **few) for network in NETWORKS[:2]]
    figure = latency_figure([*small, *large])
    assert not figure.legends
    for ax, networks in zip(figure.axes, (NETWORKS, NETWORKS[:2]), strict=True):
        assert [label.get_text() for label in ax.get_xticklabels()] == list(networks)
        middles = [bar.get_x() + bar.get_width() / 2 for bar in ax.patches]
        assert middles == pytest.approx(range(len(networks)))


def test_many_panels_are_cut_and_said() -> None:
    results = [make_run(input_shape=(3, 8, width)) for width in range(1, 14)]
    figure = latency_figure(results)
    assert len(figure.axes) == 8
    assert "5 more not drawn" in figure.get_suptitle()


def test_latency_and_throughput_by_batch_size() -> None:
    figure = batch_figure([*BATCHES, R3[0]])
    left, right = figure.axes
    line = right.lines[0]
    assert list(line.get_xdata()) == [1, 2, 8]
    assert list(line.get_ydata()) == pytest.approx([200.0] * 3)
    assert [text.get_text() for text in left.get_xticklabels()] == ["1", "2", "8"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(legend) == 3
    assert legend[0].startswith("resnet18")


def test_series_differ_in_the_batch_size_only() -> None:
    assert batch_series(R3) == []
    assert len(batch_series(BATCHES)) == 3
    two = [make_run(batchsize=1), make_run(batchsize=2, phase="train")]
    assert batch_series(two) == []
    seeds = [make_run(batchsize=n, seed=n) for n in (1, 2)]
    assert batch_series(seeds) == []


def test_which_plots_there_are() -> None:
    assert sweep_plot.pictures([]) == {}
    assert sweep_plot.pictures([make_run(mean_ms=math.nan)]) == {}
    assert list(sweep_plot.pictures(R3)) == ["latency-by-network"]
    plots, again = sweep_plot.pictures(BATCHES), sweep_plot.pictures(BATCHES)
    assert list(plots) == ["latency-by-network", "by-batch-size"]
    for name, picture in plots.items():
        assert picture.png().startswith(b"\x89PNG")
        assert picture.png() == again[name].png()


def test_several_machines_are_said() -> None:
    results = [*BATCHES, make_run("vgg", machine="there", processor="Another")]
    assert "from several machines: compare with care" in latency_figure(results).get_suptitle()


def test_odd_names_are_shown_as_they_are() -> None:
    odd = [make_run(name, batchsize=n) for name in ("_a$b$", "$x") for n in (1, 2)]
    for figure in (latency_figure(odd), batch_figure(odd)):
        figure.canvas.draw()
        assert any("$b$" in text for text in texts(figure))
