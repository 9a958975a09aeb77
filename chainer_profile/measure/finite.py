"""What of a network holds NaN or an infinity: looked at once, beside the trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import chainer

from chainer_profile.measure.arguments import arrays_in

OUTPUT = "the output"


def not_finite(
    roots: Sequence[tuple[str, Any]], output: Any = None, gradients: bool = False
) -> tuple[str, ...]:
    """Names of all that is not finite: the output, parameters by their paths, their gradients."""
    parts = [] if all(map(_is_finite, arrays_in(output))) else [OUTPUT]
    for prefix, root in roots:
        for path, parameter in root.namedparams(include_uninit=False):
            if not _is_finite(parameter.array):
                parts.append(prefix + path)
            elif gradients and parameter.grad is not None and not _is_finite(parameter.grad):
                parts.append(f"the gradient of {prefix}{path}")
    return tuple(dict.fromkeys(parts))


def _is_finite(array: Any) -> bool:
    if array.dtype.kind != "f":
        return True
    return bool(chainer.backend.get_array_module(array).isfinite(array).all())
