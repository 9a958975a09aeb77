"""Is what an engine gives right, on a network that was drawn?"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from chainer_profile import optimize
from chainer_profile.engines.other_inputs import other_inputs
from chainer_profile.engines.protocol import flat_arrays
from tests.engines.random_networks import drawn, other_batch
from tests.engines.varied import output

#: The largest difference that is right, by the bytes of a number, as a part of the largest one.
TOLERANCES = {2: 2e-2, 4: 1e-3, 8: 1e-9}


def differences(expected: Any, got: Any) -> list[str]:
    """How outputs differ, in words."""
    ours, theirs = flat_arrays(expected), flat_arrays(got)
    if type(expected) is not type(got) or len(ours) != len(theirs):
        return [f"{type(got).__name__} of {len(theirs)} for {type(expected).__name__}"]
    found = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            found.append(f"output {number} is {b.dtype}{b.shape} in place of {a.dtype}{a.shape}")
            continue
        if not a.size:
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            found.append(f"output {number} has other infinite numbers")
            continue
        most = abs(np.where(finite, x, 0)).max() or 1.0
        off = abs(np.where(finite, x - np.where(finite, y, 0), 0)).max() / most
        if not off <= TOLERANCES.get(a.dtype.itemsize, 0):
            found.append(f"output {number} is off by {off:.2g}")
    return found


class Outcome:
    """What came of a network: what was wrong, and what the engine said."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.said: list[str] = []
        self.planned = False

    def compare(self, when: str, model: Any, engine: Any, inputs: tuple[Any, ...]) -> None:
        expected = output(model, *inputs)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = output(engine, *inputs)
        self.said += [str(one.message) for one in caught if "optimize:" in str(one.message)]
        self.wrong += [f"{when}: {found}" for found in differences(expected, got)]


def check_optimized(seed: int) -> Outcome:
    """Draw a network, optimize it, and compare it in many calls."""
    with np.errstate(all="ignore"):
        model, inputs = drawn(seed)
        found = Outcome()
        fast = optimize(model)
        for number in range(3):  # its own call, the planning one, the plan's
            found.compare(f"call {number}", model, fast, inputs)
        plans = vars(fast)["_folded"]
        plans.without.clear()  # that a plan is slow is no reason not to check it
        found.compare("planned", model, fast, inputs)
        found.planned = bool(plans.planned)
        found.compare("other numbers", model, fast, other_inputs(inputs))
        smaller = other_batch(inputs, 1 + seed % 3, seed)
        for number in range(3):
            found.compare(f"another batch {number}", model, fast, smaller)
        for parameters in zip(model.params(), fast.params(), strict=True):
            for parameter in parameters:
                parameter.array[...] *= 0.75
        for number in range(3):
            found.compare(f"other parameters {number}", model, fast, inputs)
        return found


def check_exported(seed: int) -> Outcome:
    """Draw a network, run it under ONNX Runtime, and compare it on two inputs."""
    from chainer_profile.engines.protocol import EngineError
    from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
    from tests.engines.exporting import network_of

    with np.errstate(all="ignore"):
        model, inputs = drawn(seed)
        found, engine = Outcome(), OnnxRuntimeEngine()
        try:
            engine.prepare(network_of(model, *inputs, threads=1))
        except EngineError as error:
            found.said.append(str(error).partition("@")[0])
            return found
        found.planned = True
        for given in (inputs, other_inputs(inputs)):
            expected = flat_arrays(output(model, *given))
            found.wrong += differences(expected, engine.run(given))
        return found
