"""Inputs and parameters unlike a network's own, to see what an engine does with them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import chainer
import numpy as np


def other_inputs(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Other inputs of the same shapes and types: what was kept of the first is wrong for them.

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


def with_other_parameters(model: Any) -> Any:
    """A copy of a network with drawn numbers where a parameter's are all the same.

    Initial normalisations (scale 1, shift 0, mean 0, variance 1) and weights of zero hide what is
    done wrongly with them.

    Args:
        model: The network, a :class:`chainer.Link`.

    Returns:
        The copy; None where there is no such parameter or persistent array.
    """
    copied, rng = copy.deepcopy(model), np.random.default_rng(0)
    alike = [array for array in _arrays_of(copied) if bool((array == array.reshape(-1)[0]).all())]
    for array in alike:
        number = float(array.reshape(-1)[0])
        if number:
            drawn = number * rng.uniform(0.5, 1.5, array.shape)
        else:
            scale = np.sqrt(2 / array[0].size) if array.ndim > 1 else 0.3
            drawn = rng.normal(0, scale, array.shape)
        xp = chainer.backend.get_array_module(array)
        array[...] = xp.asarray(drawn, array.dtype)
    return copied if alike else None


def _arrays_of(model: Any) -> Iterator[Any]:
    """Floating-point parameters and persistent arrays."""
    known = chainer.get_array_types()
    for _, link in sorted(model.namedlinks()):
        for name in sorted(link._params | link._persistent):
            value = getattr(link, name)
            array = value.array if isinstance(value, chainer.Variable) else value
            if isinstance(array, known) and array.dtype.kind == "f" and array.size:
                yield array
