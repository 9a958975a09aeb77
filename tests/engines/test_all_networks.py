"""Every network of the registry gives the same under every engine that is installed.

Of networks of the same blocks one runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chainer_profile.engines.catalogue import BASELINE, ENGINES
from chainer_profile.engines.equality import difference, other_inputs
from models import REGISTRY
from tests.engines.exporting import given, network_of, output

# Kernels of chainer-fast are held by tests/kernels, function by function.
_CPU = [entry for entry in ENGINES.values() if entry.name not in (BASELINE, "chainer-fast")]
INSTALLED = [entry for entry in _CPU if not entry.lacks()]


def test_the_engines_that_tests_need_are_installed() -> None:
    assert INSTALLED == _CPU


#: Networks that do not run here: they repeat the blocks of one that does.
REPEATED = {
    *("resnet32-he", "resnet44-he", "resnet56-he", "resnet110-he"),
    *("resnet34", "resnet50-plain", "resnet101-plain", "resnet152-plain"),
    *("resnet34-large", "resnet50", "resnet101", "resnet152"),
    *("resnet34-bottleneck", "resnet50-bottleneck", "resnet101-bottleneck"),
}


@pytest.fixture(scope="module", params=[name for name in REGISTRY if name not in REPEATED])
def net(request: pytest.FixtureRequest) -> Any:
    return network_of(*given(request.param), threads=1)


@pytest.fixture(scope="module")
def expected(net: Any) -> list[tuple[Any, Any]]:
    """Two inputs, and Chainer's outputs of them."""
    both = net.inputs, other_inputs(net.inputs)
    return [(inputs, output(net.model, *inputs)) for inputs in both]


@pytest.mark.slow
@pytest.mark.parametrize("entry", INSTALLED, ids=lambda entry: entry.name)
def test_outputs_are_chainer_s(net: Any, expected: list[tuple[Any, Any]], entry: Any) -> None:
    engine = entry.make()
    engine.prepare(net)
    for inputs, outputs in expected:
        assert difference(outputs, engine.run(inputs)).relative < 1e-4
    if entry.name != "onnxruntime":
        return
    # This would fail if an engine had other weights: here it has.
    last = [link for link in net.model.links() if getattr(link, "W", None) is not None][-1]
    kept = last.W.array.copy()
    try:
        last.W.array[...] *= np.float32(1.01)
        broken = output(net.model, *net.inputs)
    finally:
        last.W.array[...] = kept
    assert difference(broken, engine.run(net.inputs)).relative > 1e-4
