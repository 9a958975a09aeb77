"""Work over time against the machine's limits: exact, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.analyse import roofline
from chainer_profile.analyse.roofline import COMPUTE, MEMORY
from chainer_profile.analyse.verdicts import BELOW
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


def test_verdicts():
    for flops, nbytes, time_us, reached, verdict in (
        (10**8, 10**6, 1000, 1.0, COMPUTE),  # 1 ms at 100 GFLOP/s
        (10**8, 10**6, 1400, 1 / 1.4, COMPUTE),
        (10**6, 10**7, 2000, 0.5, MEMORY),  # 1 ms at 10 GB/s
        (10**6, 10**7, 2325, 0.43, MEMORY),
        (10**6, 10**7, 2900, 1 / 2.9, MEMORY),  # just reached
        (10**6, 10**7, 3100, 1 / 3.1, BELOW),
        (1, 8, 5, 8e-10 / 5e-6, BELOW),
        (0, 0, 5, 0.0, BELOW),  # a view
        (10**6, 10**7, 500, 2.0, MEMORY),  # out of a cache
        (10**8, 10**7, 1000, 1.0, COMPUTE),  # at the ridge
    ):
        row = work([layer(flops=flops, nbytes=nbytes)], [time_us]).iloc[0]
        assert row["reached"] == pytest.approx(reached, rel=1e-3), time_us
        assert row["verdict"] == verdict, time_us
        assert row["flops_per_s"] == pytest.approx(flops / time_us * 1e6), time_us
        assert row["nbytes_per_s"] == pytest.approx(nbytes / time_us * 1e6), time_us
        if nbytes:
            assert row["intensity"] == pytest.approx(flops / nbytes), time_us
        else:
            assert np.isnan(row["intensity"]), time_us


def test_what_is_not_known_has_no_verdict():
    for row, time_us, limits, rate in (
        (layer(), 10, LIMITS, math.nan),  # without a formula
        (layer(flops=1000, nbytes=300), 10, None, 1e8),  # without limits
        (layer(flops=10, nbytes=3), 0, LIMITS, math.nan),
    ):
        found = work([row, layer(1, flops=10, nbytes=3)], [time_us, 5], limits=limits).iloc[0]
        assert pd.isna(found["flops"]) == (row.flops is None), row
        assert found["flops_per_s"] == pytest.approx(rate, nan_ok=True), row
        assert np.isnan(found["reached"]), row
        assert found["verdict"] == "", row


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
    assert first["verdict"] == BELOW  # 9 of its 10 ms
    assert table["verdict"].tolist()[1:] == [COMPUTE, MEMORY, ""]
    assert np.isnan(table.iloc[3]["flops"])
    assert table["share"].sum() == pytest.approx(1)
    assert table["total_s"].sum() == pytest.approx(16.5e-3)


def test_a_function_is_mostly_what_more_than_half_of_its_time_is():
    for slow_us, verdict in ((2400, ""), (2600, BELOW)):
        layers = [layer(0, 10**8, 10), layer(1, 10**6, 10**7), layer(2, 10, 10)]
        table = roofline.work_by_function(work(layers, [1500, 1000, slow_us]))
        assert table["verdict"].tolist() == [verdict], slow_us


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
    known = table[table["bound"] != ""]
    assert (known["bound_s"] >= known["flops"].astype(float) / 1e11 * (1 - 1e-12)).all()
    assert (known["verdict"].isin((COMPUTE, MEMORY)) == known["reached"].ge(roofline.REACHED)).all()
    hidden = roofline.without_formula(table)["layers"].sum()
    assert hidden == sum(f is None for f, *_ in rows)
