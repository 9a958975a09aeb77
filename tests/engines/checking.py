"""Whether an exported network that was drawn gives what Chainer gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.equality import other_inputs
from chainer_profile.engines.protocol import EngineError, flat_arrays
from tests.engines.exporting import network_of, output
from tests.engines.random_networks import drawn

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


@dataclass
class Outcome:
    """What came of a network: what was wrong, and why it was refused, if it was."""

    wrong: list[str] = field(default_factory=list)
    refused: str = ""


def check_exported(seed: int, name: str = "onnxruntime") -> Outcome:
    """Draw a network, run it under an engine of that name, and compare it on two inputs."""
    with np.errstate(all="ignore"):
        model, inputs = drawn(seed)
        engine = ENGINES[name].make()
        try:
            engine.prepare(network_of(model, *inputs, threads=1))
        except EngineError as error:
            return Outcome(refused=str(error).partition("@")[0])
        found = Outcome()
        for given in (inputs, other_inputs(inputs)):
            expected = output(model, *given)
            found.wrong += differences(expected, engine.run(given))
        return found
