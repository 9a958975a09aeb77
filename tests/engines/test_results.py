"""Recordings and results of engines, their speedups, and their file."""

import copy
import json
import math
from dataclasses import replace
from functools import partial
from typing import Any

import chainer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import ProfileError
from chainer_profile.engines.engine_recording import engine_recording, node_rows
from chainer_profile.engines.measuring import measure
from chainer_profile.engines.protocol import EngineNode, EngineProfile
from chainer_profile.engines.race import Contestant
from chainer_profile.engines.results import (
    RESULTS,
    OutputDifference,
    Speedup,
    main_layer,
    read_json,
    speedup,
    with_recorded_fields,
    write_json,
)
from chainer_profile.measure import calibration
from chainer_profile.record.recording import (
    Calibration,
    Conditions,
    Settings,
)
from chainer_profile.report.content.engine_table import engines_csv
from chainer_profile.report.content.engines import overview, report
from chainer_profile.report.writers import markdown
from tests.command import Net
from tests.engines.fake_engines import (
    ENVIRONMENT,
    MISSING,
    SETTINGS,
    WRONG,
    FakeEngine,
    chainer_recording,
    layers,
    make_run,
    profile,
    recordings,
    result,
)
from tests.recordings import JSON_VALUES, json_paths
from tests.refusing import refusal

FAST = replace(SETTINGS, engine="fast 1.0")

# -- from nodes to rows of a recording


def test_row_of_a_node_has_its_layers():
    fused, runtime_node, last = recordings()["fast"].layers
    assert (fused.path, fused.covers, fused.node) == ("/res2/0/conv1", (0, 1, 2), "Fused n0")
    assert fused.function == "Convolution2DFunction + FixedBatchNormalization + ReLU"
    assert fused.input_shapes == ((1, 16, 32, 32), (16, 16, 3, 3))
    assert fused.output_shapes == ((1, 16, 32, 32),)
    assert (fused.flops, fused.macs, fused.nbytes_read) == (612, 900, None)
    assert (runtime_node.path, runtime_node.function, runtime_node.covers, runtime_node.flops) == (
        "/",
        "Fused",
        (),
        None,
    )
    assert (last.path, last.covers) == ("/res2/1/conv1", (3, 4))
    # Work is unknown in all nodes that share a layer. Bytes are known for a node with one layer.
    covers = ((0,), (0, 1), (2,), (3, 4))
    nodes = [EngineNode("a", "A", covered) for covered in covers]
    with_bytes = [replace(layer, nbytes_read=8, output_nbytes=4) for layer in layers()]
    rows = [(row.flops, row.nbytes_read, row.output_nbytes) for row in node_rows(nodes, with_bytes)]
    assert rows == [(None, None, None), (None, None, None), (6, 8, 4), (606, None, None)]
    # If layers have the same work, the first one counts.
    assert [main_layer(covers, layers()) for covers in ((1, 2, 3), (1, 2))] == [3, 1]


@given(
    st.lists(st.integers(-1, 3), min_size=6, max_size=6),
    st.lists(st.integers(0, 99), min_size=12, max_size=12),
)
def test_rows_cover_every_layer_and_times_add_up_to_the_trial(owners, samples):
    covers = [tuple(i for i, owner in enumerate(owners) if owner == n) for n in range(4)]
    gone = tuple(i for i, owner in enumerate(owners) if owner < 0)
    times, extra = np.array(samples, np.int64).reshape(3, 4), np.array([0, 5, 9])
    nodes = tuple(EngineNode(f"n{n}", "Node", c) for n, c in enumerate(covers))
    engine_profile = EngineProfile(nodes, times, times.sum(axis=1) + extra, gone)
    recording = engine_recording(engine_profile, layers(), FAST)
    covered = {index for row in recording.layers for index in row.covers}
    assert covered | set(gone) == set(range(6))
    np.testing.assert_array_equal(recording.trial_ns - recording.self_ns.sum(axis=1), extra)
    work = (layer.flops or 0 for layer in layers() if layer.index not in gone)
    assert sum(row.flops or 0 for row in recording.layers) == sum(work)


GOOD = profile([10, 20], [(0, 1, 2), (3, 4, 5)], 40)
#: Impossible changes of GOOD, by message.
BAD = {
    "nodes took longer than the whole run": {"run_ns": np.full(4, 29_000)},
    "a negative time": {"node_ns": np.full((4, 2), -1)},
    "not int64 nanoseconds": {"node_ns": np.ones((4, 2))},
    "(4, 3) and (4,) for 2 nodes": {"node_ns": np.ones((4, 3), np.int64)},
    "for 2 nodes": {"node_ns": np.ones((0, 2), np.int64), "run_ns": np.ones(0, np.int64)},
    "layer 3 is neither in a node nor gone": {
        "nodes": GOOD.nodes[:1],
        "node_ns": GOOD.node_ns[:, :1],
    },
    "it names layer 6, but there are 6 layers": {"gone": (6,)},
}


def test_impossible_node_times_are_refused():
    for message, changes in BAD.items():
        assert message in refusal(engine_recording, replace(GOOD, **changes), layers(), FAST)


# -- from engines to their recordings


class Reference(FakeEngine):
    """A fake Chainer of 1,000 ns, whose recording has more than the protocol requires."""

    recording: Any = None

    def layers(self, inputs, trials):
        nodes = tuple(EngineNode(str(i), "Layer", (i,)) for i in range(2))
        node_profile = EngineProfile(nodes, np.full((trials, 2), 400), np.full(trials, 1000))
        more = {
            "host_ns": node_profile.node_ns,
            "gap_ns": node_profile.node_ns * 0,
            "conditions": Conditions(window_ns=50.0),
        }
        more |= dict.fromkeys(("launch_ns", "span_ns"), node_profile.run_ns)
        recording = chainer_recording(node_profile, Settings())
        self.recording = replace(recording, start_ns=np.arange(trials), **more)
        return node_profile


@pytest.fixture
def reference(clock, monkeypatch, one_thread):
    monkeypatch.setattr(calibration, "calibrated", lambda *_: Calibration(1e-3, 7e-4))
    return Reference(clock, 1000, "chainer")


def measured(*engines):
    contestants = [Contestant(name=e.name, engine=e, version="1") for e in engines]
    settings = Settings(model="net", trials=12, warmups=1)
    x, clock = np.ones((1, 3), np.float32), engines[0].clock
    return measure(Net(), (x,), settings, contestants, layer_trials=5, clock=clock)


def fused(*covers):
    return EngineProfile((EngineNode("a", "Fused", covers),), np.full((5, 1), 70), np.full(5, 90))


def test_recordings_share_a_run_and_chainer_has_more_fields(reference):
    run, recordings, _ = measured(
        reference, FakeEngine(reference.clock, 100, node_profile=fused(0, 1))
    )
    chainer, fake = recordings.values()
    assert run.n_layers == 2
    assert [each.settings.trials for each in (chainer, fake)] == [5, 5]
    assert [each.clean_ns.tolist() for each in (chainer, fake)] == [[1000] * 12, [100] * 12]
    assert fake.links == chainer.links
    assert chainer.on_device
    assert chainer.start_ns is None
    assert chainer.environment == fake.environment
    assert chainer.conditions.window_ns == 50.0
    assert chainer.conditions.calibrations == fake.conditions.calibrations
    assert len(fake.conditions.calibrations) == 2


def test_failures_are_reported_and_keep_other_results(reference, monkeypatch):
    fake = partial(FakeEngine, reference.clock, 100)
    run, recordings, _ = measured(reference, fake(node_profile=fused(0)))
    assert list(recordings) == ["chainer"]
    engine_result, why = run.engines[1], "layer 1 is neither in a node nor gone"
    assert engine_result.note == f"the times of its nodes are unusable: {why}"
    assert (engine_result.folder, len(engine_result.clean_ns)) == ("", 12)
    reference.fails_at = reference.calls + 10
    run, _, failure = measured(reference, fake())
    assert str(failure) == "chainer: after 2 trials: RuntimeError: out of order"
    assert run.ended == f"failed: {failure}"
    assert len(run.engines[1].clean_ns) == 2

    def gradient(self, x):
        x = chainer.Variable(x)
        return chainer.grad([self.fc(x)], [x])[0] * 2

    monkeypatch.setattr(Net, "forward", gradient)
    assert "in its forward pass, which engines cannot do" in refusal(measured, reference)


# -- their file


def test_engine_run_survives_a_round_trip_through_its_file(tmp_path):
    odd = result("odd", 10, differences=(OutputDifference(math.inf, 0.0),), note="as is")
    run = make_run(MISSING, odd, WRONG, other_cpu=0.5, ended="interrupted by SIGINT")
    path, runs = tmp_path / RESULTS, recordings()
    assert "contains no run of engines (no engines.json)" in refusal(read_json, path)
    runs["chainer"] = replace(runs["chainer"], conditions=Conditions(other_cpu=0.5))
    for subset in (runs, {}, {"fast": runs["fast"]}):
        path.write_text(write_json(run, subset))
        again = with_recorded_fields(read_json(path), subset)
        assert write_json(again, {}) == write_json(run, {})
        assert (again.settings, again.environment) == (run.settings, run.environment)
        for before, after in zip(run.engines, again.engines, strict=True):
            np.testing.assert_array_equal(before.clean_ns, after.clean_ns)
            assert after.clean_ns.dtype == np.int64
            assert before.differences == after.differences
            assert speedup(after, again.engines[0]) == speedup(before, run.engines[0])
    saved = json.loads(write_json(run, {}), parse_constant=lambda word: pytest.fail(word))
    times = [saved["engines"][0] | {"clean_ns": "1 b"}]
    for content, message in ((saved | {"engines": times}, "damaged"), ({}, "engines file")):
        path.write_text(json.dumps(content))
        assert message in refusal(read_json, path)


def test_engine_without_a_version_is_read_without_one(tmp_path):
    path, runs = tmp_path / RESULTS, recordings()
    unnamed = replace(runs["fast"], settings=replace(SETTINGS, engine="fast"))
    runs["fast"] = replace(unnamed, environment=ENVIRONMENT)
    path.write_text(write_json(make_run(), runs))
    again = with_recorded_fields(read_json(path), runs)
    assert [engine.version for engine in again.engines] == [ENVIRONMENT.chainer, ""]


@pytest.mark.parametrize("version", [None, ""])
def test_engine_may_have_no_version(reference, version):
    fake = FakeEngine(reference.clock, 100)
    fake.version = version
    run, _, _ = measured(reference, fake)
    assert run.engines[1].version == ""


VALID_FILE = json.loads(write_json(make_run(MISSING, WRONG), {}))


def report_or_refuse(path, json_path, change):
    """Change the file of a run; check that it is reported, or refused in one line."""
    content = node = copy.deepcopy(VALID_FILE)
    for step in json_path[:-1]:
        node = node[step]
    change(node, json_path[-1])
    path.write_text(json.dumps(content))
    try:
        run = with_recorded_fields(read_json(path), {})
        engines_csv(run, {})
        markdown.write(report(run, {}))
        list(overview(run, {}))
    except ProfileError as error:
        assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("json_path", json_paths(VALID_FILE), ids=str)
def test_file_without_a_field_is_refused_in_one_line_or_reported(json_path, tmp_path):
    report_or_refuse(tmp_path / RESULTS, json_path, lambda node, key: node.pop(key))


@given(st.sampled_from(json_paths(VALID_FILE)), st.sampled_from(JSON_VALUES))
def test_file_with_another_value_is_refused_in_one_line_or_reported(
    tmp_path_factory, json_path, value
):
    path = tmp_path_factory.getbasetemp() / RESULTS
    report_or_refuse(path, json_path, lambda node, key: node.__setitem__(key, value))


# -- speedups


def test_speedup_is_the_median_ratio_per_round_of_correct_engines():
    slow, fast = result("a", 1000), result("b", 100)
    assert speedup(fast, slow) == Speedup(10.0, 10.0, 10.0)
    assert speedup(slow, fast).factor == pytest.approx(0.1)
    # A single slow round has little effect.
    one_slow_round = result("b", 100, clean_ns=np.where(np.arange(60) < 2, 10, 1) * fast.clean_ns)
    assert speedup(one_slow_round, slow).factor == pytest.approx(10.0)
    # A slow round affects both engines, and not the speedup.
    drift = np.where(np.arange(60) < 20, 5, 1)
    drifting = [result(e.name, 1, clean_ns=e.clean_ns * drift) for e in (slow, fast)]
    assert speedup(drifting[1], drifting[0]) == speedup(fast, slow)
    # Only rounds of both engines count.
    short = result("b", 100, clean_ns=slow.clean_ns[:6] // 4)
    gain = speedup(short, slow)
    assert gain.factor == pytest.approx(4.0)
    assert math.isnan(gain.low)  # three rounds
    # Wrong and failed engines have no speedup.
    for other in (WRONG, MISSING, result("late", 10, error="after 3 trials: it broke")):
        assert speedup(other, slow) is None
        assert speedup(slow, other) is None
    # An engine is wrong if it exceeds the tolerance for any input.
    assert not result("a", 1).wrong
    assert result("a", 1, tolerance=1e-7).wrong
    differences = (OutputDifference(0.0, 2.0), OutputDifference(1.0, 2.0))
    late = result("a", 1, differences=differences)
    assert late.wrong
    assert late.difference == differences[1]
