"""Inputs unlike a network's own: what an engine kept of those is wrong for them."""

from __future__ import annotations

from typing import Any

import chainer
import numpy as np


def other_inputs(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Other inputs of the same shapes and types.

    Numbers are drawn from those that are there, and floating-point ones between two of them, so
    that what is valid stays valid (an index, a label, a positive number). It is no permutation of
    them: sums and extremes differ. Where all numbers are the same, floating-point ones are drawn
    about it.
    """
    rng = np.random.default_rng(0)
    return tuple(_other(array, rng) for array in inputs)


def _other(array: Any, rng: np.random.Generator) -> Any:
    xp = chainer.backend.get_array_module(array)
    known = np.asarray(array if xp is np else array.get()).reshape(-1)
    if not known.size:
        return array.copy()
    drawn = known[rng.integers(known.size, size=known.size)]
    if known.dtype.kind == "f":
        drawn = _between(drawn, known, rng)
    return xp.asarray(drawn.astype(known.dtype).reshape(array.shape))


def _between(drawn: Any, known: Any, rng: np.random.Generator) -> Any:
    finite = known[np.isfinite(known)].astype(np.float64)
    if not finite.size:
        return drawn
    if finite.min() == finite.max():
        return finite[0] + rng.standard_normal(known.size) * (abs(finite[0]) or 1.0)
    part = rng.uniform(0.25, 1.0, known.size)
    with np.errstate(invalid="ignore"):
        return part * drawn.astype(np.float64) + (1 - part) * rng.choice(finite, known.size)
