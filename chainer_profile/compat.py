"""Lets Chainer 7.8.1 import and run on current Python, NumPy and CuPy.

Chainer and the packages installed with it, ``onnx_chainer`` and ``chainermn``, are no longer
developed. :func:`install` adds an import finder. When a module of :data:`EDITS` is imported, its
source is compiled with the replacements in this table. Nothing else changes: no installed file, no
name in NumPy, and no substitute modules.
"""

import importlib.machinery
import importlib.util
import pathlib
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence

from chainer_profile.numpy_names import WRITE

# A scalar of an array's type. Integers outside its range wrap around, as in NumPy 1.
_WRAPPED = (
    "dtype.type(value) if dtype.kind not in 'iu' else numpy.array(int(value)).astype(dtype)[()]\n"
)
# An array of at least single precision.
_SINGLE = ".astype(numpy.promote_types(A_data.dtype, 'f'), copy=False)"
# An array of one element without its dimensions, if the value is a number.
_SCALAR = (
    ".reshape(() if isinstance(value, (int, float, complex)) and"
    " numpy.size(dataset) == 1 else numpy.shape(dataset))"
)
# CuPy's header of its float16 type, which CuPy 13 includes by itself.
_FLOAT16 = "#if __has_include(<cupy/float16.cuh>)\n#include <cupy/float16.cuh>\n#endif"
# An expression for this module, for replacements that need a function or class.
_HERE = f"__import__({__name__!r}, fromlist=['_'])"

#: For each module, texts in its source and their replacements. All occurrences are replaced. Line
#: numbers stay the same, so tracebacks are right. Comments name the change that broke Chainer, and
#: its first version.
EDITS: dict[str, dict[str, str]] = {
    # -- errors at import
    "chainer._environment_check": {
        # numpy.distutils was removed. Chainer used it to find old macOS's Accelerate, which NumPy 2
        # never uses (Python 3.12; NumPy 1.26 with setuptools 74).
        "import numpy.distutils.system_info\n": "\n",
        "numpy.distutils.system_info.get_info('blas_opt')": "None",
        # pkg_resources was removed. Chainer used it to require CuPy 7, which needs an older Python
        # (setuptools 81).
        "import pkg_resources\n": "\n",
        "    _check_osx_numpy_backend()\n    _check_optional_dependencies()\n": (
            "    _check_osx_numpy_backend()\n\n"
        ),
    },
    # numpy.sctypes was removed (NumPy 2.0).
    "chainer.functions.array.as_strided": {
        "np.sctypes": "__import__('chainer_profile.numpy_names', fromlist=['_']).value('sctypes')"
    },
    # pkg_resources was removed (setuptools 81).
    **{
        f"chainer.testing.{module}": {
            "import pkg_resources\n": f"pkg_resources = {_HERE}.Requirements\n"
        }
        for module in ("helper", "doctest_helper")
    },
    # -- removed names and arguments
    # numpy.float was removed (NumPy 1.24).
    "chainer.functions.array.resize_images": {"numpy.float)": WRITE["float"] + ")"},
    # numpy.fix is deprecated (NumPy 2.5).
    "chainer.functions.math.fix": {"xp.fix(x)": "xp.trunc(x)"},
    "chainer.dataset.convert": {
        # A third positional argument of numpy.maximum is deprecated (NumPy 2.4).
        "(shape, array.shape, shape)\n": "(shape, array.shape, out=shape)\n",
        # -1 as the padding of unsigned integers raises OverflowError (NumPy 2.0).
        "full(shape, padding, dtype": (
            "full(shape, chainer.utils.force_type(arrays[0].dtype, padding)"
            " if numpy.isscalar(padding) else padding, dtype"
        ),
    },
    # NumPy arrays have an attribute device, so debug_print does not show 'CPU' (NumPy 2.0).
    "chainer.variable": {
        "getattr(array, 'device', 'CPU')": (
            "'CPU' if isinstance(array, numpy.ndarray) else getattr(array, 'device', 'CPU')"
        )
    },
    # repr() of a NumPy scalar contains its type: shape[np.int64(0)] (NumPy 2.0).
    "chainer.utils.type_check": {
        "return repr(v)\n": "return str(v) if isinstance(v, numpy.generic) else repr(v)\n"
    },
    # numpy.meshgrid returns a tuple, to which a list cannot be added (NumPy 2.0).
    "chainer.distributions.categorical": {"self.log_p[mg + [": "self.log_p[list(mg) + ["},
    # scipy.sparse refuses float16; earlier versions computed in float32 (SciPy 1.15).
    "chainer.functions.math.sparse_matmul": {
        "(A_data, (A_row, A_col))": f"(A_data{_SINGLE}, (A_row, A_col))",
        "(A_data[i, :nnz],\n": f"(A_data[i, :nnz]{_SINGLE},\n",
    },
    # Thread.setDaemon() is deprecated (Python 3.10).
    "chainer.iterators.multiprocess_iterator": {
        "thread.setDaemon(True)\n": "thread.daemon = True\n"
    },
    # -- integers outside the range of a type raise OverflowError instead of wrapping (NumPy 2.0)
    "chainer.functions.math.basic_math": {
        "return x.dtype.type(value)\n": "return " + _WRAPPED.replace("dtype", "x.dtype"),
        # The inverse of a float16 or float32 scalar is rounded to its type (NumPy 2.0).
        "MulConstant(1. / rhs)": (
            "MulConstant(1. / (rhs.astype('d') if isinstance(rhs, numpy.floating) else rhs))"
        ),
    },
    "chainer.utils": {"return dtype.type(value)\n": "return " + _WRAPPED},
    # A limit of clip() outside the labels' type, if it has fewer values than there are classes
    # (NumPy 2.0; accepted again from 2.1 on).
    "chainer.functions.loss.softmax_cross_entropy": {
        "t.clip(0, loss.shape[1] - 1)": (
            "t.clip(0, min(loss.shape[1] - 1,"
            " numpy.iinfo(t.dtype).max if t.dtype.kind in 'iu' else loss.shape[1]))"
        )
    },
    "chainer.functions.array.pad_sequence": {
        "y[i, l:] = self.padding\n": (
            "y[i, l:] = utils.force_type(y.dtype, self.padding)"
            " if numpy.isscalar(self.padding) else self.padding\n"
        )
    },
    # -- a NumPy scalar of float64 changes the type of a float32 or float16 array (NEP 50)
    # As hyperparameters, NumPy scalars widen the result or lose digits (NumPy 2.0).
    **{
        f"chainer.functions.{module}": {
            f"self.{name} = {name}\n": f"self.{name} = float({name})\n" for name in names
        }
        for module, names in {
            "noise.dropout": ("dropout_ratio",),
            "noise.simplified_dropconnect": ("ratio",),
            "normalization.batch_normalization": ("eps",),
            "normalization.batch_renormalization": ("eps", "rmax", "dmax"),
            "normalization.layer_normalization": ("eps",),
            "normalization.local_response_normalization": ("k", "alpha", "beta"),
        }.items()
    },
    # The inverse of a float16 or float32 scalar is rounded to its type (NumPy 2.0).
    "chainer.functions.activation.softplus": {"float(1.0 / beta)": "1.0 / float(beta)"},
    # Sums of float16 or float32 scalars are kept in their type instead of float64 (NumPy 2.0).
    "chainer.reporter": {
        "            value = value.as_grad_stopped()\n\n": (
            "            value = value.as_grad_stopped()\n"
            "        value, weight = ["
            "numpy.float64(number) if isinstance(number, (numpy.generic, numpy.ndarray))"
            " and not number.ndim else number for number in (value, weight)]\n"
        ),
    },
    # int() and float() refuse an array of one element that has dimensions (NumPy 2.4; deprecated
    # in 1.25). This concerns the next two modules, too.
    "chainer.serializers.npz": {
        "value = value_type(dataset_arr)\n": f"value = value_type(dataset_arr{_SCALAR})\n",
        # The type of a scalar, not its value, decides whether it fits into an array (NumPy 2.0).
        "numpy.copyto(value, dataset)": (
            "numpy.copyto(value, dataset if dataset.ndim else dataset.item())"
        ),
    },
    "chainer.serializers.hdf5": {
        "value = type(value)(numpy.asarray(dataset))\n": (
            f"value = type(value)(numpy.asarray(dataset){_SCALAR})\n"
        )
    },
    "chainermn.iterators.multi_node_iterator": {"int(_size)": "int(_size[0])"},
    # Chainer moves variables to ChainerX's device, even without ChainerX (Chainer 7).
    "chainermn.extensions.observation_aggregator": {
        'to_device("native")': 'to_device("native" if chx.is_available() else "@numpy")'
    },
    "chainermn.communicators._memory_utility": {
        # array(copy=False) raises ValueError if a copy is needed (CuPy 14).
        "xp.array(v, copy=False, dtype=transfer_dtype)": "v.astype(transfer_dtype)",
        # CuPy's header of arrays no longer includes CUDA's header of half precision (CuPy 14).
        "#include <cupy/carray.cuh>": "#include <cuda_fp16.h>",
    },
    # -- the ONNX exporter: onnx.mapping was removed (onnx 1.19; deprecated in 1.13)
    **{
        f"onnx_chainer.{module}": {
            "from onnx.mapping import NP_TYPE_TO_TENSOR_TYPE\n": (
                "from onnx.helper import np_dtype_to_tensor_dtype\n"
            ),
            **{
                f"NP_TYPE_TO_TENSOR_TYPE[{dtype}]": f"np_dtype_to_tensor_dtype({dtype})"
                for dtype in dtypes
            },
        }
        for module, dtypes in {
            "export": ("var.dtype",),
            "functions.array": ("typ", "np.dtype('int64')"),
            "functions.math": ("np.dtype('int32')",),
        }.items()
    },
    # onnx.mapping only made constants in the model easier to read.
    "onnx_chainer.context": {
        "onnx.mapping.STORAGE_TENSOR_TYPE_TO_FIELD.get(\n        tensor.data_type, None)": (
            "(\n        None)"
        )
    },
    # -- CuPy
    # Kernels use float16 without a float16 array, so CuPy does not include its header.
    "chainer.training.updaters.multiprocess_parallel_updater": {
        f"{name},\n        loop_prep=": f"{name}, preamble={_FLOAT16!r},\n        loop_prep="
        for name in ("'_memcpy_gather'", "'_memcpy_scatter'")
    },
    # atomicAdd() does not accept a float for an array of float16 (CuPy 14).
    "chainer.functions.loss.negative_sampling": {
        "gi * x[(i / m) * c + j]);": "static_cast<T>(gi * x[(i / m) * c + j]));"
    },
    "chainer.links.loss.hierarchical_softmax": {
        f"g * {array}[{array}_ind]);": f"static_cast<T>(g * {array}[{array}_ind]));"
        for array in ("w", "x")
    },
    "chainer.backends.cuda": {
        # CuPy prints seven lines for each library that it cannot load, even an unused one (CuPy 8).
        "    import cupy\n    from cupy import cuda  # NOQA\n": (
            "    warnings.filterwarnings("
            "'ignore', r'\\s*(cudnn|nccl) library could not be loaded', module='cupy');"
            " import cupy\n"
            "    from cupy import cuda  # NOQA\n"
        ),
        # CuPy does not support cuDNN, so Chainer must not advise to install it. The advice does not
        # help without a device, either (CuPy 14).
        "            not _cudnn_disabled_by_user and\n": (
            "            not _cudnn_disabled_by_user and _cupy_major < 14 and"
            f" {_HERE}.has_device(cupy) and\n"
        ),
    },
}


def apply_edits(module: str, source: str) -> str:
    """Apply a module's edits to its source. Texts that do not occur are ignored."""
    for old, new in EDITS[module].items():
        source = source.replace(old, new)
    return source


class _EditingLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its edited source. Neither reads nor writes cached bytecode."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the edited source."""
        path = self.get_filename(fullname)
        source = apply_edits(fullname, importlib.util.decode_source(self.get_data(path)))
        return compile(source, path, "exec", dont_inherit=True)


class _Finder:
    """Finds the modules of EDITS, and loads them from edited source."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module of EDITS, with the loader that edits its source; None for other modules."""
        if name not in EDITS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _EditingLoader(name, spec.loader.path)
        return spec


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """Yield the functions and methods that a module defines, also decorated ones."""
    values = list(vars(module).values())
    classes = [value for value in values if isinstance(value, type)]
    for value in values + [method for owner in classes for method in vars(owner).values()]:
        for layer in (value, getattr(value, "__wrapped__", None), getattr(value, "__func__", None)):
            if isinstance(layer, types.FunctionType) and layer.__module__ == module.__name__:
                yield layer


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of all functions that are defined within a code."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _edit_imported(module: types.ModuleType) -> None:
    """Replace the code of functions in an imported module by the code of the edited source."""
    loader = getattr(module, "__loader__", None)
    if type(loader) is not importlib.machinery.SourceFileLoader:
        return
    code = _EditingLoader(module.__name__, loader.path).get_code(module.__name__)
    edited = {(new.co_name, new.co_firstlineno): new for new in _codes(code)}
    for function in _functions(module):
        old = function.__code__
        new = edited.get((old.co_name, old.co_firstlineno))
        if new is not None and new.co_freevars == old.co_freevars:
            function.__code__ = new


_lock = threading.Lock()


def install() -> None:
    """Patch Chainer: at its import, or at once if it is imported already.

    Further calls have no effect. This imports neither Chainer nor NumPy.
    """
    with _lock:
        if _Finder in sys.meta_path:
            return
        sys.meta_path.insert(0, _Finder)
        if "chainer" in sys.modules:
            for name in EDITS:
                if name in sys.modules:
                    _edit_imported(sys.modules[name])
        else:
            # Python keeps the submodules of a failed import, which would break the next import.
            for name in [name for name in sys.modules if name.startswith("chainer.")]:
                del sys.modules[name]


#: Code for a fresh interpreter, which imports this package from its folder without a change of
#: ``sys.path``: in site-packages a backport can have the name of a standard module.
IMPORT_PACKAGE = f"""
import importlib.util, sys
if {__package__!r} not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        {__package__!r}, {str(pathlib.Path(__file__).resolve().with_name("__init__.py"))!r}
    )
    sys.modules[{__package__!r}] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[{__package__!r}])
"""


class _InChild:
    """An object that a child process unpickles before its program, to patch Chainer."""

    def __init__(self, then: str) -> None:
        self._then = then

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        """Pickle as a call of ``exec``, because the child might not find this module."""
        return exec, (f"{IMPORT_PACKAGE}{self._then}",)


def install_in_children(then: str = "") -> None:
    """Patch Chainer in processes that ``multiprocessing`` starts without forking, too.

    Such a process imports the main script again. A script that :mod:`runpy` started does not import
    this package, so the import of Chainer would fail.

    Args:
        then: Code that such a process runs after patching Chainer, before its program.
    """
    from multiprocessing import forkserver, spawn

    # The server would import the main script, which would import Chainer without patches.
    forkserver.set_forkserver_preload([__package__])
    original = spawn.get_preparation_data

    def with_patch(name: str) -> dict[str, object]:
        return {"chainer_profile": _InChild(then), **original(name)}

    spawn.get_preparation_data = with_patch


def is_needed() -> bool:
    """Whether Chainer needs this module for its import."""
    numpy = importlib.import_module("numpy")
    # hasattr(numpy, "sctypes") would be wrong under ``run``, which restores removed names.
    has_sctypes = int(numpy.__version__.partition(".")[0]) < 2
    modules = ("numpy.distutils", "pkg_resources")
    return not (has_sctypes and all(map(importlib.util.find_spec, modules)))


def has_device(cupy: types.ModuleType) -> bool:
    """Whether CuPy finds a driver and a device."""
    try:
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except Exception:  # the types of CuPy's errors are not known without CuPy
        return False


class Requirements:
    """The part of ``pkg_resources`` that ``chainer.testing`` uses."""

    class ResolutionError(Exception):
        """A requirement is not met."""

    class WorkingSet:
        """The installed distributions."""

        def require(self, *requirements: str) -> None:
            """Raise ResolutionError unless a distribution is installed for each requirement."""
            from importlib import metadata

            from packaging.requirements import Requirement

            for text in requirements:
                requirement = Requirement(text)
                try:
                    version = metadata.version(requirement.name)
                except metadata.PackageNotFoundError:
                    raise Requirements.ResolutionError(text) from None
                if not requirement.specifier.contains(version, prereleases=True):
                    raise Requirements.ResolutionError(text)
