"""The layers added up: by hand, and by sums that must come out for any paths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.grouping import block_of, common_link
from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.words import GROUPS
from chainer_profile.record.recording import Layer, LinkCalls, Recording
from tests.conftest import make_recording

PHASES = ("forward", "backward", "update", "data")


def near(value: object) -> object:
    return pytest.approx(value, rel=1e-12, abs=1e-15)


def test_blocks_and_the_link_that_is_common_to_all() -> None:
    with pytest.raises(ValueError, match="function, link, block, shape, not by 'colour'"):
        summarise(make_recording()).group("colour")
    for above, blocks in (
        (
            "/",
            {"/": "/", "loss": "loss", "/conv1": "/conv1", "/res2/0/conv1": "/res2/0"}
            | {"/res2/0": "/res2/0", "/res2": "/res2", "/0/conv/1": "/0"}
            | {"/res2/a/conv1": "/res2/a", "/fire/squeeze": "/fire"},
        ),
        (
            "/predictor",
            {"/predictor/res2/0/conv1": "/predictor/res2/0", "/predictor/conv1": "/predictor/conv1"}
            | {"/predictor": "/predictor", "/predictors/a": "/predictors/a", "/": "/"},
        ),
    ):
        assert {path: block_of(path, above) for path in blocks} == blocks, above
    # The predictor's own calls do not make it a block.
    for paths, above in {
        **{"": "/", "/ loss": "/", "/conv": "/", "/ /conv /conv": "/", "/conv1 /conv2": "/"},
        "/predictor/a /predictor/b / data": "/predictor",
        "/predictor /predictor/a /predictor/b": "/predictor",
        "/predictor /predictor/a": "/predictor",
        "/predictor/a/0 /predictor/ab/0": "/predictor",
        "/a/b/c": "/a/b",
    }.items():
        assert common_link(paths.split()) == above, paths
    totals: dict[str, int]
    for times_us, totals in (
        # As in Chainer's ResNet50Layers: /res2/a has links and calls ReLU itself.
        ({"/res2/a/conv1": 5, "/res2/a": 1, "/res2/b1/conv1": 7, "/res2/b1": 1, "/fc": 2},
         {"/res2/b1": 8, "/res2/a": 6, "/fc": 2}),
        ({"/predictor/0/conv": 4, "/predictor": 3, "/predictor/1/conv": 2, "/": 1},
         {"/predictor/0": 4, "/predictor": 3, "/predictor/1": 2, "/": 1}),
    ):  # fmt: skip
        layers = tuple(Layer(at, path, "ReLU") for at, path in enumerate(times_us))
        self_ns = np.array([[us * 1000 for us in times_us.values()]])
        sums_s = summarise(Recording(layers, self_ns)).group("block")["total_s"]
        assert [(name, round(total * 1e6)) for name, total in sums_s.items()] == [*totals.items()]


def test_the_time_with_all_calls_within() -> None:
    rows = (("A", None), ("B", 0), ("A", 1), ("C", None))
    layers = tuple(Layer(at, "/", name, parent=parent) for at, (name, parent) in enumerate(rows))
    table = summarise(Recording(layers, np.array([[1, 2, 4, 8]]) * 10**9)).functions
    assert table["inclusive_s"].to_dict() == near({"C": 8.0, "A": 7.0, "B": 6.0})


NAMES = st.sampled_from(["a", "ab", "0", "1", "conv", "é", "a b"])
LINK_PATHS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))
PATHS = st.one_of(LINK_PATHS, st.sampled_from(["loss", "cleargrads", "optimizer", "data"]))


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Any paths, phases, times and calls; framework by phase, in one, or not known."""
    n_layers, n_trials = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    layers: list[Layer] = []
    for index in range(n_layers):
        phase = draw(st.sampled_from(PHASES))
        forwards = [layer.index for layer in layers if layer.phase == "forward"]
        goes_back = phase == "backward" and forwards and draw(st.booleans())
        layers.append(
            Layer(
                index,
                draw(PATHS),
                draw(st.sampled_from(["ReLU", "Add", "MomentumSGD"])),
                phase,
                input_shapes=draw(st.sampled_from([(), ((1, 3),), ((2,), (3,))])),
                forward=draw(st.sampled_from(forwards)) if goes_back else None,
                calls=draw(st.integers(1, 3)),
            )
        )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = draw(st.sampled_from([1, 2, 10**6]))

    def samples(columns: int) -> np.ndarray:
        return rng.integers(0, most, (n_trials, columns))

    self_ns = samples(n_layers)
    changes: dict[str, object] = {}
    outside = samples(1)[:, 0]
    timed = draw(st.sampled_from(["no", "whole", "by phase"]))
    if timed == "by phase":
        seen = list(dict.fromkeys(layer.phase for layer in layers))
        phases = draw(st.lists(st.sampled_from(PHASES), unique=True, min_size=1))
        phases = draw(st.permutations(list(dict.fromkeys([*phases, *seen]))))
        changes |= {"phases": tuple(phases), "framework_ns": samples(len(phases))}
        outside = outside + np.asarray(changes["framework_ns"]).sum(axis=1)
    if timed != "no":
        changes["trial_ns"] = self_ns.sum(axis=1) + outside
    paths = sorted(draw(st.lists(LINK_PATHS, unique=True, max_size=6)))
    counts = rng.integers(0, 1000, (len(paths), 2)).tolist()
    changes["links"] = tuple(
        LinkCalls(path, "Link", calls % 3, parameters)
        for path, (calls, parameters) in zip(paths, counts, strict=True)
    )
    return Recording(tuple(layers), self_ns, **changes)  # type: ignore[arg-type]


@given(recordings(), st.sampled_from(GROUPS))
def test_groups_and_phases_add_up(recording: Recording, by: str) -> None:
    summary = summarise(recording)
    layers, table = summary.layers, summary.group(by)
    assert table.index.is_unique
    assert math.fsum(table["total_s"]) == near(math.fsum(layers["mean_s"]))
    # One whole for all: the framework is its other part.
    framework, takes_time = summary.totals.framework_share, (layers["mean_s"] > 0).any()
    part = float(takes_time) if framework is None else 1.0 - framework
    assert math.fsum(table["share"]) == near(part)
    assert math.fsum(layers["share"]) == near(part if (layers["median_s"] > 0).any() else 0.0)
    assert table["hot"].sum() == layers["hot"].sum()
    assert table["total_s"].tolist() == sorted(table["total_s"], reverse=True)
    assert (table["calls"] * table["mean_s"]).tolist() == near(table["total_s"].tolist())
    phases = list(layers["phase"].unique())
    for phase in phases:
        of_phase = layers["mean_s"][layers["phase"] == phase]
        assert math.fsum(table[f"{phase}_s"]) == near(math.fsum(of_phase))
    by_phase = table[[f"{phase}_s" for phase in phases]].sum(axis=1)
    assert by_phase.tolist() == near(table["total_s"].tolist())
    forward_calls = layers["calls"][layers["phase"] == "forward"].sum()
    assert forward_calls <= table["calls"].sum() <= layers["calls"].sum()
    if by in ("function", "link"):
        assert set(table.index) == set(layers["path" if by == "link" else by])
    if by == "block":
        assert all(any(path.startswith(name) for path in layers["path"]) for name in table.index)
    # Phases come in the order of their first rows.
    table, totals = summary.phases, summary.totals
    assert list(table.index[table["layers"] > 0]) == phases
    assert table["layers"].sum() == len(layers)
    for phase in phases:
        of_phase = layers["mean_s"][layers["phase"] == phase]
        assert table["layers_s"][phase] == near(math.fsum(of_phase))
        assert table["layers"][phase] == len(of_phase)
    if totals.profiled is None:
        assert table["framework_s"].isna().all()
        assert math.fsum(table["total_s"]) == near(totals.layers_s)
    else:
        assert totals.framework is not None
        assert math.fsum(table["framework_s"]) == near(totals.framework.mean_s)
        assert math.fsum(table["total_s"]) == near(totals.profiled.mean_s)
        for column, phase in enumerate(recording.phases):
            assert recording.framework_ns is not None
            mean_s = recording.framework_ns[:, column].mean() * 1e-9
            assert table["framework_s"][phase] == near(mean_s)
        assert (table["framework_s"] >= 0).all()
    if table["total_s"].sum():
        assert math.fsum(table["share"]) == near(1.0)


def is_below(path: str, link: str) -> bool:
    """Whether a path is this link or in the tree below it."""
    return path == link or (path.startswith("/") and path.startswith(link.rstrip("/") + "/"))


@given(recordings())
def test_the_tree_adds_up(recording: Recording) -> None:
    summary = summarise(recording)
    layers, tree = summary.layers, summary.links
    total = math.fsum(layers["mean_s"])
    assert tree.index.is_unique
    assert set(layers["path"]) <= set(tree.index)
    assert {link.path for link in recording.links} <= set(tree.index)
    top = tree[tree["depth"] == 0]
    assert math.fsum(tree["exclusive_s"]) == near(total)
    assert math.fsum(top["inclusive_s"]) == near(total)
    assert top["hot"].sum() == layers["hot"].sum()
    for phase in layers["phase"].unique():
        of_phase = math.fsum(layers["mean_s"][layers["phase"] == phase])
        assert math.fsum(tree[f"{phase}_exclusive_s"]) == near(of_phase)
        assert math.fsum(top[f"{phase}_inclusive_s"]) == near(of_phase)
    for path, row in tree.iterrows():
        inside = layers[[is_below(other, str(path)) for other in layers["path"]]]
        assert row["inclusive_s"] == near(math.fsum(inside["mean_s"]))
        assert row["hot"] == inside["hot"].sum()
        own = layers["mean_s"][layers["path"] == path]
        assert row["exclusive_s"] == near(math.fsum(own))
        if total:
            profiled = summary.totals.profiled
            whole_s = profiled.mean_s if profiled else total
            assert row["share"] == near(row["inclusive_s"] / whole_s)
        links = {link.path: link for link in recording.links}
        if path in links:
            below = [link.parameters for at, link in links.items() if is_below(at, str(path))]
            assert row["parameters"] == sum(below)
            assert row["calls"] == links[str(path)].calls
        else:
            assert row[["parameters", "calls"]].isna().all()
    # The link above a row is the last row of the level above.
    above: list[str] = []
    for path, depth in tree["depth"].items():
        del above[depth:]
        assert len(above) == depth
        assert not depth or above[-1] == (str(path).rpartition("/")[0] or "/")
        above.append(str(path))
