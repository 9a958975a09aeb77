"""Every network of the registry gives the same under every engine that is installed.

Of networks of the same blocks one runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chainer_profile.engines.catalogue import BASELINE, ENGINES
from chainer_profile.engines.equality import (
    difference,
    other_inputs,
    outputs_of,
    with_other_parameters,
)
from models import REGISTRY
from tests.engines.exporting import images, network_of, prepared

# Kernels of chainer-fast are held by tests/kernels, function by function.
_CPU = [entry for entry in ENGINES.values() if entry.name not in (BASELINE, "chainer-fast")]


def test_the_engines_that_tests_need_are_installed() -> None:
    assert not any(entry.lacks() for entry in _CPU)


#: Networks that do not run here: they repeat the blocks of one that does.
REPEATED = {
    *("resnet32-he", "resnet44-he", "resnet56-he", "resnet110-he"),
    *("resnet34", "resnet50-plain", "resnet101-plain", "resnet152-plain"),
    *("resnet34-large", "resnet50", "resnet101", "resnet152"),
    *("resnet34-bottleneck", "resnet50-bottleneck", "resnet101-bottleneck"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in REPEATED])
def test_outputs_are_chainer_s(name: str, subtests: Any) -> None:
    channels, height, width = REGISTRY[name].input_shape
    side = height if name == "resnet34-relu-bn" else min(height, 32)
    # None of its parameters hides anything.
    net = network_of(
        with_other_parameters(REGISTRY[name].build()),
        images(1, channels, side, min(side, width), seed=2),
        threads=1,
    )
    both = net.inputs, other_inputs(net.inputs)
    expected = [outputs_of(net.model, inputs) for inputs in both]
    # The check would fail if an engine had other weights: here it has.
    last = [link for link in net.model.links() if getattr(link, "W", None) is not None][-1]
    kept = last.W.array.copy()
    last.W.array[...] *= np.float32(1.01)
    assert difference(outputs_of(net.model, net.inputs), expected[0]).relative > 1e-4
    last.W.array[...] = kept
    for entry in _CPU:
        with subtests.test(entry.name):
            engine = prepared(entry.make, net)
            for inputs, outputs in zip(both, expected, strict=True):
                assert difference(outputs, engine.run(inputs)).relative < 1e-4
