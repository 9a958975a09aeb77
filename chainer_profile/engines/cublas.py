"""Matrix products by cuBLAS itself, which CuPy does not call while a stream captures.

CuPy refuses it, as some of cuBLAS' functions cannot be captured; matrix products can, with memory
of one's own to work in (see "CUDA Graphs Support" in cuBLAS' manual). Of Chainer's functions that
are all that convolutions and linear layers need.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
import weakref
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.basics.errors import one_line
from chainer_profile.engines.protocol import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: By data type: cuBLAS' type of arrays, what it adds up in, and the type of its factors.
_TYPES = {"e": (2, 68, ctypes.c_float), "f": (0, 68, ctypes.c_float), "d": (1, 70, ctypes.c_double)}
_AS_IT_IS, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1
_DEFAULT_MATH, _TF32_MATH = 0, 3
#: What cuBLAS takes by itself on the largest of today's GPUs.
_WORKSPACE_NBYTES = 32 << 20

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
#: Types of the arguments of cuBLAS' functions.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (ctypes.POINTER(_POINTER),),
    "cublasDestroy_v2": (_POINTER,),
    "cublasSetStream_v2": (_POINTER, _POINTER),
    "cublasSetWorkspace_v2": (_POINTER, _POINTER, ctypes.c_size_t),
    "cublasSetMathMode": (_POINTER, _INT),
    # Handle; two operations; m, n, k; alpha; three arrays, each with its type, the distance of its
    # columns and of its matrices, and beta before the last one; how many; computed in; algorithm.
    "cublasGemmStridedBatchedEx": (
        *(_POINTER, _INT, _INT, _INT, _INT, _INT),
        *(_POINTER, _POINTER, _INT, _INT, _LONG),
        *(_POINTER, _INT, _INT, _LONG),
        *(_POINTER, _POINTER, _INT, _INT, _LONG),
        *(_INT, _INT, _INT),
    ),
}


def load_library(cuda_version: int) -> Any:
    """The cuBLAS that belongs to a version of CUDA's runtime.

    Args:
        cuda_version: As CUDA gives it: 12090 is 12.9.

    Raises:
        EngineError: It cannot be loaded.
    """
    name = f"libcublas.so.{cuda_version // 1000}"
    try:
        # Where CuPy has used it, it is in the process already, from wherever it came.
        return ctypes.CDLL(name)
    except OSError as error:
        try:
            finder = importlib.import_module("cuda.pathfinder")
            return ctypes.CDLL(finder.load_nvidia_dynamic_lib("cublas").abs_path)
        except Exception:
            raise EngineError(f"cuBLAS cannot be loaded: {one_line(error)}") from error


class CapturedProducts:
    """Matrix products in one stream, which may capture them.

    Args:
        cupy: The module.
        stream: The stream, of the current device.
    """

    def __init__(self, cupy: Any, stream: Any) -> None:
        self._cupy = cupy
        self._stream = stream
        self._library: Any = None
        self._handle = _POINTER()
        # What a captured product works in belongs to it for good.
        self._workspace: Any = None

    @contextmanager
    def instead_of_cupys(self) -> Iterator[None]:
        """Within this, CuPy's functions that multiply matrices call cuBLAS here."""
        cupy = self._cupy
        with ExitStack() as stack:
            for owner, name, product in (
                (cupy, "tensordot", self._tensordot(cupy.tensordot)),
                (cupy, "matmul", self._matmul(cupy.matmul)),
                (cupy, "dot", self._dot(cupy.dot)),
                (cupy.ndarray, "dot", self._dot(cupy.ndarray.dot)),
            ):
                stack.enter_context(_replaced(owner, name, product))
            yield

    def multiply(self, a: Any, b: Any) -> Any:
        """The product of matrices, or of as many matrices each.

        Args:
            a: (rows, k) or (matrices, rows, k), float16, float32 or float64.
            b: (k, columns) or (matrices, k, columns), of the same type.

        Returns:
            (rows, columns) or (matrices, rows, columns).
        """
        cupy = self._cupy
        many = max(a.ndim, b.ndim) > 2
        n_matrices = a.shape[0] if a.ndim > 2 else b.shape[0] if many else 1
        rows, k = a.shape[-2:]
        columns = b.shape[-1]
        shape = (n_matrices, rows, columns) if many else (rows, columns)
        if not math.prod(shape) * k:
            return cupy.zeros(shape, a.dtype)
        self._start()
        (a, a_by_rows, a_step), (b, b_by_rows, b_step) = (self._readable(x) for x in (a, b))
        out = cupy.empty(shape, a.dtype)
        kind, computed_in, factor = _TYPES[a.dtype.char]
        one, zero = factor(1), factor(0)
        # cuBLAS counts along columns: to it, an array by rows is the matrix transposed, so that it
        # multiplies the second by the first for the transposed product.
        self._call(
            "cublasGemmStridedBatchedEx",
            self._handle,
            *(_AS_IT_IS if by_rows else _TRANSPOSED for by_rows in (b_by_rows, a_by_rows)),
            *(columns, rows, k),
            *(ctypes.addressof(one), b.data.ptr, kind, b_step, _matrix_step(b)),
            *(a.data.ptr, kind, a_step, _matrix_step(a)),
            *(ctypes.addressof(zero), out.data.ptr, kind, columns, rows * columns),
            *(n_matrices, computed_in, _DEFAULT_ALGORITHM),
        )
        return out

    def _readable(self, x: Any) -> tuple[Any, bool, int]:
        """An array that cuBLAS can read, whether it is by rows, and the elements of a step."""
        rows, columns = x.shape[-2:]
        row_step, column_step = (step // x.itemsize for step in x.strides[-2:])
        if (column_step == 1 or columns == 1) and (row_step >= columns or rows == 1):
            return x, True, row_step if rows > 1 else columns
        if (row_step == 1 or rows == 1) and (column_step >= rows or columns == 1):
            return x, False, column_step if columns > 1 else rows
        return self._cupy.ascontiguousarray(x), True, columns

    def _start(self) -> None:
        """Make the handle, with the first product: not every network has one."""
        if self._library is not None:
            return
        cupy = self._cupy
        library = load_library(int(cupy.cuda.runtime.runtimeGetVersion()))
        for name, types in SIGNATURES.items():
            getattr(library, name).argtypes = types
        self._library = library
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        weakref.finalize(self, library.cublasDestroy_v2, self._handle).atexit = False
        self._workspace = cupy.empty(_WORKSPACE_NBYTES, np.uint8)
        # In this order: setting the stream takes the workspace back.
        self._call("cublasSetStream_v2", self._handle, self._stream.ptr)
        self._call(
            "cublasSetWorkspace_v2", self._handle, self._workspace.data.ptr, _WORKSPACE_NBYTES
        )
        tf32 = os.environ.get("CUPY_TF32", "0") == "1"
        self._call("cublasSetMathMode", self._handle, _TF32_MATH if tf32 else _DEFAULT_MATH)

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise RuntimeError(f"{name} gives cuBLAS' status {status}")

    # -- CuPy's functions

    def _tensordot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
            if not (_supported(a, b) and a.ndim and b.ndim):
                return original(a, b, axes)
            of_a, of_b = _axes(axes, a.ndim, b.ndim)
            k = math.prod(a.shape[axis] for axis in of_a)
            if [a.shape[axis] for axis in of_a] != [b.shape[axis] for axis in of_b] or not k:
                return original(a, b, axes)
            # As CuPy does it, so that it copies no more than CuPy: the sum goes over the first.
            a, b = _first(a, of_a), _first(b, of_b)
            shape = a.shape[len(of_a) :] + b.shape[len(of_b) :]
            return self.multiply(a.reshape(k, -1).T, b.reshape(k, -1)).reshape(shape)

        return tensordot

    def _matmul(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def matmul(a: Any, b: Any, out: Any = None, **kwargs: Any) -> Any:
            fit = _supported(a, b) and a.ndim and b.ndim and not kwargs
            if not fit or a.shape[-1] != b.shape[max(0, b.ndim - 2)]:
                return original(a, b, out=out, **kwargs)
            dropped = tuple(
                axis for array, axis in ((a, -2), (b, -1)) if array.ndim == 1
            )  # vectors are matrices of one row, or column
            a = a[None] if a.ndim == 1 else a
            b = b[:, None] if b.ndim == 1 else b
            many = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            stacks = [self._stack(array, many) if many else array for array in (a, b)]
            product = self.multiply(*stacks)
            shape = [*many, a.shape[-2], b.shape[-1]]
            for axis in sorted(dropped):
                del shape[axis]
            return self._given(product.reshape(shape), out)

        return matmul

    def _dot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        matmul = self._matmul(lambda a, b, out=None: original(a, b, out))

        def dot(a: Any, b: Any, out: Any = None) -> Any:
            known = _supported(a, b) and a.ndim in (1, 2) and b.ndim in (1, 2)
            return matmul(a, b, out) if known else original(a, b, out)

        return dot

    def _stack(self, array: Any, many: tuple[int, ...]) -> Any:
        """Matrices in one row, as many as the other side has; a single one stays one."""
        if array.ndim == 2:
            return array
        matrix = array.shape[-2:]
        return self._cupy.broadcast_to(array, many + matrix).reshape(-1, *matrix)

    def _given(self, product: Any, out: Any) -> Any:
        if out is None:
            return product
        self._cupy.copyto(out, product)
        return out


def _matrix_step(x: Any) -> int:
    """Elements from matrix to matrix; 0 for one matrix that is used again and again."""
    return int(x.strides[0] // x.itemsize) if x.ndim > 2 else 0


def _supported(a: Any, b: Any) -> bool:
    """Whether both are arrays of a type that cuBLAS multiplies."""
    kinds = {getattr(getattr(x, "dtype", None), "char", "") for x in (a, b)}
    return len(kinds) == 1 and kinds <= _TYPES.keys()


def _axes(axes: Any, of_a: int, of_b: int) -> tuple[list[int], list[int]]:
    """The axes that a tensordot sums over, of both arrays."""
    if isinstance(axes, int):
        return list(range(of_a - axes, of_a)), list(range(axes))
    found = [[part] if isinstance(part, int) else list(part) for part in axes]
    return [axis % of_a for axis in found[0]], [axis % of_b for axis in found[1]]


def _first(array: Any, axes: Sequence[int]) -> Any:
    """A view with these axes first."""
    return array.transpose([*axes, *(axis for axis in range(array.ndim) if axis not in axes)])


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Within this, an attribute is another one."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
