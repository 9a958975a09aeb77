"""Recordings of several engines: the merged rows, and no loss of time."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.comparison.fused import merged
from tests.fusing import ENGINE, chainer_run, engine_run
from tests.recordings import assert_same
from tests.refusing import refusal

N_LAYERS = 7


def test_other_network_and_inconsistent_recording_are_refused():
    chainer = chainer_run(n_layers=3)
    layers = tuple(replace(layer, function="Add") for layer in chainer.layers)
    engine = engine_run(replace(chainer, layers=layers), [(0, 1), (2,)])
    assert refusal(merged, [chainer, engine]) == (
        f"layer 0 is Convolution2DFunction under chainer, and Add under {ENGINE}: "
        "the recordings are not of the same network in test mode"
    )
    damaged = replace(engine, layers=(replace(engine.layers[0], covers=(0, 1, 2)),) * 2)
    message = refusal(merged, [chainer, damaged])
    assert re.search(r"row 0 .* names 2 layers and covers 3", message)


@st.composite
def recorded(draw):
    """Draw recordings of engines that fuse layers in any way, and maybe one of Chainer."""
    chainer = chainer_run(draw(st.integers(0, 3)), N_LAYERS, n_trials=2, n_clean=2)
    node = st.sets(st.integers(0, N_LAYERS - 1), max_size=3).map(lambda at: tuple(sorted(at)))
    engines = draw(st.lists(st.lists(node, min_size=1, max_size=8), min_size=1, max_size=3))
    others = [engine_run(chainer, nodes, engine=f"e{at}") for at, nodes in enumerate(engines)]
    return ([chainer] if draw(st.booleans()) else []) + others


@given(recorded())
def test_groups_are_minimal_and_keep_all_time(recordings):
    """Groups are as small as possible and have the same names everywhere. No time is lost."""
    together, names = np.eye(N_LAYERS, dtype=bool), {}
    for recording in recordings:
        for layer in recording.layers:
            row = layer.covers if recording.settings.engine else (layer.index,)
            together[np.ix_(row, row)] = True
    for _ in range(N_LAYERS):
        together = together @ together
    once = merged(recordings)
    for before, after in zip(recordings, once, strict=True):
        np.testing.assert_array_equal(after.self_ns.sum(axis=1), before.self_ns.sum(axis=1))
        np.testing.assert_array_equal(after.trial_ns, before.trial_ns)
        assert sum(x.calls for x in after.layers) == len(before.layers)
        assert sum(x.flops for x in after.layers) == sum(x.flops for x in before.layers)
        assert [layer.index for layer in after.layers] == list(range(len(after.layers)))
        groups = [layer for layer in after.layers if layer.covers]
        for layer in groups:
            assert layer.covers == tuple(np.flatnonzero(together[layer.covers[0]]))
            name = layer.function, layer.path
            assert names.setdefault(layer.covers, name) == name
        assert len(groups) == len({layer.covers for layer in groups})
    # The order of the recordings does not matter, and fusing again changes nothing.
    for a, b in zip(merged(once), once, strict=True):
        assert_same(a, b)
    for order in list(permutations(range(len(recordings))))[1:4]:
        for at, others in zip(order, merged([recordings[i] for i in order]), strict=True):
            assert_same(others, once[at])
