"""CUDA kernels without a GPU: NVRTC compiles them like CuPy, and g++ builds them for the CPU.

This needs a process in which ``import cupy`` imports the fake CuPy (tests/fake_cupy). There,
:func:`start` replaces the kernels of the fake CuPy, which compute nothing. The installed CuPy
generates the source of each kernel. g++ builds it, and it runs on NumPy arrays as one block of one
thread.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.special

from tests import ROOT

#: Functions that CUDA and SciPy have, but C++ lacks.
SCIPY_FUNCTIONS = {
    "erfcx": scipy.special.erfcx,
    "erfinv": scipy.special.erfinv,
    "erfcinv": scipy.special.erfcinv,
    "normcdf": scipy.special.ndtr,
    "normcdfinv": scipy.special.ndtri,
}
#: Other CUDA names that C++ lacks, for one thread; and a launcher that takes pointers to arguments,
#: like cuLaunchKernel.
SHIM = """
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <utility>
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
struct Index { unsigned x, y, z; };
static const Index blockDim{1, 1, 1}, gridDim{1, 1, 1}, blockIdx{0, 0, 0}, threadIdx{0, 0, 0};
static void __syncthreads() {}
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static float __int_as_float(int x) { float y; memcpy(&y, &x, sizeof y); return y; }
static double __longlong_as_double(long long x) { double y; memcpy(&y, &x, sizeof y); return y; }
static unsigned short __float2half_rn(float x) {
    _Float16 y = x;
    unsigned short z;
    memcpy(&z, &y, sizeof z);
    return z;
}
static float __half2float(unsigned short x) { _Float16 y; memcpy(&y, &x, sizeof y); return y; }
template <class T> unsigned short __half_as_ushort(T x);
struct __half_raw;
__half_raw __ushort_as_half(unsigned short x);
template <class T, class U> T atomicAdd(T* p, U x) { T old = *p; *p += x; return old; }
#define __expf expf
#define __logf logf
static int __float2int_rd(float x) { return floorf(x); }
template <class T, class U> auto min(T a, U b) { return b < a ? b : a; }
template <class T, class U> auto max(T a, U b) { return a < b ? b : a; }
template <class T> T rsqrt(T x) { return 1 / sqrt(x); }
#include <cupy/carray.cuh>
#include <cupy/math_constants.h>
#include <cupy/float16.cuh>
template <class... P, size_t... I>
void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<P*>(arguments[I])...);
}
template <class... P> void call(void (*kernel)(P...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<P...>());
}
""" + "".join(
    f"""extern "C" {{ double (*scipy_{name})(double); }}
static double {name}(double x) {{ return scipy_{name}(x); }}
"""
    for name in SCIPY_FUNCTIONS
)
LAUNCHER = """
extern "C" void launcher(void** arguments) {{ call(&{name}, arguments); }}
"""
DOUBLE_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
_CALLBACKS = {
    f"scipy_{name}": DOUBLE_FUNCTION(function) for name, function in SCIPY_FUNCTIONS.items()
}
ARRAY, INDEXER, SCALAR = 1, 2, 3  # CuPy's kinds of arguments


@dataclass
class Kernel:
    """The result of compiling and building a kernel with arguments of certain types."""

    name: str
    error_messages: str  #: Error messages of NVRTC or g++.
    launcher: Any = None  #: None if the kernel is only compiled.
    n_runs: int = 0


class Compiler:
    """The installed CuPy's code generator, NVRTC and g++, with a cache by source."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.kernels: dict[str, Kernel] = {}
        self.cupy: Any = importlib.import_module("cupy")
        home = Path(self.cupy.__file__).parent
        # CuPy itself does not look here.
        for library in home.parent.glob("nvidia/*/lib/libnvrtc.so.*"):
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        self.nvrtc: Any = importlib.import_module("cupy_backends.cuda.libs.nvrtc")
        self.versions = (self.cupy.__version__, self.nvrtc.getVersion())
        self.core: Any = importlib.import_module("cupy._core.core")
        self.kernel: Any = importlib.import_module("cupy._core._kernel")
        self.reduction: Any = importlib.import_module("cupy._core._reduction")
        self.scalar: Any = importlib.import_module("cupy._core._scalar").CScalar
        self.indexer: Any = importlib.import_module("cupy._core._carray").Indexer
        # The fake CuPy has the same name.
        for name in [*sys.modules]:
            if name.partition(".")[0] in ("cupy", "cupyx"):
                del sys.modules[name]
        header = Path(self.folder.name, "shim.hpp")
        header.write_text(SHIM)
        self._gcc = ["g++", "-std=c++17", "-O1", "-w", "-fPIC", f"-I{home}/_core/include"]
        subprocess.run([*self._gcc, str(header)], check=True)

    def __call__(self, name: str, source: str, for_cpu: str = "", options: Any = ()) -> Kernel:
        """Compile and build a kernel, unless it is in the cache."""
        if source not in self.kernels:
            kernel = self.kernels[source] = Kernel(name, self._compile(source, options))
            if for_cpu and not kernel.error_messages:
                self._build(kernel, for_cpu)
        kernel = self.kernels[source]
        if kernel.error_messages:
            raise RuntimeError(kernel.error_messages)
        return kernel

    def _compile(self, source: str, options: Any) -> str:
        headers = "".join(f"#include <{name}>\n" for name in self.core._cupy_header_list)
        flags = self.core.assemble_cupy_compiler_options(tuple(options))
        program = self.nvrtc.createProgram(headers + source, "kernel.cu", (), ())
        try:
            self.nvrtc.compileProgram(
                program, (*flags, "--device-as-default-execution-space", "-arch=sm_80")
            )
        except self.nvrtc.NVRTCError as error:
            return f"NVRTC: {self.nvrtc.getProgramLog(program) or error}"
        finally:
            self.nvrtc.destroyProgram(program)
        return ""

    def _build(self, kernel: Kernel, source: str) -> None:
        path = f"{self.folder.name}/{len(self.kernels)}.so"
        shim = f"{self.folder.name}/shim.hpp"
        command = [*self._gcc, "-shared", "-include", shim, "-x", "c++", "-", "-o", path]
        code = source + LAUNCHER.format(name=kernel.name)
        result = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
        if result.returncode:
            kernel.error_messages = f"g++: {result.stderr}"
            return
        library = ctypes.CDLL(path)
        for name, callback in _CALLBACKS.items():
            pointer = ctypes.c_void_p.in_dll(library, name)
            pointer.value = ctypes.cast(callback, ctypes.c_void_p).value
        kernel.launcher = library.launcher


class _Launch:
    """Arguments of a launch: types for the code generator, and values."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._values: list[np.ndarray] = []
        self.infos: tuple[Any, ...] = ()

    def _add(self, kind: int, cls: Any, dtype: Any, n_axes: int, dense: bool, value: Any) -> None:
        self.infos += (self._compiler.kernel._ArgInfo(kind, cls, dtype, n_axes, dense, True),)
        self._values.append(value)

    def array(self, a: np.ndarray) -> None:
        value = np.array([a.ctypes.data, a.size, *a.shape, *a.strides], np.int64)
        self._add(ARRAY, self._compiler.cupy.ndarray, a.dtype, a.ndim, a.flags.c_contiguous, value)

    def scalar(self, value: Any, dtype: Any) -> None:
        value = np.array(value).astype(dtype)
        self._add(SCALAR, self._compiler.scalar, value.dtype, 0, True, value)

    def indexer(self, shape: tuple[int, ...]) -> None:
        value = np.array([math.prod(shape), *shape, *shape], np.int64)
        self._add(INDEXER, self._compiler.indexer, None, len(shape), True, value)

    def run(self, kernel: Kernel) -> None:
        kernel.n_runs += 1
        pointers = [value.ctypes.data for value in self._values]
        kernel.launcher((ctypes.c_void_p * len(pointers))(*pointers))


class _InterceptedKernel:
    """A CuPy kernel that runs on the CPU."""

    compiler: ClassVar[Compiler]
    stand_in: ClassVar[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.real = getattr(self.compiler.cupy, type(self).__name__)(*args, **kwargs)

    def _broadcast(self, args: Any) -> tuple[list[Any], tuple[int, ...] | None]:
        """Broadcast all arrays that are not raw; return arguments and the common shape."""
        real = self.real
        if len(args) not in (real.nin, real.nin + real.nout):
            raise TypeError(f"Wrong number of arguments for {real.name}")
        values, boxes = list(args), self.stand_in.ndarray
        for i, value in enumerate(values):
            if isinstance(value, boxes):
                values[i] = value.host
            else:
                self.compiler.scalar(value)  # raises TypeError unless it is a number
        params = real.in_params + real.out_params
        not_raw = [
            i
            for i, (value, param) in enumerate(zip(values, params, strict=False))
            if isinstance(value, np.ndarray) and not param.raw
        ]
        if not not_raw:
            return values, None
        # Outputs are not broadcast, so their shapes must match.
        same = np.broadcast_arrays(*(values[i] for i in not_raw))
        for i, value in zip(not_raw, same, strict=True):
            if i < real.nin:
                values[i] = value
        return values, same[0].shape

    def _types(self, values: list[Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Types of inputs, types of outputs, and types by name in the code."""
        real = self.real
        types = [value.dtype if isinstance(value, np.ndarray) else None for value in values]
        ins, outs, _ = self.compiler.kernel._decide_params_type(
            real.in_params, real.out_params, tuple(types[: real.nin]), tuple(types[real.nin :])
        )
        named = zip(real.in_params + real.out_params, (*ins, *outs), strict=True)
        return ins, outs, {p.ctype: np.dtype(t).type for p, t in named if p.dtype is None}

    def _outputs(self, outputs: Any, types: Any, shape: tuple[int, ...]) -> list[Any]:
        outs = list(outputs) or [self.stand_in.ndarray(shape, dtype) for dtype in types]
        for out, param in zip(outs, self.real.out_params, strict=True):
            if not param.raw and out.shape != shape:
                raise ValueError("Out shape is mismatched")
        return outs

    def _fewest_axes(
        self, arrays: list[Any], params: Any, shape: tuple[int, ...]
    ) -> tuple[list[Any], tuple[int, ...]]:
        """Reshape dense arrays to one axis. CuPy also joins other axes, for speed."""
        not_raw = [
            isinstance(a, np.ndarray) and not p.raw for a, p in zip(arrays, params, strict=True)
        ]
        dense = all(a.flags.c_contiguous for a, w in zip(arrays, not_raw, strict=True) if w)
        if not (self.real.reduce_dims and dense and any(not_raw) and len(shape) > 1):
            return arrays, shape
        flat = [a.reshape(-1) if w else a for a, w in zip(arrays, not_raw, strict=True)]
        return flat, (math.prod(shape),)

    def _launch(self, arrays: list[Any], types: Any) -> _Launch:
        launch = _Launch(self.compiler)
        for value, dtype in zip(arrays, types, strict=True):
            launch.array(value) if isinstance(value, np.ndarray) else launch.scalar(value, dtype)
        return launch


class ElementwiseKernel(_InterceptedKernel):
    def __call__(self, *args: Any, size: int | None = None, **_: Any) -> Any:
        real = self.real
        values, shape = self._broadcast(args)
        if (shape is None) == (size is None):
            raise ValueError("size is required if, and only if, all arrays are raw")
        ins, outs, named = self._types(values)
        shape = (size,) if shape is None else shape
        boxes = self._outputs(args[real.nin :], outs, shape)
        result = boxes[0] if len(boxes) == 1 and not real.return_tuple else tuple(boxes)
        self.stand_in._launch()
        if math.prod(shape):
            arrays, shape = self._fewest_axes(
                values[: real.nin] + [box.host for box in boxes], real.params[:-1], shape
            )
            launch = self._launch(arrays, (*ins, *outs))
            launch.indexer(shape)
            source = self.compiler.kernel._get_elementwise_kernel_code(
                launch.infos,
                self.compiler.kernel._TypeMap(tuple(sorted(named.items()))),
                *(real.params, real.operation, real.name, real.preamble),
                **real.kwargs,
            )
            options = real.kwargs.get("options", ())
            launch.run(self.compiler(real.name, source, source, options))
        return None if real.no_return else result


class ReductionKernel(_InterceptedKernel):
    def __call__(
        self, *args: Any, axis: Any = None, keepdims: bool = False, out: Any = None
    ) -> Any:
        real = self.real
        args = args if out is None else (*args, out)
        values, in_shape = self._broadcast(args)
        ins, outs, named = self._types(values)
        n_axes = len(in_shape)
        reduced = range(n_axes) if axis is None else np.atleast_1d(axis) % n_axes
        reduced = tuple(sorted(reduced))
        remaining = tuple(i for i in range(n_axes) if i not in reduced)
        shape = tuple(in_shape[i] for i in remaining)
        kept_shape = tuple(1 if i in reduced else n for i, n in enumerate(in_shape))
        boxes = self._outputs(args[real.nin :], outs, kept_shape if keepdims else shape)
        arrays = [
            a.transpose(reduced + remaining) if isinstance(a, np.ndarray) and not p.raw else a
            for a, p in zip(values[: real.nin], real.in_params, strict=True)
        ]
        in_shape = tuple(in_shape[i] for i in reduced + remaining)
        arrays, in_shape = self._fewest_axes(arrays, real.in_params, in_shape)
        results, shape = self._fewest_axes(
            [box.host.reshape(shape) for box in boxes], real.out_params, shape
        )
        self.stand_in._launch()
        launch = self._launch(arrays + results, (*ins, *outs))
        launch.indexer(in_shape)
        launch.indexer(shape)
        launch.scalar(1, np.int32)  # _block_stride
        types = self.compiler.kernel._TypeMap((*sorted(named.items()), ("IndexT", "int32")))

        def code(n_threads: int) -> str:
            return self.compiler.reduction._ReductionKernel_get_cached_function_code(
                *(real.nin, real.nout, real._params, launch.infos, types),
                *(real.name, n_threads, real.reduce_type, real.identity),
                *(real.map_expr, real.reduce_expr, real.post_map_expr),
                *(real.preamble, real.options),
            )

        launch.run(self.compiler(real.name, code(512), code(1), real.options))
        return boxes[0]


def start() -> Compiler:
    """Import the fake CuPy with kernels that compute. Call this before Chainer is imported."""
    compiler = Compiler()
    sys.path.insert(0, str(ROOT / "tests" / "fake_cupy"))
    stand_in: Any = importlib.import_module("cupy")
    _InterceptedKernel.compiler, _InterceptedKernel.stand_in = compiler, stand_in
    stand_in_kernel = stand_in.RawKernel

    def raw_kernel(code: str, name: str, options: Any = ()) -> Any:
        compiler(name, code, options=options)
        return stand_in_kernel(code, name)

    stand_in.ElementwiseKernel, stand_in.ReductionKernel = ElementwiseKernel, ReductionKernel
    stand_in.RawKernel = raw_kernel
    return compiler
