"""Denormal numbers: how many an array has, and how much they slow this processor down."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.threads import limit_blas_threads

#: For each data type, an integer type of the same size, and the bits of the largest denormal.
_INTEGERS: dict[str, tuple[Any, int]] = {
    "f": (np.int32, (1 << 23) - 1),
    "d": (np.int64, (1 << 52) - 1),
}
#: At most this many numbers of an array are examined.
_MAX_NUMBERS = 1 << 18
#: Sizes of the matrices of the timed product, and how often it is timed.
_SIDE, _COLUMNS, _ROUNDS = 256, 16, 3


def denormal_part(array: Any) -> float:
    """The fraction of denormal numbers in an array, from a sample of the numbers if it is large.

    It is 0 for arrays of CuPy, and for half precision, which NumPy computes in software.
    """
    if not isinstance(array, np.ndarray) or array.dtype.char not in "fd" or not array.size:
        return 0.0
    numbers = np.asarray(array).ravel("K")[:: -(-array.size // _MAX_NUMBERS)]
    # Compare integers, because comparing denormal numbers is slow.
    integer, largest_denormal = _INTEGERS[array.dtype.char]
    bits = np.ascontiguousarray(numbers, array.dtype.newbyteorder("=")).view(integer)
    magnitude = bits & np.iinfo(integer).max
    count = np.count_nonzero((magnitude > 0) & (magnitude <= largest_denormal))
    return float(count / bits.size)


def largest_denormal_part(arrays: Iterable[Any]) -> float:
    """The largest fraction of denormal numbers in any of these arrays; 0 without arrays."""
    return max(map(denormal_part, arrays), default=0.0)


def slowdown(part: float, dtype: str, now_ns: NowNs = time.perf_counter_ns) -> float:
    """How many times as long a product takes with denormal numbers as with zeros in their place.

    It runs on one thread: on a busy machine BLAS's threads wait for each other for longer.

    Args:
        part: The fraction of denormal numbers in a matrix.
        dtype: Its data type.
        now_ns: The clock.
    """
    random = np.random.RandomState(0)
    is_denormal = random.uniform(size=(_SIDE, _SIDE)) < part
    other = np.full((_SIDE, _COLUMNS), 0.5, dtype)
    times_ns = []
    for number in (np.finfo(dtype).tiny / 2, 0.0):
        matrix = np.where(is_denormal, number, 1.0).astype(dtype)
        with limit_blas_threads(1):
            times_ns.append(min(_product_ns(matrix, other, now_ns) for _ in range(_ROUNDS)))
    slow_ns, fast_ns = times_ns
    return slow_ns / max(1, fast_ns)


def _product_ns(matrix: Any, other: Any, now_ns: NowNs) -> int:
    began_ns = now_ns()
    np.dot(matrix, other)
    return now_ns() - began_ns
