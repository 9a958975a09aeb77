"""Rates of layers against limits of the machine, and verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse import roofline, verdicts
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
from chainer_profile.record.recording import Layer, MachineLimits, Recording, Settings
from tests.counting import counters

# 100 GFLOP/s and 10 GB/s: the ridge is at 10 operations per byte.
LIMITS = MachineLimits(
    "a machine", "cpu", "2026-01-01T00:00:00Z", 1, 1e11, None, 1e10, 5e9, 1 << 28
)
CONV = "Convolution2DFunction"


def layer(index=0, flops=None, nbytes=0, function="F", phase="forward", **more):
    if flops is not None:
        more |= {"nbytes_read": nbytes - nbytes // 3, "nbytes_written": nbytes // 3}
        more |= {"flops": flops, "macs": 0}
    return Layer(index, "/a", function, phase, **{"dtype": "float32"} | more)


def recording(layers, times_us, limits=LIMITS):
    self_ns = np.tile(np.array(times_us) * 1000, (4, 1)).astype(np.int64)
    return Recording(layers=tuple(layers), self_ns=self_ns, limits=limits)


def work(*args, **kwargs):
    return summarise(recording(*args, **kwargs)).layers


def test_verdict_of_a_layer():
    for flops, nbytes, time_us, reached, verdict in (
        (10**8, 10**6, 1400, 1 / 1.4, COMPUTE),  # 1 ms at 100 GFLOP/s
        (10**6, 10**7, 2000, 0.5, MEMORY),  # 1 ms at 10 GB/s
        (10**6, 10**7, 2900, 1 / 2.9, MEMORY),  # just reached
        (10**6, 10**7, 3100, 1 / 3.1, BELOW),
        (0, 0, 5, 0.0, BELOW),  # a view
        (10**6, 10**7, 500, 2.0, MEMORY),  # out of a cache
        (10**8, 10**7, 1000, 1.0, COMPUTE),  # at the ridge
    ):
        row = work([layer(flops=flops, nbytes=nbytes)], [time_us]).iloc[0]
        assert (row["reached"], row["verdict"]) == (pytest.approx(reached), verdict), time_us
        rates = row["flops_per_s"], row["nbytes_per_s"]
        assert rates == pytest.approx((flops / time_us * 1e6, nbytes / time_us * 1e6)), time_us
        intensity = flops / nbytes if nbytes else np.nan
        assert row["intensity"] == pytest.approx(intensity, nan_ok=True), time_us
    for row, time_us, limits, rate in (
        (layer(), 10, LIMITS, np.nan),  # without a formula
        (layer(flops=1000, nbytes=300), 10, None, 1e8),  # without limits
        (layer(flops=10, nbytes=3), 0, LIMITS, np.nan),
    ):
        cells = work([row, layer(1, flops=10, nbytes=3)], [time_us, 5], limits=limits).iloc[0]
        assert cells["flops_per_s"] == pytest.approx(rate, nan_ok=True), row
        assert (np.isnan(cells["reached"]), cells["verdict"]) == (True, ""), row
    # Half precision may have its own limit.
    limits = replace(LIMITS, half_flops_per_s=4e11)
    for dtype, machine, reached in (
        ("float16", limits, 0.25),
        ("float16", LIMITS, 1),
        ("f", limits, 1),
    ):
        row = work([layer(flops=10**8, nbytes=3, dtype=dtype)], [1000], limits=machine).iloc[0]
        assert row["reached"] == pytest.approx(reached)


def test_verdict_of_a_function_needs_more_than_half_of_its_time():
    for slow_us, verdict in ((2400, ""), (2600, BELOW)):
        layers = [layer(0, 10**8, 10), layer(1, 10**6, 10**7), layer(2, 10, 10)]
        table = roofline.work_by_function(work(layers, [1500, 1000, slow_us]))
        assert table["verdict"].tolist() == [verdict], slow_us
    # If one layer has no formula, the work of the function is unknown.
    layers = work([*layers[:2], layer(2)], [1500, 1000, 5])
    table = roofline.work_by_function(layers)
    assert table[["flops", "reached"]].isna().all(axis=None)
    assert roofline.functions_without_formula(layers)["layers"].to_dict() == {"F": 1}


# Verdicts about most of a layer's time


def verdicts_of(layers, times_us, workspace=None, counted=None, inside=None, **changes):
    run = replace(recording(layers, times_us), **changes)
    if counted is not None:
        run = replace(run, counters=counters(run, **counted))
    times_s = np.array(times_us) * 1e-6
    columns = layer_work(run, times_s) | layer_counters(run) | {"median_s": times_s}
    columns["workspace_nbytes"] = workspace or [None] * len(layers)
    return verdicts.verdicts(run, columns, inside)


def slow(count, function="F"):
    """Layers with much less work than the machine could do in the time."""
    return [layer(index, 10, 10, function=function) for index in range(count)]


def test_verdicts_by_estimates_on_a_cpu():
    # Calls nearly as fast as the fastest are limited by overhead, if there are enough layers.
    assert verdicts_of(slow(4), [2, 5, 7, 100]) == [CALLS, CALLS, BELOW, BELOW]
    assert verdicts_of(slow(3), [2, 2, 2]) == [BELOW] * 3
    # A layer of several calls is compared by its time per call.
    layers = [*slow(3), replace(layer(3, 10, 10), calls=50)]
    assert verdicts_of(layers, [2, 100, 100, 200])[3] == CALLS
    # A convolution's copy of 2 MB at 5 GB/s: 0.4 ms; its arithmetic takes nothing.
    convolution, pooling = slow(1, CONV)[0], layer(1, 10, 10, function="Pooling")
    assert verdicts_of([convolution, pooling], [1000] * 2, [10**6] * 2) == [COPYING, BELOW]
    assert verdicts_of([convolution], [1000], [10**5]) == [BELOW]
    # No verdict if computing takes as long as copying, or for the layers of an engine.
    assert verdicts_of([layer(0, 5 * 10**7, 10, function=CONV)], [2000], [10**6]) == [BELOW]
    engine = {"settings": Settings(engine="onnxruntime 1")}
    assert verdicts_of([convolution], [1000], [10**6], **engine) == [BELOW]
    # The estimate competes with counted page faults.
    for faults, verdict in ((350, COPYING), (450, FAULTS)):
        assert verdicts_of([convolution], [1000], [10**6], {"page_faults": faults}) == [verdict]


def test_verdict_by_the_largest_counted_share():
    layers = slow(2)
    for counted, verdict in (
        ({"page_faults": 220}, BELOW),
        ({"page_faults": 230}, FAULTS),
        ({"page_faults": 900, "fault_ns": None}, BELOW),  # recorded by an older version
        ({"page_faults": 25, "fault_ns": 1100.0}, FAULTS),
        ({"cpu_us": 74, "waits": 1, "page_faults": 0}, WAITING),
        ({"cpu_us": 50, "waits": 1, "page_faults": 400}, WAITING),
        ({"cpu_us": 70, "waits": 1, "page_faults": 400}, FAULTS),
        # Time in which other programs used the processor is not the layer's.
        ({"cpu_us": 40, "waits": 1, "preemptions": 2, "page_faults": 90}, BELOW),
        ({"cpu_us": 40, "waits": 1, "preemptions": 2, "page_faults": 110}, FAULTS),
        ({"cpu_us": 0, "wall_us": 0, "page_faults": 0}, BELOW),
    ):
        assert verdicts_of(layers, [100, 100], counted=counted) == [verdict] * 2, counted
    # No verdict if reading the counters takes most of the time.
    read = counters(recording(layers, [100, 100]), page_faults=900)
    for window_us, verdict in ((4.9, FAULTS), (5.1, BELOW)):
        counted = tuple(replace(counter, window=1000.0 * window_us) for counter in read.counted)
        assert (
            verdicts_of(layers, [100, 100], counters=replace(read, counted=counted))
            == [verdict] * 2
        )
    # Without limits, only counters give a verdict.
    assert verdicts_of(layers, [100, 100], limits=None) == ["", ""]
    assert (
        verdicts_of(layers, [100, 100], limits=None, counted={"page_faults": 600}) == [FAULTS] * 2
    )


def sampled_parts(name, row, **causes):
    parts = tuple(Part(cause, share, 0.0, cause=cause) for cause, share in causes.items())
    return Parts(name, "forward", row, 1.0, 500, parts)


def test_sampled_causes_replace_estimates():
    layers = slow(3, CONV)
    product = sampled_parts("0", 0, **{PRODUCT: 0.5, COPYING: 0.4})
    copying = sampled_parts(CONV, None, **{PRODUCT: 0.1, COPYING: 0.6})
    inside = InsideParts((copying,), (product,), None)
    sizes = [10**6] * 3
    assert verdicts_of(layers, [500] * 3, sizes, inside=inside) == [PRODUCT, COPYING, COPYING]
    # Small sampled parts also replace the estimate.
    nothing = InsideParts((), (sampled_parts("0", 0, **{PRODUCT: 0.2, CALLS: 0.2}),), None)
    assert verdicts_of(layers, [500] * 3, sizes, inside=nothing) == [BELOW, COPYING, COPYING]
    # Counters compete with samples.
    counted = {"page_faults": 550, "cpu_us": 60, "waits": 1}
    assert verdicts_of(layers, [500] * 3, sizes, counted, inside=inside) == [
        FAULTS,
        COPYING,
        COPYING,
    ]
    assert verdicts_of(layers, [500] * 3, limits=None, inside=inside) == [PRODUCT, COPYING, COPYING]
    waits = {"page_faults": 0, "cpu_us": 60, "waits": 1}
    assert WAITING in verdicts_of(layers, [500] * 3, counted=waits)
