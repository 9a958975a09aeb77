"""Comparisons of hand-made recordings with known differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.comparison.compare import compare
from chainer_profile.comparison.run_differences import (
    Difference,
    Movement,
    allowance,
    differences,
    movements,
)
from chainer_profile.comparison.sides import Side
from chainer_profile.comparison.significance import FASTER, SAME, SLOWER, UNCLEAR
from chainer_profile.comparison.totals import CLEAN, CPU
from chainer_profile.record.recording import BlasLibrary, Calibration, Conditions, Gpu
from chainer_profile.report.content.comparison import comparison_blocks
from chainer_profile.report.document import Text, plain
from tests.comparing import run, scaled
from tests.conftest import make_training
from tests.fusing import chainer_run, engine_run, groups_of_three
from tests.refusing import refusal


def test_incomparable_runs_are_refused():
    before, a, b = run(1, 3), run(1), run(2)

    def with_rows(**changes):
        return replace(before, layers=tuple(replace(x, **changes) for x in before.layers))

    empty = Side("B", (run(1, 3, n_trials=0, n_clean=0),))
    larger = replace(b, settings=replace(b.settings, batchsize=4))
    for first, second, message in (
        (before, with_rows(phase="update"), "no phase in common: forward, and update"),
        (before, with_rows(path="/else"), "first layer is Convolution2DFunction at /res2/0/con"),
        (before, empty, "no complete profiled trial"),
        (Side("A", (a, larger)), b, "A: its runs differ in batch: 1 and 4"),
        (Side("A", (a, run(2, 9))), b, "A: its runs do not have the same layers"),
        (Side("A", (a, b, a)), b, "A: a run is given twice"),
        (
            make_training(n_trials=4),
            engine_run(chainer_run(), groups_of_three()),
            "not of the same network in test mode",
        ),
    ):
        assert message in refusal(compare, first, second)


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(4, 60))
def test_run_does_not_differ_from_itself(seed, n_layers, n_trials):
    recording = run(seed, n_layers, n_trials, n_clean=4)
    comparison = compare(recording, recording)
    for table in (comparison.layers, comparison.totals):
        assert set(table["ratio"]) == {1.0}
        assert set(table["verdict"]) == {SAME}
        assert ((table["low"] <= 1) & (table["high"] >= 1)).all()


@pytest.mark.parametrize("runs", [1, 2])
def test_runs_of_different_batch_sizes_are_compared_per_input(runs):
    """Eight times the inputs take 4 times the time, so each input takes half of the time."""

    def with_batch_of_8(recording):
        longer = scaled(recording, dict.fromkeys(range(len(recording.layers)), 4.0), 4.0)
        return replace(longer, settings=replace(recording.settings, batchsize=8))

    before = Side("A", tuple(run(seed) for seed in range(runs)))
    after = Side("B", tuple(with_batch_of_8(run(seed)) for seed in range(9, 9 + runs)))
    for base, other, factor in ((before, after, 0.5), (after, before, 2.0)):
        comparison = compare(base, other)
        layers, totals = comparison.layers, comparison.totals
        assert layers["ratio"].median() == pytest.approx(factor, rel=0.05)
        assert set(layers["verdict"]) == {FASTER if factor < 1 else SLOWER}
        assert totals["ratio"][CLEAN] == pytest.approx(factor, rel=0.05)
        # The comparison gives times per input, too.
        for side, name in ((comparison.before, "before"), (comparison.after, "after")):
            times_s = [side.time_s(at) for at in layers[f"{name}_index"]]
            assert layers[f"{name}_s"].tolist() == pytest.approx(times_s)
        texts = [block for block in comparison_blocks(comparison) if isinstance(block, Text)]
        message = " ".join(plain(block.content) for block in texts)
        assert " so all times are by input: divided by the batch." in message
    assert not compare(after, after).by_input


def test_cpu_time_is_judged_without_the_change_of_the_machine():
    """Other programs slow down the calibration and the trials, but do not change CPU time."""
    sides = []
    for factor, seed in ((1.0, 1), (1.3, 2)):
        recording = scaled(run(seed), {}, factor)
        speed = Conditions(calibrations=(Calibration(factor, factor),))
        sides.append(replace(recording, clean_cpu_ns=recording.clean_ns, conditions=speed))
    verdicts = compare(*sides).totals["verdict"]
    assert (verdicts[CLEAN], verdicts[CPU]) == (UNCLEAR, SLOWER)


_OPPOSITE = {SLOWER: FASTER, FASTER: SLOWER, SAME: SAME, UNCLEAR: UNCLEAR}


@given(st.integers(0, 10**6), st.integers(1, 20), st.floats(0.5, 2), st.integers(1, 3))
def test_swapped_sides_reverse_every_result(seed, n_layers, factor, runs):
    seeds = range(seed, seed + runs)
    first = Side("A", tuple(run(at, n_layers, 40, n_clean=8) for at in seeds))
    slower = (scaled(run(at + 9, n_layers, 40, n_clean=8), {0: factor}) for at in seeds)
    second = Side("B", tuple(slower))
    forth, back = compare(first, second), compare(second, first)
    for a, b in ((forth.layers, back.layers), (forth.totals, back.totals)):
        np.testing.assert_allclose(a["ratio"], 1 / b["ratio"], rtol=1e-12)
        np.testing.assert_allclose(a["low"], 1 / b["high"], rtol=1e-9)
        np.testing.assert_allclose(a["high"], 1 / b["low"], rtol=1e-9)
        np.testing.assert_allclose(a["p_value"], b["p_value"], rtol=1e-6, atol=1e-12)
        assert a["verdict"].tolist() == [_OPPOSITE[verdict] for verdict in b["verdict"]]


@given(st.integers(0, 10**6), st.permutations(range(24)), st.integers(1, 2))
def test_order_of_the_layers_does_not_matter(seed, order, runs):
    def shuffled(recording):
        layers = tuple(replace(recording.layers[i], index=n) for n, i in enumerate(order))
        return replace(recording, layers=layers, self_ns=recording.self_ns[:, order])

    before = Side("A", tuple(run(seed + n, n_trials=40) for n in range(runs)))
    after = [scaled(run(seed + 9, n_trials=40), {3: 1.3})]
    plain, mixed = (
        compare(before, Side("B", tuple(runs))) for runs in (after, [*map(shuffled, after)])
    )
    assert mixed.layers["after_index"].tolist() == np.argsort(order).tolist()
    pd.testing.assert_frame_equal(mixed.layers.assign(after_index=range(24)), plain.layers)


def test_layers_that_take_no_time_have_no_share():
    idle = run(1, 3, 8)
    side = Side("A", (replace(idle, self_ns=idle.self_ns * 0),))
    assert [side.share(index) for index in range(3)] == [0.0] * 3


# Other differences between runs, and how the machine changed


def changed(part, **values):
    recording = run(1, 3, 8)
    return replace(recording, **{part: replace(getattr(recording, part), **values)})


def test_differences_between_runs_are_listed():
    plain = run(1, 3, 8)
    gpus = [changed("environment", gpu=Gpu(name=name)) for name in ("A", "B")]
    slow, fast = (
        changed("environment", blas=(BlasLibrary("openblas", "0.3", 1, kernels),))
        for kernels in ("Nehalem", "Haswell")
    )
    two = (BlasLibrary("openblas", "0.3", 2),)
    for before, after, *expected in (
        (plain, changed("settings", model="other"), "network", "chain", "other"),
        (plain, changed("settings", engine="fast 1.0"), "engine", "Chainer", "fast 1.0"),
        (plain, changed("settings", input_shape=(1, 3)), "input", "1x16x32x32", "1x3"),
        (plain, changed("settings", train_mode=True), "train mode", "off", "on"),
        (plain, changed("settings", device="gpu:0"), "device", "cpu", "gpu:0"),
        (plain, changed("environment", usable_cores=4), "cores", "2", "4"),
        (plain, changed("environment", cupy="13"), "CuPy", "", "13"),
        (plain, changed("environment", blas=two), "BLAS", "", "openblas 0.3 x2"),
        (plain, changed("environment", variables=("A=1", "B=2")), "variables", "", "A=1, B=2"),
        (plain, changed("environment", memory_nbytes=1 << 30), "memory", "8.0 GiB", "1.0 GiB"),
        (slow, fast, "BLAS kernels", "Nehalem", "Haswell"),
        (*gpus, "GPU", "A", "B"),
    ):
        (difference,) = differences(before, after)
        assert difference == Difference(*expected)
        elsewhere = difference.name in ("cores", "GPU")
        assert difference.of_machine == elsewhere
        moved = elsewhere or difference.name in ("device", "BLAS", "BLAS kernels")
        assert difference.of_place == moved
    # Only one of the runs has a GPU.
    assert list(differences(plain, gpus[0])) == []


def conditioned(*times, other_cpu=None, **environment):
    recording = changed("environment", **environment)
    calibrations = tuple(Calibration(*seconds) for seconds in times)
    return replace(recording, conditions=Conditions(calibrations=calibrations, other_cpu=other_cpu))


def test_changes_of_the_machine_are_measured():
    # Times of calibrations within single runs.
    before, after = conditioned((1.0, 2.0), (1.1, 2.0)), conditioned((1.2, 2.0), (1.3, 2.0))
    product, copy = movements([before], [after])
    ends = pytest.approx((2.5 / 2.1, 1.2 / 1.1, 1.3))
    assert (product.name, product.moved) == ("matrix product", True)
    assert (product.ratio, product.low, product.high) == ends
    assert (copy, copy.moved) == (Movement("copy", 1.0, 1.0, 1.0), False)
    # A single calibration is enough, whether faster or slower.
    assert Movement("copy", 1.0, 1 / 1.3, 1.0).moved
    assert Movement("copy", 1.0, 1.0, 1.3).moved
    # Other programs slow a run down if there are too few cores.
    calm = conditioned(other_cpu=0.9)
    two = (BlasLibrary("openblas", "0.3", 2),)
    for before, after, ends in (
        (calm, conditioned(other_cpu=1.5), (2.0, 1.0, 2.0)),
        (conditioned(other_cpu=2.0), calm, (0.25, 0.25, 1.0)),
        (conditioned(other_cpu=0.0), conditioned(other_cpu=0.4, blas=two), (1.25, 1.0, 1.25)),
    ):
        assert list(movements([before], [after])) == [Movement("other programs", *ends)]
    # Unknown values give no movement.
    assert list(movements([conditioned()], [conditioned((1, 1), other_cpu=0.0)])) == []
    assert list(movements([conditioned((1, 1))], [conditioned((0.0, 1))])) == [copy]
    # The allowance is a range that contains 1.
    moved = [Movement("copy", 1.2, 1.1, 1.3), Movement("matrix product", 0.9, 0.8, 1.0)]
    assert allowance(moved) == (0.8, 1.3)
    assert allowance([*moved, Movement("other programs", 1.0, 0.5, 2.0)]) == (0.4, 2.6)
    assert allowance([]) == (1.0, 1.0)
