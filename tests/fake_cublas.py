"""A stand-in for cuBLAS' library that multiplies with NumPy what lies at the addresses it gets.

Its functions have C's types, so that arguments are converted as for the real one. It reads arrays
as cuBLAS does, column by column, and takes its launches to the stand-in for CuPy.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np

from chainer_profile.engines.cublas import SIGNATURES

_TYPES = {0: np.float32, 1: np.float64, 2: np.float16}


def _matrices(address: int, kind: int, shape: tuple[int, int], step: int, between: int, n: int):
    """Matrices by columns, (n, rows, columns), at an address."""
    rows, columns = shape
    assert step >= rows, "a step is not as long as a column"
    dtype = np.dtype(_TYPES[kind])
    size = (n - 1) * between + (columns - 1) * step + rows
    buffer = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
    strides = np.array((between, 1, step)) * dtype.itemsize
    return np.ndarray((n, rows, columns), dtype, buffer, strides=tuple(strides))


class FakeCublas:
    """The library: one handle, one stream, the names of what was called, and what was set."""

    handle = 4711

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.calls: list[str] = []
        self.stream = self.workspace = self.math_mode = self.status = 0
        for name, types in SIGNATURES.items():
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(partial(self._call, name)))

    def _call(self, name: str, handle: Any, *args: Any) -> int:
        self.calls.append(name)
        if name == "cublasCreate_v2":
            handle[0] = handle = self.handle
        assert handle == self.handle
        if name == "cublasSetStream_v2":
            self.stream, self.workspace = args[0] or 0, 0
        elif name == "cublasSetWorkspace_v2":
            self.workspace = args[1]
        elif name == "cublasSetMathMode":
            self.math_mode = args[0]
        elif name == "cublasGemmStridedBatchedEx":
            self._multiply(*args)
        return self.status

    def _multiply(
        self, op_a, op_b, m, n, k, alpha, a, a_kind, lda, a_between, b, b_kind, ldb,
        b_between, beta, c, c_kind, ldc, c_between, count, compute, algorithm,
    ):  # fmt: skip
        assert self.workspace, "it would allocate while a stream captures"
        assert self.stream == self.cupy.cuda.get_current_stream().ptr, "in another stream than CuPy"
        assert (compute, algorithm) == (70 if c_kind == 1 else 68, -1)
        scalar, wide = (ctypes.c_double, "d") if compute == 70 else (ctypes.c_float, "f")
        assert [scalar.from_address(x).value for x in (alpha, beta)] == [1, 0]
        first = _matrices(a, a_kind, (k, m) if op_a else (m, k), lda, a_between, count)
        second = _matrices(b, b_kind, (n, k) if op_b else (k, n), ldb, b_between, count)
        out = _matrices(c, c_kind, (m, n), ldc, c_between, count)

        def multiply() -> None:
            left = first.swapaxes(1, 2) if op_a else first
            right = second.swapaxes(1, 2) if op_b else second
            out[...] = np.matmul(left.astype(wide), right.astype(wide))

        multiply()
        self.cupy._launch("gemm", multiply, out)
