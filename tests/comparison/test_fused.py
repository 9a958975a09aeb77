"""Recordings of several engines: which rows are put together, and that nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import ProfileError
from chainer_profile.comparison.fused import Fusion, engine_name, merged, place, short_name
from tests.fusing import ENGINE, chainer_run, engine_run, in_threes
from tests.recordings import assert_same

N_LAYERS = 7
CONV_BN_RELU = "Convolution2DFunction + FixedBatchNormalization + ReLU"


def test_another_network_and_a_damaged_recording_are_refused():
    chainer = chainer_run(n_layers=3)
    layers = [replace(layer, function="Add") for layer in chainer.layers]
    other = replace(chainer, layers=tuple(layers))
    with pytest.raises(ProfileError) as error:
        merged([chainer, engine_run(other, [(0, 1), (2,)])])
    assert str(error.value) == (
        f"layer 0 is Convolution2DFunction under chainer, and Add under {ENGINE}: "
        "the recordings are not of the same network in test mode"
    )
    engine = engine_run(chainer, [(0, 1), (2,)])
    damaged = replace(engine, layers=(replace(engine.layers[0], covers=(0, 1, 2)),) * 2)
    with pytest.raises(ProfileError, match=r"row 0 .* names 2 layers and covers 3"):
        merged([chainer, damaged])


def test_words():
    assert short_name("ReLU") == "ReLU"
    assert short_name(CONV_BN_RELU) == "Convolution2D + 2 fused"
    assert place(7, ()) == "7"
    assert place(7, (3,)) == "3"
    assert place(7, (3, 4, 5, 9, 11, 12)) == "3-5, 9, 11-12"
    chainer = chainer_run(n_layers=3)
    assert engine_name(chainer) == "chainer"
    assert engine_name(engine_run(chainer, in_threes(3))) == ENGINE
    assert Fusion("chainer", ENGINE, 66, 27, 24).merged
    assert not Fusion("chainer", ENGINE, 66, 66, 66).merged


@st.composite
def recorded(draw):
    """Recordings of Chainer, perhaps, and of engines that do its layers in any way."""
    chainer = chainer_run(draw(st.integers(0, 3)), N_LAYERS, n_trials=2, n_clean=2)
    node = st.sets(st.integers(0, N_LAYERS - 1), max_size=3).map(lambda at: tuple(sorted(at)))
    engines = draw(st.lists(st.lists(node, min_size=1, max_size=8), min_size=1, max_size=3))
    found = [engine_run(chainer, nodes, engine=f"e{at}") for at, nodes in enumerate(engines)]
    return ([chainer] if draw(st.booleans()) else []) + found


def rows_of(recordings):
    """Chainer's layers of every row, before any merging."""
    for recording in recordings:
        for layer in recording.layers:
            yield layer.covers if recording.settings.engine else (layer.index,)


@given(recorded())
def test_groups_are_the_finest_that_no_row_splits(recordings):
    together = np.eye(N_LAYERS, dtype=bool)
    for row in rows_of(recordings):
        together[np.ix_(row, row)] = True
    for _ in range(N_LAYERS):
        together = together @ together
    for recording in merged(recordings):
        for layer in recording.layers:
            if layer.covers:
                assert layer.covers == tuple(np.flatnonzero(together[layer.covers[0]]))


@given(recorded())
def test_rows_and_what_is_no_rows_time_add_up_as_before(recordings):
    for before, after in zip(recordings, merged(recordings), strict=True):
        np.testing.assert_array_equal(after.self_ns.sum(axis=1), before.self_ns.sum(axis=1))
        np.testing.assert_array_equal(after.trial_ns, before.trial_ns)
        assert sum(x.calls for x in after.layers) == len(before.layers)
        assert sum(x.flops for x in after.layers) == sum(x.flops for x in before.layers)
        assert [layer.index for layer in after.layers] == list(range(len(after.layers)))
        kept = [layer.covers for layer in after.layers if layer.covers]
        assert len(kept) == len(set(kept))


@given(recorded())
def test_a_group_is_called_the_same_in_all_recordings(recordings):
    known = {}
    for recording in merged(recordings):
        for layer in recording.layers:
            if layer.covers:
                name = layer.function, layer.path
                assert known.setdefault(layer.covers, name) == name


@given(recorded())
def test_the_order_does_not_matter_and_once_is_enough(recordings):
    once = merged(recordings)
    for a, b in zip(merged(once), once, strict=True):
        assert_same(a, b)
    for order in list(permutations(range(len(recordings))))[1:4]:
        for at, found in zip(order, merged([recordings[i] for i in order]), strict=True):
            assert_same(found, once[at])
