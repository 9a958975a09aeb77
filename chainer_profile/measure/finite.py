"""A search for NaN and infinity in a network, once and outside the trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import chainer

from chainer_profile.measure.arguments import arrays_in

OUTPUT = "the output"


def not_finite(
    roots: Sequence[tuple[str, Any]], output: Any = None, gradients: bool = False
) -> tuple[str, ...]:
    """Name the values with NaN or infinity: the output, parameters and, optionally, gradients.

    ``roots`` are pairs of a path's prefix and a network.
    """
    names = [] if all(map(_is_finite, arrays_in(output))) else [OUTPUT]
    for prefix, root in roots:
        for path, parameter in root.namedparams(include_uninit=False):
            if not _is_finite(parameter.array):
                names.append(prefix + path)
            elif gradients and parameter.grad is not None and not _is_finite(parameter.grad):
                names.append(f"the gradient of {prefix}{path}")
    return tuple(dict.fromkeys(names))


def _is_finite(array: Any) -> bool:
    if array.dtype.kind != "f":
        return True
    return bool(chainer.backend.get_array_module(array).isfinite(array).all())
