"""The layers added up: by hand, and by sums that must come out for any paths."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.grouping import OUTSIDE, block_of, common_link
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.words import GROUPS
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Layer, LinkCalls, Recording
from tests.conftest import TRAINING_LINKS, make_recording, make_training

US = 1e-6
PHASES = ("forward", "backward", "update", "data")


def near(value: object) -> object:
    return pytest.approx(value, rel=1e-12, abs=1e-15)


def by_hand(*rows: tuple[object, ...], **changes: object) -> Summary:
    """A summary of rows of path, function, phase and time in us."""
    layers = tuple(
        Layer(at, str(path), str(function), str(phase))
        for at, (path, function, phase, _) in enumerate(rows)
    )
    self_ns = np.array([[us for *_, us in rows]], np.int64) * 1000
    return summarise(Recording(layers, self_ns, **changes))  # type: ignore[arg-type]


def test_training_by_block() -> None:
    table = summarise(make_training()).group("block")
    totals = {name: round(total / US) for name, total in table["total_s"].items()}
    assert totals == {
        "/res/0": 10 + 300 + 60 + 10 + 70 + 580 + 30 + 60,
        "/res/1": 300 + 60 + 70 + 600,
        "/conv": 520,
        "/fc": 130,
        "optimizer": 80,
        "/": 50,
        "cleargrads": 40,
        "loss": 30,
    }
    assert table["update_s"]["/res/0"] == near(60 * US)
    assert table["calls"]["/res/0"] == 3


def test_training_by_shape_goes_by_the_forward_call() -> None:
    table = summarise(make_training()).group("shape")
    row = table.loc["Convolution2DFunction 4x8x6x6 8x8x3x3"]
    assert row["calls"] == 3
    assert (round(row["forward_s"] / US), round(row["backward_s"] / US)) == (800, 1480)
    # Only a call that is not known stands for itself.
    assert round(table.loc["gradient_accumulation 4x8x6x6 4x8x6x6"]["backward_s"] / US) == 30
    assert round(table.loc["MomentumSGD 8x8x3x3"]["update_s"] / US) == 50
    assert "WeightDecay" in table.index


def test_rows_of_several_calls() -> None:
    layers = (Layer(0, "/a", "ReLU", calls=2), Layer(1, "/b", "ReLU", calls=3))
    table = summarise(Recording(layers, np.array([[40_000, 60_000]]))).functions
    assert table["calls"]["ReLU"] == 5
    assert table["mean_s"]["ReLU"] == near(20 * US)


def test_unknown_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="function, link, block, shape, not by 'colour'"):
        summarise(make_recording()).group("colour")


@pytest.mark.parametrize(
    ("above", "blocks"),
    [
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
    ],
)
def test_block_of(above: str, blocks: dict[str, str]) -> None:
    assert {path: block_of(path, above) for path in blocks} == blocks


def test_common_link() -> None:
    for paths, above in (
        ("", "/"),
        ("/ loss", "/"),
        ("/conv", "/"),
        ("/ /conv /conv", "/"),
        ("/conv1 /conv2", "/"),
        ("/predictor/a /predictor/b / data", "/predictor"),
        # The predictor's own calls do not make it a block.
        ("/predictor /predictor/a /predictor/b", "/predictor"),
        ("/predictor /predictor/a", "/predictor"),
        ("/predictor/a/0 /predictor/ab/0", "/predictor"),
        ("/a/b/c", "/a/b"),
    ):
        assert common_link(paths.split()) == above, paths


def test_the_own_calls_of_a_block_belong_to_it() -> None:
    # As in Chainer's ResNet50Layers: /res2/a has links and calls ReLU itself.
    summary = by_hand(
        ("/res2/a/conv1", "Convolution2DFunction", "forward", 5),
        ("/res2/a", "ReLU", "forward", 1),
        ("/res2/b1/conv1", "Convolution2DFunction", "forward", 7),
        ("/res2/b1", "ReLU", "forward", 1),
        ("/fc", "LinearFunction", "forward", 2),
    )
    totals = summary.group("block")["total_s"]
    found = {name: round(total / US) for name, total in totals.items()}
    assert found == {"/res2/b1": 8, "/res2/a": 6, "/fc": 2}


def test_a_predictor_with_calls_of_its_own_has_blocks() -> None:
    summary = by_hand(
        ("/predictor/0/conv", "Convolution2DFunction", "forward", 4),
        ("/predictor", "ReLU", "forward", 3),
        ("/predictor/1/conv", "Convolution2DFunction", "forward", 2),
        ("/", "SoftmaxCrossEntropy", "forward", 1),
    )
    blocks = ["/predictor/0", "/predictor", "/predictor/1", "/"]
    assert list(summary.group("block").index) == blocks


def test_phases_of_a_training_step() -> None:
    table = summarise(make_training(data=True)).phases
    assert list(table.index) == ["data", "forward", "backward", "update", OUTSIDE]
    assert table["layers"].tolist() == [2, 9, 11, 5, 0]
    assert table["layers_s"].tolist() == near([400 * US, 1e-3, 1.8e-3, 200 * US, 0.0])
    assert table["framework_s"].tolist() == near([0.0, 300 * US, 250 * US, 100 * US, 50 * US])
    assert table["total_s"].tolist() == near([400 * US, 1.3e-3, 2.05e-3, 300 * US, 50 * US])
    assert table["share"].sum() == near(1.0)
    assert table["share"]["backward"] == near(2.05 / 4.1)


def test_nothing_outside_is_nothing() -> None:
    assert summarise(make_training(outside_us=0)).phases["total_s"][OUTSIDE] == 0.0


def test_one_phase_has_all_of_the_framework() -> None:
    summary = summarise(make_recording())
    assert list(summary.phases.index) == ["forward"]
    assert summary.totals.framework is not None
    assert summary.phases["framework_s"]["forward"] == near(summary.totals.framework.mean_s)


def test_framework_that_is_not_known_by_phase_belongs_to_none() -> None:
    table = summarise(make_training(phases=(), framework_ns=None)).phases
    assert list(table.index) == ["forward", "backward", "update", OUTSIDE]
    assert table["framework_s"].tolist() == near([0.0, 0.0, 0.0, 700 * US])


def test_a_phase_without_layers() -> None:
    recording = make_recording(n_layers=2, n_trials=2, framework_ns=50_000)
    recording = replace(
        recording,
        phases=("forward", "update"),
        framework_ns=np.array([[20_000, 10_000]] * 2, np.int64),
    )
    table = summarise(recording).phases
    assert list(table.index) == ["forward", "update", OUTSIDE]
    assert table["layers"].tolist() == [2, 0, 0]
    assert table["framework_s"].tolist() == near([20 * US, 10 * US, 20 * US])


def test_phases_without_trial_times() -> None:
    table = summarise(make_training(trial_ns=None, start_ns=None)).phases
    assert list(table.index) == ["forward", "backward", "update"]
    assert table["framework_s"].isna().all()
    assert table["share"].tolist() == near([1 / 3, 0.6, 0.2 / 3])


def test_the_tree_of_a_training_step() -> None:
    table = summarise(make_training()).links
    assert list(table.index) == [
        *("/", "/conv", "/res", "/res/0", "/res/0/conv", "/res/0/bn"),
        *("/res/1", "/res/1/conv", "/res/1/bn", "/fc", "/unused"),
        *("loss", "cleargrads", "optimizer"),
    ]
    assert table["name"].tolist()[:6] == ["/", "conv", "res", "0", "conv", "bn"]
    assert table["depth"].tolist() == [0, 1, 1, 2, 3, 3, 2, 3, 3, 1, 1, 0, 0, 0]
    assert table["kind"]["/res/0"] == "Block"
    assert table["kind"]["loss"] == ""
    inclusive = (table["inclusive_s"] / US).round().astype(int)
    assert inclusive["/res/0"] == 300 + 60 + 10 + 10 + 70 + 580 + 30 + 60
    assert inclusive["/res"] == inclusive["/res/0"] + inclusive["/res/1"] == 1120 + 1030
    assert inclusive["/"] == 3000 - 30 - 40 - 80
    assert inclusive[["loss", "cleargrads", "optimizer", "/unused"]].tolist() == [30, 40, 80, 0]
    exclusive = (table["exclusive_s"] / US).round().astype(int)
    assert exclusive[["/", "/res", "/res/0", "/res/0/conv"]].tolist() == [50, 0, 20, 940]
    assert round(table["backward_inclusive_s"]["/res/0"] / US) == 690
    assert round(table["update_exclusive_s"]["/res/0/bn"] / US) == 30
    assert table["parameters"]["/res"] == 2 * 592
    assert table["parameters"]["/"] == 576 + 2 * 592 + 2890 + 100
    assert table["parameters"].isna()["loss"]
    assert table["calls"]["/unused"] == 0
    assert table["calls"].isna()["optimizer"]


def test_a_shared_link_and_one_called_twice() -> None:
    links = (LinkCalls("/", "Net", 1, 0), LinkCalls("/a", "Linear", 2, 5))
    summary = by_hand(
        ("/a", "LinearFunction", "forward", 3),
        ("/", "ReLU", "forward", 1),
        ("/a", "LinearFunction", "forward", 4),
        links=links,
    )
    row = summary.links.loc["/a"]
    assert (row["calls"], row["parameters"], round(row["inclusive_s"] / US)) == (2, 5, 7)
    assert list(summary.links.index) == ["/", "/a"]


def test_a_folded_history_has_one_link() -> None:
    summary = summarise(fold_call_history([("ReLU", 1e-3), ("Add", 2e-3)] * 4))
    assert list(summary.links.index) == ["/"]
    assert summary.links["inclusive_s"]["/"] == near(3e-3)
    assert summary.links["calls"].isna().all()
    assert list(summary.group("block").index) == ["/"]


def test_networks_of_several_optimizers_stand_below_the_root() -> None:
    links = (LinkCalls("/gen", "Gen", 1, 0), LinkCalls("/gen/fc", "Linear", 1, 6))
    summary = by_hand(("/gen/fc", "LinearFunction", "forward", 3), links=links)
    assert summary.links["kind"].tolist() == ["", "Gen", "Linear"]
    assert summary.links["parameters"].isna().tolist() == [True, False, False]


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


@settings(max_examples=40)
@given(recordings(), st.sampled_from(GROUPS))
def test_groups_add_up(recording: Recording, by: str) -> None:
    summary = summarise(recording)
    layers, table = summary.layers, summary.group(by)
    assert table.index.is_unique
    assert math.fsum(table["total_s"]) == near(math.fsum(layers["mean_s"]))
    # Of a group's mean and of a layer's median: either may be zero where the other is not.
    assert math.fsum(table["share"]) == near(float((layers["mean_s"] > 0).any()))
    assert math.fsum(layers["share"]) == near(float((layers["median_s"] > 0).any()))
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


@settings(max_examples=40)
@given(recordings())
def test_phases_add_up_to_the_trial(recording: Recording) -> None:
    summary = summarise(recording)
    layers, table = summary.layers, summary.phases
    assert table["layers"].sum() == len(layers)
    for phase in layers["phase"].unique():
        of_phase = layers["mean_s"][layers["phase"] == phase]
        assert table["layers_s"][phase] == near(math.fsum(of_phase))
        assert table["layers"][phase] == len(of_phase)
    # Phases come in the order of their first rows.
    with_rows = [phase for phase in table.index if table["layers"][phase]]
    assert with_rows == list(layers["phase"].unique())
    if summary.totals.profiled is None:
        assert table["framework_s"].isna().all()
        assert math.fsum(table["total_s"]) == near(summary.totals.layers_s)
    else:
        assert summary.totals.framework is not None
        assert math.fsum(table["framework_s"]) == near(summary.totals.framework.mean_s)
        assert math.fsum(table["total_s"]) == near(summary.totals.profiled.mean_s)
        for column, phase in enumerate(recording.phases):
            assert recording.framework_ns is not None
            known = recording.framework_ns[:, column].mean() * 1e-9
            assert table["framework_s"][phase] == near(known)
        assert (table["framework_s"] >= 0).all()
    if table["total_s"].sum():
        assert math.fsum(table["share"]) == near(1.0)


def is_below(path: str, link: str) -> bool:
    """Whether a path is this link or in the tree below it."""
    return path == link or (path.startswith("/") and path.startswith(link.rstrip("/") + "/"))


@settings(max_examples=40)
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
            assert row["share"] == near(row["inclusive_s"] / total)
        known = {link.path: link for link in recording.links}
        if path in known:
            below = [link.parameters for at, link in known.items() if is_below(at, str(path))]
            assert row["parameters"] == sum(below)
            assert row["calls"] == known[str(path)].calls
        else:
            assert row[["parameters", "calls"]].isna().all()


@settings(max_examples=40)
@given(recordings())
def test_the_tree_is_in_order(recording: Recording) -> None:
    tree = summarise(recording).links
    above: list[str] = []
    for path, depth in tree["depth"].items():
        del above[depth:]
        if depth:
            # The link above is the last row of the level above.
            assert above[-1] == (str(path).rpartition("/")[0] or "/")
        assert len(above) == depth
        above.append(str(path))


@given(st.lists(PATHS, max_size=6))
def test_the_common_link_is_above_all(paths: list[str]) -> None:
    above = common_link(paths)
    inner = [path for path in paths if path.startswith("/") and path != "/"]
    assert all(is_below(path, above) for path in inner)
    # And a block of any call is below it, or that call itself.
    for path in inner:
        block = block_of(path, above)
        assert is_below(block, above)
        assert is_below(path, block)
    if len(set(inner)) > 1:
        deeper = {path[len(above.rstrip("/")) + 1 :].split("/")[0] for path in inner}
        assert len(deeper) > 1 or above in inner


def test_old_recordings_have_no_links() -> None:
    with_links, without = (
        summarise(make_training(links=links)).links for links in (TRAINING_LINKS, ())
    )
    assert list(without.index) == [path for path in with_links.index if path != "/unused"]
    assert without["kind"].tolist() == [""] * len(without)
    assert without["inclusive_s"].tolist() == with_links["inclusive_s"].drop("/unused").tolist()
