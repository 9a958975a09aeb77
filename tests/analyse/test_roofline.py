"""Work over time against the machine's limits: exact, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.analyse import roofline
from chainer_profile.analyse.roofline import COMPUTE, MEMORY, OVERHEAD
from chainer_profile.record.recording import Layer, MachineLimits, Recording

# 100 GFLOP/s, 10 GB/s: the ridge is at 10 operations a byte.
LIMITS = MachineLimits(
    "a machine", "cpu", "2026-01-01T00:00:00Z", 1, 1e11, None, 1e10, 5e9, 1 << 28
)


def layer(index=0, flops=None, nbytes=0, function="F", phase="forward", **more):
    known = {} if flops is None else {"nbytes_read": nbytes - nbytes // 3}
    known |= {} if flops is None else {"nbytes_written": nbytes // 3, "flops": flops, "macs": 0}
    return Layer(index, "/a", function, phase, dtype="float32", **(known | more))


def recording(layers, times_us, limits=LIMITS):
    self_ns = np.tile(np.array(times_us) * 1000, (4, 1)).astype(np.int64)
    return Recording(layers=tuple(layers), self_ns=self_ns, limits=limits)


def work(*args, **kwargs):
    return summarise(recording(*args, **kwargs)).layers


@pytest.mark.parametrize(
    ("flops", "nbytes", "time_us", "reached", "verdict"),
    [
        (10**8, 10**6, 1000, 1.0, COMPUTE),  # 1 ms at 100 GFLOP/s
        (10**8, 10**6, 1400, 1 / 1.4, COMPUTE),
        (10**6, 10**7, 2000, 0.5, MEMORY),  # 1 ms at 10 GB/s
        (10**6, 10**7, 2325, 0.43, MEMORY),
        (10**6, 10**7, 2900, 1 / 2.9, MEMORY),  # just reached
        (10**6, 10**7, 3100, 1 / 3.1, OVERHEAD),
        (1, 8, 5, 8e-10 / 5e-6, OVERHEAD),
        (0, 0, 5, 0.0, OVERHEAD),  # a view
        (10**6, 10**7, 500, 2.0, MEMORY),  # out of a cache
        (10**8, 10**7, 1000, 1.0, COMPUTE),  # at the ridge
    ],
)
def test_verdicts(flops, nbytes, time_us, reached, verdict):
    row = work([layer(flops=flops, nbytes=nbytes)], [time_us]).iloc[0]
    assert row["reached"] == pytest.approx(reached, rel=1e-3)
    assert row["verdict"] == verdict
    assert row["flops_per_s"] == pytest.approx(flops / time_us * 1e6)
    assert row["nbytes_per_s"] == pytest.approx(nbytes / time_us * 1e6)
    if nbytes:
        assert row["intensity"] == pytest.approx(flops / nbytes)
    else:
        assert np.isnan(row["intensity"])


def test_without_a_formula_nothing_is_said():
    row = work([layer()], [10]).iloc[0]
    assert pd.isna(row["flops"])
    assert np.isnan(row["flops_per_s"])
    assert np.isnan(row["reached"])
    assert row["verdict"] == ""


def test_without_limits_there_are_rates_and_no_verdict():
    row = work([layer(flops=1000, nbytes=300)], [10], limits=None).iloc[0]
    assert row["flops_per_s"] == pytest.approx(1e8)
    assert row["verdict"] == ""
    assert np.isnan(row["reached"])


def test_a_layer_that_took_no_time_has_no_rate():
    row = work([layer(flops=10, nbytes=3), layer(1, flops=10, nbytes=3)], [0, 5]).iloc[0]
    assert np.isnan(row["flops_per_s"])
    assert row["verdict"] == ""


def test_rates_are_those_of_the_median_call():
    self_ns = np.array([[1_000_000]] * 4 + [[50_000_000]])
    known = Recording(layers=(layer(flops=10**8, nbytes=3),), self_ns=self_ns, limits=LIMITS)
    row = summarise(known).layers.iloc[0]
    assert row["reached"] == pytest.approx(1)
    assert row["verdict"] == COMPUTE


def test_half_precision_has_a_limit_of_its_own():
    limits = replace(LIMITS, half_flops_per_s=4e11)
    layers = [replace(layer(flops=10**8, nbytes=3), dtype="float16")]
    assert work(layers, [1000], limits=limits).iloc[0]["reached"] == pytest.approx(0.25)
    assert roofline.peak_rate(LIMITS, "float16") == 1e11
    assert LIMITS.ridge == pytest.approx(10)


def test_by_function_and_phase():
    layers = [
        layer(0, 10**8, 10**6, "Convolution2DFunction"),
        layer(1, 10**8, 10**6, "Convolution2DFunction"),
        layer(2, 3 * 10**8, 10**6, "Convolution2DFunction", "backward"),
        layer(3, 10**6, 10**7, "ReLU"),
        layer(4, None, 0, "MomentumSGD", "update"),
    ]
    table = roofline.work_by_function(work(layers, [1000, 9000, 4000, 2000, 500]))
    assert table["function"].tolist() == [
        "Convolution2DFunction",
        "Convolution2DFunction",
        "ReLU",
        "MomentumSGD",
    ]
    assert table["phase"].tolist() == ["forward", "backward", "forward", "update"]
    first = table.iloc[0]
    assert (first["layers"], first["flops"], first["nbytes"]) == (2, 2e8, 2e6)
    assert first["flops_per_s"] == pytest.approx(2e10)
    assert first["reached"] == pytest.approx(0.2)
    assert first["verdict"] == OVERHEAD  # 9 of its 10 ms
    assert table["verdict"].tolist()[1:] == [COMPUTE, MEMORY, ""]
    assert np.isnan(table.iloc[3]["flops"])
    assert table["share"].sum() == pytest.approx(1)
    assert table["total_s"].sum() == pytest.approx(16.5e-3)


def test_functions_without_a_formula_are_listed_with_their_share():
    layers = [layer(0, 5, 3), layer(1, None, 0, "Own"), layer(2, None, 0, "Own"), layer(3, 0, 0)]
    table = roofline.without_formula(work(layers, [70, 10, 20, 0]))
    assert table.index.tolist() == ["Own"]
    assert table["layers"].tolist() == [2]
    assert table["share"].tolist() == [pytest.approx(0.3)]


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 10**12),
            st.integers(0, 10**10),
            st.integers(0, 10**6),
            st.sampled_from("AB"),
            st.sampled_from(["forward", "backward"]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_sums_and_bounds(rows):
    layers = [layer(i, f, n, name, phase) for i, (f, n, _, name, phase) in enumerate(rows)]
    table = work(layers, [time for _, _, time, _, _ in rows])
    by_function = roofline.work_by_function(table)
    assert by_function["total_s"].sum() == pytest.approx(table["mean_s"].sum())
    assert by_function["layers"].sum() == len(rows)
    known = table[table["verdict"] != ""]
    assert (known["bound_s"] >= known["flops"].astype(float) / 1e11 * (1 - 1e-12)).all()
    assert (known["verdict"].eq(OVERHEAD) == known["reached"].lt(roofline.REACHED)).all()
    hidden = roofline.without_formula(table)["layers"].sum()
    assert hidden == sum(f is None for f, *_ in rows)


def limited(layers, times_us, workspace=None, **changes):
    found = recording(layers, times_us)
    found = replace(found, **changes)
    times_s = np.array(times_us) * 1e-6
    columns = roofline.layer_work(found, times_s)
    sizes = [None] * len(layers) if workspace is None else workspace
    return roofline.limited_by(found, columns | {"median_s": times_s, "workspace_nbytes": sizes})


class TestLimitedBy:
    CONV = "Convolution2DFunction"

    def layers(self, function="F", count=4):
        # Much less work than the machine could do in the time.
        rows = [layer(at, 10, 10, function=function) for at in range(count)]
        return rows

    def test_compute_and_memory_are_what_they_are(self):
        layers = [layer(0, 10**9, 8), layer(1, 8, 10**9)]
        summary = summarise(recording(layers, [10_000, 100_000]))
        assert summary.layers["limited_by"].tolist() == [
            verdict.removesuffix(" bound") for verdict in summary.layers["verdict"]
        ]

    def test_calls_that_take_hardly_longer_than_the_quickest(self):
        assert limited(self.layers(), [2, 5, 7, 100]) == [
            *("call cost", "call cost", "below both limits", "below both limits")
        ]

    def test_a_layer_of_several_calls_is_held_against_one_of_them(self):
        layers = [*self.layers(count=3), replace(layer(3, 10, 10), calls=50)]
        assert limited(layers, [2, 100, 100, 200])[3] == "call cost"

    def test_of_few_layers_none_is_the_quickest(self):
        assert limited(self.layers(count=3), [2, 2, 2]) == ["below both limits"] * 3

    def test_a_convolution_that_copies_more_than_it_computes(self):
        layers = self.layers(self.CONV, 5)
        sizes = [10**9, 0, None, 10**9, 10**9]
        found = limited(layers, [1, 900, 900, 900, 900], sizes)
        assert found == ["call cost", *["below both limits"] * 2, *["copying (im2col)"] * 2]
        other = limited(self.layers(count=5), [1, 900, 900, 900, 900], sizes)
        assert "copying (im2col)" not in other

    def test_nothing_of_the_host_is_said_of_another_engine(self):
        settings = replace(recording(self.layers(), [1] * 4).settings, engine="onnxruntime 1")
        found = limited(self.layers(), [2, 2, 900, 900], settings=settings)
        assert found == ["below both limits"] * 4

    def test_without_limits_nothing_is_said(self):
        assert limited(self.layers(), [2, 2, 2, 2], limits=None) == [""] * 4
