"""What takes most of a layer's time: by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from chainer_profile.analyse import verdicts
from chainer_profile.analyse.counted import layer_counters
from chainer_profile.analyse.inside import (
    CALLS,
    COPYING,
    PRODUCT,
    WAITING,
    InsideParts,
    Part,
    Parts,
)
from chainer_profile.analyse.roofline import COMPUTE, MEMORY, layer_work
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.verdicts import BELOW, FAULTS
from tests.analyse.test_roofline import LIMITS, layer, recording
from tests.counting import counters

CONV = "Convolution2DFunction"


def found(layers, times_us, workspace=None, counted=None, inside=None, **changes):
    run = replace(recording(layers, times_us), **changes)
    if counted is not None:
        run = replace(run, counters=counters(run, **counted))
    times_s = np.array(times_us) * 1e-6
    columns = layer_work(run, times_s) | layer_counters(run)
    sizes = [None] * len(layers) if workspace is None else workspace
    return verdicts.verdicts(
        run, columns | {"median_s": times_s, "workspace_nbytes": sizes}, inside
    )


def slow(function="F", count=4):
    """Layers with much less work than the machine could do in the time."""
    return [layer(at, 10, 10, function=function) for at in range(count)]


def test_the_nearer_limit_where_a_third_of_it_is_reached():
    layers = [layer(0, 10**9, 8), layer(1, 8, 10**9)]
    summary = summarise(recording(layers, [10_000, 100_000]))
    assert summary.layers["verdict"].tolist() == [COMPUTE, MEMORY]
    # Also where much of that time is the system's, or waiting.
    much = {"page_faults": 600, "cpu_us": 70}
    assert found(layers, [10_000, 100_000], counted=much) == [COMPUTE, MEMORY]
    assert found(layers, [31_000, 310_000], counted=much) == [FAULTS] * 2


def test_calls_that_take_hardly_longer_than_the_quickest():
    assert found(slow(), [2, 5, 7, 100]) == [CALLS, CALLS, BELOW, BELOW]
    # A layer of several calls is held against one of them; of few layers none is the quickest.
    layers = [*slow(count=3), replace(layer(3, 10, 10), calls=50)]
    assert found(layers, [2, 100, 100, 200])[3] == CALLS
    assert found(slow(count=3), [2, 2, 2]) == [BELOW] * 3


def test_a_convolution_that_copies_more_than_it_computes():
    # 2 MB at 5 GB/s: 0.4 ms; its arithmetic takes nothing.
    layers = [layer(0, 10, 10, function=CONV), layer(1, 10, 10, function="Pooling")]
    assert found(layers, [1000, 1000], [10**6, 10**6]) == [COPYING, BELOW]
    assert found(layers, [1000, 1000], [10**5, None]) == [BELOW, BELOW]
    # Of one that computes for as long as it copies nothing is known.
    dense = [layer(0, 5 * 10**7, 10, function=CONV)]
    assert found(dense, [2000], [10**6]) == [BELOW]


def test_the_largest_part_that_was_counted():
    for counted, verdict in (
        ({"page_faults": 220}, BELOW),
        ({"page_faults": 230}, FAULTS),
        ({"page_faults": 0, "system_us": 90}, BELOW),  # system time without faults
        ({"page_faults": 900, "fault_ns": None}, BELOW),  # recorded by an older version
        ({"page_faults": 25, "fault_ns": 1100.0}, FAULTS),
        ({"cpu_us": 74, "waits": 1, "page_faults": 0}, WAITING),
        ({"cpu_us": 50, "waits": 1, "page_faults": 400}, WAITING),
        ({"cpu_us": 70, "waits": 1, "page_faults": 400}, FAULTS),
        # Other programs took the processor: that time is not the layer's.
        ({"cpu_us": 40, "waits": 1, "preemptions": 2, "page_faults": 90}, BELOW),
        ({"cpu_us": 40, "waits": 1, "preemptions": 2, "page_faults": 110}, FAULTS),
        ({"cpu_us": 0, "wall_us": 0, "page_faults": 0}, BELOW),
    ):
        assert found(slow(count=2), [100, 100], counted=counted) == [verdict] * 2, counted


def test_what_is_mostly_the_reading_says_nothing():
    layers = slow(count=2)
    run = recording(layers, [100, 100])
    read = counters(run, page_faults=900)

    def at(window_us):
        counted = tuple(replace(one, window=1000.0 * window_us) for one in read.counted)
        return found(layers, [100, 100], counters=replace(read, counted=counted))

    assert at(4.9) == [FAULTS] * 2
    assert at(5.1) == [BELOW] * 2


def test_a_part_that_is_estimated_stands_beside_those_that_are_counted():
    layers = [layer(0, 10, 10, function=CONV)]
    assert found(layers, [1000], [10**6], {"page_faults": 350}) == [COPYING]
    assert found(layers, [1000], [10**6], {"page_faults": 450}) == [FAULTS]


def seen(name, row, **causes):
    parts = tuple(Part(cause, share, 0.0, cause=cause) for cause, share in causes.items())
    return Parts(name, "forward", row, 1.0, 500, parts)


def test_what_the_pass_inside_saw_takes_the_place_of_estimates():
    layers = [layer(at, 10, 10, function=CONV) for at in range(3)]
    product = seen("0", 0, **{PRODUCT: 0.5, COPYING: 0.4})
    copying = seen(CONV, None, **{PRODUCT: 0.1, COPYING: 0.6})
    inside = InsideParts((copying,), (product,), None)
    sizes = [10**6] * 3
    assert found(layers, [500] * 3, sizes, inside=inside) == [PRODUCT, COPYING, COPYING]
    # Its own parts are small, and the estimate of copying is not asked.
    nothing = InsideParts((), (seen("0", 0, **{PRODUCT: 0.2, CALLS: 0.2}),), None)
    assert found(layers, [500] * 3, sizes, inside=nothing) == [BELOW, COPYING, COPYING]
    # What was counted stands beside it.
    counted = {"page_faults": 550, "cpu_us": 60, "waits": 1}
    assert found(layers, [500] * 3, sizes, counted, inside=inside) == [FAULTS, COPYING, COPYING]
    assert found(layers, [500] * 3, limits=None, inside=inside) == [PRODUCT, COPYING, COPYING]
    waits = {"page_faults": 0, "cpu_us": 60, "waits": 1}
    assert WAITING in found(layers, [500] * 3, counted=waits)


def test_without_limits_only_what_is_known_by_itself():
    layers = [layer(0), layer(1, 10, 10)]
    assert found(layers, [100, 100], limits=None) == ["", ""]
    assert found(layers, [100, 100], limits=None, counted={"page_faults": 600}) == [FAULTS] * 2


def test_of_an_engine_and_a_gpu_nothing_is_estimated():
    layers = slow(CONV)
    run = recording(layers, [2, 2, 2, 2000])
    engine = replace(run.settings, engine="other 1.0")
    assert found(layers, [2, 2, 2, 2000], [10**6] * 4, settings=engine) == [BELOW] * 4
    ns = np.zeros_like(run.self_ns)
    gpu = dict.fromkeys(("host_ns", "gap_ns"), ns) | dict.fromkeys(
        ("launch_ns", "span_ns"), ns[:, 0]
    )
    assert found(layers, [2, 2, 2, 2000], [10**6] * 4, **gpu) == [BELOW] * 4
    assert LIMITS.device == "cpu"
