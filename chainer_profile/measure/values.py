"""A search for NaN, infinity and denormal numbers in a network, outside of the trials."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import chainer

from chainer_profile.basics.words import BACKWARD, UPDATE
from chainer_profile.measure.arguments import arrays_in
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.denormals import denormal_part, slowdown
from chainer_profile.measure.rows import Row
from chainer_profile.record.recording import Denormals

OUTPUT = "the output"
#: A smaller part of denormal numbers is not reported.
_MIN_PART = 1e-3
#: The least slowdown that is reported.
_MIN_SLOWDOWN = 1.5
#: Arrays that are reported at most.
_MAX_REPORTED = 20


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


def find_denormals(
    roots: Sequence[tuple[str, Any]], rows: Iterable[Row] = (), now_ns: NowNs = time.perf_counter_ns
) -> tuple[Denormals, ...]:
    """The arrays with denormal numbers that slow this processor down.

    Args:
        roots: Pairs of a path's prefix and a network, for its parameters and the optimizer's state
            of them.
        rows: Rows, for the inputs and outputs of their call sites.
        now_ns: The clock that measures the slowdown.
    """
    found = [*_denormal_parameters(roots), *_denormal_rows(rows)]
    found = [each for each in found if each.part >= _MIN_PART]
    slowdown_of = cache(lambda percent, dtype: slowdown(percent / 100, dtype, now_ns))
    reported = []
    for each in sorted(found, key=lambda each: -each.part)[:_MAX_REPORTED]:
        times = slowdown_of(max(0.1, round(100 * each.part, 1)), each.dtype)
        if times >= _MIN_SLOWDOWN:
            reported.append(replace(each, slowdown=times))
    return tuple(reported)


def _denormal_parameters(roots: Sequence[tuple[str, Any]]) -> Iterator[Denormals]:
    """Yield the part of denormal numbers in parameters, and in the optimizer's state of them."""
    for prefix, root in roots:
        for path, parameter in root.namedparams(include_uninit=False):
            name = prefix + path
            link, array = name.rpartition("/")[0] or "/", parameter.array
            yield Denormals(name, link, part=denormal_part(array), dtype=str(array.dtype))
            state = getattr(getattr(parameter, "update_rule", None), "state", None) or {}
            for key, array_of_state in state.items():
                if part := denormal_part(array_of_state):
                    of_state = f"the optimizer's {key} of {name}"
                    yield Denormals(of_state, link, "", UPDATE, part, str(array_of_state.dtype))


def _denormal_rows(rows: Iterable[Row]) -> Iterator[Denormals]:
    """Yield the part of denormal numbers in the arrays of each row with any."""
    for row in rows:
        sites = [sums.site for sums in row.sums.values() if sums.site is not None]
        if part := max((site.denormal_part for site in sites), default=0.0):
            what = "gradients" if row.phase == BACKWARD else "inputs or outputs"
            name = f"the {what} of {row.path} {row.function}"
            dtype = sites[0].fields.get("dtype") or "float32"
            yield Denormals(name, row.path, row.function, row.phase, part, dtype)
