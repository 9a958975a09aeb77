"""Recording -> Summary: golden values, and sums that must come out."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Overhead
from chainer_profile.basics.describe import Statistics, describe
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import Layer, Recording, Settings, digest_of
from tests.conftest import make_layers, make_recording, make_training

MS = 1_000_000


def by_hand(**changes):
    """Three layers, two trials: means 4, 1 and 3 ms, framework 1 and 3 ms."""
    values = {
        "layers": (
            Layer(0, "/conv", "Convolution2DFunction", input_shapes=((1, 3),), dtype="float32"),
            Layer(1, "/", "ReLU", output_shapes=((1, 4),)),
            Layer(2, "/res/conv", "Convolution2DFunction"),
        ),
        "self_ns": np.array([[3, 1, 2], [5, 1, 4]], np.int64) * MS,
        "trial_ns": np.array([7, 13], np.int64) * MS,
        "start_ns": np.array([0, 7], np.int64) * MS,
        "clean_ns": np.array([8, 10], np.int64) * MS,
        "clean_start_ns": np.array([20, 28], np.int64) * MS,
        "settings": Settings(batchsize=4, trials=2),
    }
    return Recording(**(values | changes))


NOT_TIMED = {"trial_ns": None, "start_ns": None}
NOT_CLEAN = dict.fromkeys(("clean_ns", "clean_start_ns"), np.zeros(0, np.int64))


def near(value):
    return pytest.approx(value, rel=1e-12)


def test_the_layer_table_by_hand():
    layers = summarise(by_hand(), "3ms").layers
    assert layers.index.tolist() == [0, 1, 2]
    assert layers["input_shapes"][0] == ((1, 3),)
    assert layers["output_shapes"][1] == ((1, 4),)
    for name, values in {
        "label": ["0_Convolution2DFunction", "1_ReLU", "2_Convolution2DFunction"],
        "path": ["/conv", "/", "/res/conv"],
        "dtype": ["float32", "", ""],
        "trials": [2, 2, 2],
        "hot": [True, False, True],
    }.items():
        assert layers[name].tolist() == values
    for name, values in {
        "mean_s": [4e-3, 1e-3, 3e-3],
        "std_s": [math.sqrt(2) * 1e-3, 0, math.sqrt(2) * 1e-3],
        "min_s": [3e-3, 1e-3, 2e-3],
        "max_s": [5e-3, 1e-3, 4e-3],
        "share": [4 / 8, 1 / 8, 3 / 8],
        "cumulative_share": [4 / 8, 1, 7 / 8],
    }.items():
        assert layers[name].tolist() == near(values)


def test_the_function_table_by_hand():
    functions = summarise(by_hand(), "3ms").functions
    assert functions.index.tolist() == ["Convolution2DFunction", "ReLU"]
    assert functions["calls"].tolist() == [2, 1]
    assert functions["total_s"].tolist() == near([7e-3, 1e-3])
    assert functions["mean_s"].tolist() == near([3.5e-3, 1e-3])
    assert functions["share"].tolist() == near([7 / 8, 1 / 8])
    assert functions["hot"].tolist() == [2, 0]


def test_the_totals_by_hand():
    totals = summarise(by_hand()).totals
    assert totals.layers_s == near(8e-3)
    assert totals.profiled.mean_s == near(10e-3)
    assert totals.framework.mean_s == near(2e-3)
    assert (totals.framework.min_s, totals.framework.max_s) == near((1e-3, 3e-3))
    assert totals.framework_share == near(0.2)
    assert totals.clean.mean_s == near(9e-3)
    assert totals.trial is totals.clean
    assert totals.fps == near(4 / 9e-3)


def test_every_column_of_the_statistics_is_there():
    recording = make_recording()
    layers = summarise(recording).layers
    for name in Statistics.__dataclass_fields__:
        column = layers["trials" if name == "count" else name]
        for index in range(len(layers)):
            assert column[index] == getattr(describe(recording.self_ns[:, index]), name)


@settings(max_examples=40)
@given(
    n_trials=st.integers(1, 12),
    n_layers=st.integers(1, 8),
    scale=st.sampled_from([1, 1000, 10**9, 10**13]),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_must_add_up_adds_up(n_trials, n_layers, scale, seed):
    rng = np.random.default_rng(seed)
    self_ns = rng.integers(0, 100 * scale, (n_trials, n_layers))
    framework_ns = rng.integers(1, 100 * scale, n_trials)
    recording = Recording(
        make_layers(n_layers), self_ns, trial_ns=self_ns.sum(axis=1) + framework_ns
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = summarise(recording)
    layers, totals = summary.layers, summary.totals
    assert totals.framework.mean_s == near(framework_ns.mean() * 1e-9)
    assert totals.layers_s == near(math.fsum(layers["mean_s"]))
    assert math.fsum(layers["mean_s"]) + totals.framework.mean_s == near(totals.profiled.mean_s)
    assert totals.framework_share + totals.layers_s / totals.profiled.mean_s == near(1)
    assert layers["hot"].sum() == len(summary.hotspots.indices)
    if layers["median_s"].any():
        slowest_first = np.argsort(-layers["median_s"].to_numpy(), kind="stable")
        first, last = (int(slowest_first[at]) for at in (0, -1))
        assert layers["cumulative_share"][first] == layers["share"][first]
        assert layers["cumulative_share"][last] == near(1)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_the_cumulative_share_is_that_of_all_slower_layers(means):
    layers = summarise(Recording(make_layers(len(means)), np.array([means], np.int64))).layers
    total = sum(means)
    for i, mean in enumerate(means):
        slower = sum(m for j, m in enumerate(means) if m > mean or (m == mean and j <= i))
        assert layers["cumulative_share"][i] == pytest.approx(slower / total if total else 0)


def test_a_layer_that_is_slow_once_is_neither_hot_nor_first():
    """Shares, order, hot layers and their line are of medians; what adds up is of means."""
    self_ns = np.array([[3, 2]] * 40, np.int64) * MS
    self_ns[7, 1] = 1000 * MS
    recording = Recording(make_layers(2), self_ns, trial_ns=self_ns.sum(axis=1))
    for rule in ("top:1", "pareto:50%", "2.5ms", "60%"):
        summary = summarise(recording, rule)
        assert summary.hotspots.indices == [0]
    layers = summary.layers
    assert layers["mean_s"][1] > layers["mean_s"][0]
    assert layers["share"].tolist() == near([0.6, 0.4])
    assert layers["cumulative_share"].tolist() == near([0.6, 1])
    assert layers["ci_low_s"].tolist() == layers["ci_high_s"].tolist() == near([3e-3, 2e-3])
    assert summary.totals.layers_s == near(summary.totals.profiled.mean_s)
    assert summary.functions["total_s"].sum() == near(summary.totals.layers_s)
    assert summary.functions["share"].iloc[0] == near(layers["mean_s"][1] / layers["mean_s"].sum())
    assert digest_of(recording).hot_layer == layers["label"][0]
    assert digest_of(recording).hot_share == near(0.6)


def test_intervals_of_skewed_times_are_positive_or_none():
    for n_trials in (1, 5, 8, 29, 30, 200):
        rng = np.random.default_rng(n_trials)
        self_ns = (1e6 * rng.pareto(0.7, (n_trials, 40))).astype(np.int64) + 1
        layers = summarise(Recording(make_layers(40), self_ns)).layers
        assert layers["ci_low_s"].isna().all() == (n_trials < 30), n_trials
        known = layers[layers["ci_low_s"].notna()]
        assert (known["ci_low_s"] > 0).all(), n_trials
        assert known["median_s"].between(known["ci_low_s"], known["ci_high_s"]).all(), n_trials


def test_a_summary_is_a_pure_function():
    recording = make_recording(n_trials=40, n_clean=40)
    before = {name: np.copy(getattr(recording, name)) for name in ("self_ns", "trial_ns")}
    first, second = summarise(recording), summarise(recording)
    for name in ("layers", "functions", "phases", "links"):
        pd.testing.assert_frame_equal(getattr(first, name), getattr(second, name))
    assert (first.totals, first.findings) == (second.totals, second.findings)
    for name, array in before.items():
        np.testing.assert_array_equal(array, getattr(recording, name))


def test_without_trials_there_is_no_result():
    for n_trials, n_layers in ((0, 0), (0, 3), (3, 0)):
        recording = Recording(make_layers(n_layers), np.zeros((n_trials, n_layers), np.int64))
        with pytest.raises(ProfileError, match="no complete profiled trial"):
            summarise(recording)


def test_what_is_missing_is_not_known_and_the_layers_are():
    for changes, missing, fps in (
        (NOT_TIMED | NOT_CLEAN, {"profiled", "clean", "framework", "overhead", "trial"}, None),
        (NOT_CLEAN, {"clean", "overhead"}, 4 / 10e-3),
        ({"start_ns": None}, {"overhead"}, 4 / 9e-3),
    ):
        totals = summarise(by_hand(**changes)).totals
        names = ("profiled", "clean", "framework", "overhead", "trial")
        assert {name for name in names if getattr(totals, name) is None} == missing, changes
        assert totals.layers_s == near(8e-3), changes
        assert totals.fps == (fps and near(fps)), changes
        assert (totals.framework_share is None) == ("framework" in missing), changes
        assert totals.trial is (totals.clean or totals.profiled), changes


def timeline(blocks, added, pace, jitter=0.0, seed=0):
    """A run of blocks ('P' or 'C', trials): clean trials take 10 ms x pace(i), others more."""
    rng = np.random.default_rng(seed)
    kinds = np.array([kind for kind, count in blocks for _ in range(count)])
    i = np.arange(len(kinds)) / len(kinds)
    times = 10 * MS * np.array([pace(v) for v in i]) * np.where(kinds == "P", 1 + added, 1)
    times = np.rint(times * (1 + jitter * rng.standard_normal(len(kinds)))).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(times)[:-1]])
    profiled = kinds == "P"
    # The layers come last in a trial of this kind; their times do not matter here.
    return Recording(
        make_layers(1),
        times[profiled, None] // 2,
        trial_ns=times[profiled],
        start_ns=starts[profiled],
        clean_ns=times[~profiled],
        clean_start_ns=starts[~profiled],
    )


def cycles(count, profiled, clean):
    """Blocks as a run makes them: each clean block in the middle of its cycle."""
    half = profiled // 2
    return [("P", profiled - half), ("C", clean), ("P", half)] * count


def naive(recording):
    return recording.trial_ns.mean() / recording.clean_ns.mean() - 1


def test_added_time_on_a_steady_machine():
    for blocks, pace in (
        (cycles(8, 20, 5), lambda i: 1),
        # Each cycle at a pace of its own; only the nearer half of a shared block is of that pace.
        (cycles(6, 20, 4), lambda i: 1 + math.floor(i * 6 + 1e-9)),
        *(
            ([(first, 6), *[("P", 6), ("C", 6)] * 7, (last, 6)], lambda i: 1)
            for first in "PC"
            for last in "PC"
        ),
    ):
        overhead = summarise(timeline(blocks, 0.02, pace)).totals.overhead
        assert overhead == Overhead(near(0.02), near(0.02), near(0.02)), blocks


def test_drift_does_not_count_as_added_time():
    for added in (0.0, 0.008, 0.05):
        # The machine slows by 40 %; the first half of the run has three times the profiled trials.
        blocks = cycles(10, 90, 10) + cycles(10, 30, 10)
        recording = timeline(blocks, added, lambda i: 1 + 0.4 * i)
        assert abs(naive(recording) - added) > 0.02, added
        overhead = summarise(recording).totals.overhead
        assert overhead.fraction == pytest.approx(added, abs=2e-4), added
        assert overhead.low <= overhead.fraction <= overhead.high, added


def test_a_few_slow_trials_or_a_step_in_the_pace_do_not_count_as_added_time():
    slow = timeline(cycles(8, 20, 5), 0.01, lambda i: 1)
    slow.trial_ns[::10] *= 100
    slow.clean_ns[::5] *= 100
    step = timeline(cycles(9, 40, 10), 0.01, lambda i: 1 if i < 0.83 else 2.5)
    for recording in (slow, step):
        assert summarise(recording).totals.overhead.fraction == near(0.01)


def test_few_blocks_have_no_interval():
    overhead = summarise(timeline(cycles(5, 10, 5), 0.02, lambda i: 1)).totals.overhead
    assert overhead.fraction == near(0.02)
    assert np.isnan([overhead.low, overhead.high]).all()


def test_the_interval_holds_the_added_time_of_noisy_runs():
    covered, fractions = 0, []
    for seed in range(60):
        recording = timeline(cycles(20, 20, 10), 0.01, lambda i: 1 + 0.1 * i, 0.02, seed)
        overhead = summarise(recording).totals.overhead
        covered += overhead.low <= 0.01 <= overhead.high
        fractions.append(overhead.fraction)
    assert covered >= 52
    assert np.mean(fractions) == pytest.approx(0.01, abs=0.001)


def test_clean_trials_of_no_time_are_passed_over():
    recording = make_recording(clean_ns=np.zeros(10, np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        totals = summarise(recording).totals
    assert totals.overhead is None
    assert totals.fps is None


def test_rows_that_not_every_iteration_has_go_by_their_means() -> None:
    """Of half of the iterations alone: its median would be nothing, or all."""
    training = make_training()
    self_ns = training.self_ns.copy()
    self_ns[::2, 1] = 0
    mixed = replace(training, self_ns=self_ns, calls=(self_ns > 0).astype(np.int64))
    summary = summarise(mixed)
    assert summary.layers["typical_s"].equals(summary.layers["mean_s"].rename("typical_s"))
    assert summary.layers["share"].sum() == pytest.approx(1)
    # Where all trials make the same calls it is the median, by link as by call.
    alike = replace(training, calls=np.ones_like(training.self_ns))
    for one in (training, alike):
        found = summarise(one).layers
        assert found["typical_s"].equals(found["median_s"].rename("typical_s"))


def test_the_trial_of_a_program_is_any_of_its_iterations() -> None:
    training = make_training()
    calls = np.ones_like(training.self_ns)
    mixed = replace(training, calls=calls, iteration=np.arange(training.n_trials) + 1)
    every = summarise(mixed).totals.every
    assert every is not None
    assert every.count == len(training.trial_ns) + len(training.clean_ns)
    assert summarise(mixed).totals.trial == every
    assert summarise(training).totals.every is None


def test_clean_trials_of_other_calls_too_are_compared_with_none() -> None:
    for left_out, mixed in ((0, False), (5, False), (6, True)):
        """They would be the overhead and the latency of a mixture."""
        recording = make_recording(left_out=left_out)  # of 100 that are not
        assert recording.mixed is mixed, left_out
        totals = summarise(recording).totals
        assert (totals.clean is None, totals.overhead is None) == (mixed, mixed), left_out
        assert (totals.trial == totals.profiled) is mixed, left_out
        assert digest_of(recording).clean is not mixed, left_out
        assert digest_of(recording).timed == (100 if mixed else 10), left_out
