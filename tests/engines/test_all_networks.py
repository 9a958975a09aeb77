"""Every network of the registry gives the same under every engine that is installed.

Of networks that make the same kinds of calls one runs, and the deepest of all.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from chainer_profile.engines.catalogue import BASELINE, ENGINES
from chainer_profile.engines.equality import difference
from chainer_profile.engines.other_inputs import other_inputs
from chainer_profile.engines.protocol import flat_arrays
from chainer_profile.engines.trace import Value, trace
from models import REGISTRY
from models.resnet import FastHeNormal
from tests.engines.exporting import images, network_of
from tests.engines.varied import given, output

# Kernels of chainer-fast are held by tests/kernels, function by function.
_CPU = [entry for entry in ENGINES.values() if entry.name not in (BASELINE, "chainer-fast")]
INSTALLED = [entry for entry in _CPU if not entry.lacks()]


def test_the_engines_that_tests_need_are_installed() -> None:
    assert INSTALLED == _CPU


#: Networks that do not run here, by one that does and makes the same kinds of calls.
REPEATED = {
    "resnet20-he": ("resnet32-he", "resnet44-he", "resnet56-he", "resnet110-he"),
    "resnet18": ("resnet34", "resnet50-plain", "resnet101-plain", "resnet152-plain"),
    "resnet18-large": ("resnet34-large", "resnet50", "resnet101", "resnet152"),
    "resnet18-bottleneck": ("resnet34-bottleneck", "resnet50-bottleneck", "resnet101-bottleneck"),
}
ONE_OF = {name: one for one, others in REPEATED.items() for name in others}


@lru_cache
def kinds_of_calls(name: str) -> set[str]:
    """Every call with its settings and shapes, and the calls that its input is from and goes to."""
    calls = trace(REGISTRY[name].build(), (images(1, 3, 32, 32),)).calls
    makers = {value.number: call.name for call in calls for value in call.outputs if value}
    takers = defaultdict(list)
    for call in calls:
        for value in call.inputs:
            if isinstance(value, Value):
                takers[value.number].append(call.name)

    def kind(call: Any) -> str:
        settings = {k: v for k, v in call.settings.items() if isinstance(v, int | float)}
        inputs = [(x.shape, makers.get(getattr(x, "number", None))) for x in call.inputs]
        outputs = [(x.shape, *takers[x.number]) for x in call.outputs]
        return repr((call.name, settings, inputs, outputs))

    return {kind(call) for call in calls}


@pytest.mark.parametrize("name", sorted(ONE_OF, key=ONE_OF.get))
def test_a_network_that_does_not_run_makes_the_calls_of_one_that_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FastHeNormal, "__call__", lambda _, array: array.fill(0))
    assert kinds_of_calls(name) == kinds_of_calls(ONE_OF[name])


def test_those_that_run_make_other_calls_than_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastHeNormal, "__call__", lambda _, array: array.fill(0))
    kinds = [kinds_of_calls(name) for name in ("resnet20", *REPEATED)]
    assert all(one != other for at, one in enumerate(kinds) for other in kinds[:at])


@pytest.fixture(scope="module", params=[name for name in REGISTRY if name not in ONE_OF])
def net(request: pytest.FixtureRequest) -> Any:
    return network_of(*given(request.param), threads=1)


@pytest.fixture(scope="module")
def expected(net: Any) -> list[tuple[Any, Any]]:
    """Two inputs, and Chainer's outputs of them."""
    both = net.inputs, other_inputs(net.inputs)
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
    engine = ready(engines, ENGINES["onnxruntime"], net)
    last = [link for link in net.model.links() if getattr(link, "W", None) is not None][-1]
    kept = last.W.array.copy()
    try:
        last.W.array[...] *= np.float32(1.01)
        expected = flat_arrays(output(net.model, *net.inputs))
    finally:
        last.W.array[...] = kept
    assert difference(expected, engine.run(net.inputs)).relative > 1e-4
