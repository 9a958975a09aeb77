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


def test_no_bars_overlap() -> None:
    for ax in latency_figure([*R3, *BATCHES]).axes:
        ends = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))


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
    assert list(sweep_plot.pictures(BATCHES)) == ["latency-by-network", "by-batch-size"]


def test_odd_names_are_shown_as_they_are() -> None:
    odd = [make_run(name, batchsize=n) for name in ("_a$b$", "$x") for n in (1, 2)]
    for figure in (latency_figure(odd), batch_figure(odd)):
        figure.canvas.draw()
        assert any("$b$" in text for text in texts(figure))
