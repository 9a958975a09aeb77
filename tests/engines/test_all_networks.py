"""Every network of the registry gives the same under every engine that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chainer_profile.engines.catalogue import BASELINE, ENGINES
from chainer_profile.engines.equality import difference
from chainer_profile.engines.protocol import flat_arrays
from chainer_profile.engines.trace import turned
from models import REGISTRY
from tests.engines.varied import given, network, output

_CPU = [entry for entry in ENGINES.values() if not entry.gpu and entry.name != BASELINE]
INSTALLED = [entry for entry in _CPU if not entry.missing()]


def test_the_engines_that_tests_need_are_installed() -> None:
    assert INSTALLED == _CPU


@pytest.fixture(scope="module", params=list(REGISTRY))
def net(request: pytest.FixtureRequest) -> Any:
    return network(*given(request.param), threads=1)


@pytest.fixture(scope="module")
def expected(net: Any) -> list[tuple[Any, Any]]:
    """Two inputs, and Chainer's outputs of them."""
    both = net.inputs, tuple(turned(x) for x in net.inputs)
    return [(inputs, flat_arrays(output(net.model, *inputs))) for inputs in both]


@pytest.fixture(scope="module")
def engines(net: Any) -> dict[str, Any]:
    """Engines of the network that are ready, by their names."""
    return {}


def ready(engines: dict[str, Any], entry: Any, net: Any) -> Any:
    if entry.name not in engines:
        engines[entry.name] = entry.make()
        engines[entry.name].prepare(net)
    return engines[entry.name]


@pytest.mark.parametrize("entry", INSTALLED, ids=lambda entry: entry.name)
def test_outputs_are_chainer_s(
    net: Any, expected: list[tuple[Any, Any]], engines: dict[str, Any], entry: Any
) -> None:
    engine = ready(engines, entry, net)
    for inputs, outputs in expected:
        assert difference(outputs, engine.run(inputs)).relative < 1e-4


def test_weights_that_were_broken_on_purpose_are_seen(net: Any, engines: dict[str, Any]) -> None:
    """The check above would fail if an engine had other weights: here it has."""
    engine = ready(engines, ENGINES["folded"], net)
    last = [link for link in net.model.links() if getattr(link, "W", None) is not None][-1]
    kept = last.W.array.copy()
    try:
        last.W.array[...] *= np.float32(1.01)
        expected = flat_arrays(output(net.model, *net.inputs))
    finally:
        last.W.array[...] = kept
    assert difference(expected, engine.run(net.inputs)).relative > 1e-4
