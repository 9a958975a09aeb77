"""A stand-in for cuBLAS' library that multiplies with NumPy what lies at the addresses it gets.

Its functions have C's types, so that arguments are converted as for the real one. It reads arrays
as cuBLAS does, column by column, and takes its launches to the stand-in for CuPy.
"""

from __future__ import annotations

import ctypes
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
    flat = np.frombuffer(buffer, dtype)
    strides = np.array((between, 1, step)) * dtype.itemsize
    return np.lib.stride_tricks.as_strided(flat, (n, rows, columns), strides)


class FakeCublas:
    """The library: one handle, one stream.

    Attributes:
        calls: Names of its functions in the order of the calls.
        stream: The stream that was set last.
        workspace: Address and size of the workspace; 0 after the stream was set.
        math_mode: What was set.
    """

    handle = 4711

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stream = self.math_mode = 0
        self.workspace: tuple[int, int] = (0, 0)
        self.status = 0
        for name, types in SIGNATURES.items():
            wrapped = ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._call(name))
            setattr(self, name, wrapped)

    def _call(self, name: str) -> Any:
        done = getattr(self, f"_{name}")

        def call(*args: Any) -> int:
            self.calls.append(name)
            if name != "cublasCreate_v2":
                assert args[0] == self.handle
            done(*args)
            return self.status

        return call

    def _cublasCreate_v2(self, handle: Any) -> None:  # noqa: N802
        handle[0] = self.handle

    def _cublasDestroy_v2(self, handle: int) -> None:  # noqa: N802
        pass

    def _cublasSetStream_v2(self, handle: int, stream: int | None) -> None:  # noqa: N802
        self.stream, self.workspace = stream or 0, (0, 0)

    def _cublasSetWorkspace_v2(self, handle: int, address: int, size: int) -> None:  # noqa: N802
        self.workspace = address, size

    def _cublasSetMathMode(self, handle: int, mode: int) -> None:  # noqa: N802
        self.math_mode = mode

    def _cublasGemmStridedBatchedEx(  # noqa: N802
        self, handle, op_a, op_b, m, n, k, alpha, a, a_kind, lda, a_between, b, b_kind, ldb,
        b_between, beta, c, c_kind, ldc, c_between, count, compute, algorithm,
    ):  # fmt: skip
        from cupy import cuda, fake

        assert self.workspace[1], "it would allocate while a stream captures"
        assert self.stream == cuda.get_current_stream().ptr, "in another stream than CuPy"
        assert compute == (70 if c_kind == 1 else 68)
        assert algorithm == -1
        scalar = ctypes.c_double if compute == 70 else ctypes.c_float
        factors = [scalar.from_address(x).value for x in (alpha, beta)]
        first = _matrices(a, a_kind, (k, m) if op_a else (m, k), lda, a_between, count)
        second = _matrices(b, b_kind, (n, k) if op_b else (k, n), ldb, b_between, count)
        out = _matrices(c, c_kind, (m, n), ldc, c_between, count)

        def multiply() -> None:
            left = first.swapaxes(1, 2) if op_a else first
            right = second.swapaxes(1, 2) if op_b else second
            wide = np.float64 if compute == 70 else np.float32
            out[...] = factors[0] * np.matmul(left.astype(wide), right.astype(wide))

        assert factors == [1, 0]
        multiply()
        fake.launch(0, "gemm", again=multiply, new=[out])
