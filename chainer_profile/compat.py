"""Lets Chainer 7.8.1 import and run on current Python, NumPy and CuPy.

Chainer is no longer developed, and things that it calls have been removed or have changed their
meaning. :func:`install` puts a finder before the import system's own; when a Chainer module named
in :data:`PATCHES` is imported, its source is compiled with the replacements listed there.
That keeps each change as small as a word, costs no time when Chainer runs, and touches nothing
else: no installed file, no name in NumPy, no stand-in module left behind.
"""

import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Patch(NamedTuple):
    """What broke in one Chainer module, since when, and the replacements that mend it.

    ``edits`` maps text of the module's source to its replacement, at every place where it occurs,
    with the same number of lines, so that tracebacks still show the right line.
    """

    name: str
    module: str
    broke: str
    since: str
    edits: dict[str, str]


# A scalar as an array's type has it; integers out of its range wrap around, as in NumPy 1.
_WRAPPED = (
    "dtype.type(value) if dtype.kind not in 'iu' else numpy.array(int(value)).astype(dtype)[()]\n"
)
# An array of at least single precision.
_SINGLE = ".astype(numpy.promote_types(A_data.dtype, 'f'), copy=False)"
# What takes more than an expression is in this module.
_HERE = f"__import__({__name__!r}, fromlist=['_'])"

PATCHES = [
    # What stops the import.
    Patch(
        "numpy.distutils",
        "chainer._environment_check",
        "numpy.distutils is gone; it was asked for Accelerate of old macOS, which no NumPy 2 uses",
        "Python 3.12; NumPy 1.26 with setuptools 74",
        {
            "import numpy.distutils.system_info\n": "\n",
            "numpy.distutils.system_info.get_info('blas_opt')": "None",
        },
    ),
    Patch(
        "optional dependencies",
        "chainer._environment_check",
        "pkg_resources is gone; the check that used it asks for CuPy 7, made for older Pythons",
        "setuptools 81",
        {
            "import pkg_resources\n": "\n",
            "    _check_osx_numpy_backend()\n    _check_optional_dependencies()\n": (
                "    _check_osx_numpy_backend()\n\n"
            ),
        },
    ),
    Patch(
        "numpy.sctypes",
        "chainer.functions.array.as_strided",
        "numpy.sctypes is gone",
        "NumPy 2.0",
        {
            "np.sctypes['int']": "(np.int8, np.int16, np.int32, np.int64)",
            "gy.dtype not in np.sctypes['float']": "gy.dtype.kind != 'f'",
        },
    ),
    *(
        Patch(
            "testing requirements",
            f"chainer.testing.{module}",
            "pkg_resources is gone",
            "setuptools 81",
            {"import pkg_resources\n": f"pkg_resources = {_HERE}.Requirements\n"},
        )
        for module in ("helper", "doctest_helper")
    ),
    # Names and arguments that are gone.
    Patch(
        "numpy.float",
        "chainer.functions.array.resize_images",
        "numpy.float is gone",
        "NumPy 1.24",
        {"numpy.float)": "float)"},
    ),
    Patch(
        "numpy.fix",
        "chainer.functions.math.fix",
        "numpy.fix is deprecated",
        "NumPy 2.5",
        {"xp.fix(x)": "xp.trunc(x)"},
    ),
    Patch(
        "numpy.meshgrid",
        "chainer.distributions.categorical",
        "numpy.meshgrid returns a tuple, to which a list cannot be added",
        "NumPy 2.0",
        {"self.log_p[mg + [": "self.log_p[list(mg) + ["},
    ),
    Patch(
        "float16 in scipy.sparse",
        "chainer.functions.math.sparse_matmul",
        "scipy.sparse refuses float16, for which it computed in float32",
        "SciPy 1.15",
        {
            "(A_data, (A_row, A_col))": f"(A_data{_SINGLE}, (A_row, A_col))",
            "(A_data[i, :nnz],\n": f"(A_data[i, :nnz]{_SINGLE},\n",
        },
    ),
    # Integers out of range: they used to wrap around.
    Patch(
        "constants out of range",
        "chainer.functions.math.basic_math",
        "a Python integer that the array's type cannot hold raises OverflowError",
        "NumPy 2.0",
        {"return x.dtype.type(value)\n": "return " + _WRAPPED.replace("dtype", "x.dtype")},
    ),
    Patch(
        "forced types out of range",
        "chainer.utils",
        "a Python integer that the array's type cannot hold raises OverflowError",
        "NumPy 2.0",
        {"return dtype.type(value)\n": "return " + _WRAPPED},
    ),
    Patch(
        "padding out of range",
        "chainer.functions.array.pad_sequence",
        "-1 as the padding of unsigned integers raises OverflowError",
        "NumPy 2.0",
        {"y[i, l:] = self.padding\n": ("y[i, l:] = numpy.asarray(self.padding).astype(y.dtype)\n")},
    ),
    # NumPy scalars: float64 ones no longer yield to a float32 or float16 array (NEP 50).
    *(
        Patch(
            "NumPy scalars as hyperparameters",
            f"chainer.functions.normalization.{module}",
            "a float64 scalar makes the result of float32 or float16 arrays float64",
            "NumPy 2.0",
            {f"self.{name} = {name}\n": f"self.{name} = float({name})\n" for name in names},
        )
        for module, names in {
            "batch_normalization": ("eps",),
            "batch_renormalization": ("eps", "rmax", "dmax"),
            "layer_normalization": ("eps",),
            "local_response_normalization": ("k", "alpha", "beta"),
        }.items()
    ),
    Patch(
        "division by a NumPy scalar",
        "chainer.functions.math.basic_math",
        "the inverse of a float16 or float32 scalar is rounded to its type",
        "NumPy 2.0",
        {
            "MulConstant(1. / rhs)": (
                "MulConstant(1. / (rhs.astype('d') if isinstance(rhs, numpy.floating) else rhs))"
            )
        },
    ),
    # CuPy.
    Patch(
        "cuDNN warnings",
        "chainer.backends.cuda",
        "CuPy 13 warns in seven lines where there is no cuDNN, CuPy 14 never has it",
        "CuPy 13",
        {
            "    _cupy_major = int(cupy.__version__.split('.')[0])\n": (
                "    _cupy_major = int(cupy.__version__.split('.')[0]);"
                " warnings.filterwarnings('ignore', r'\\s*cudnn library could not be loaded')\n"
            ),
            "            'cuDNN is not enabled.\\n'\n"
            "            'Please reinstall CuPy after you install cudnn\\n'\n"
            "            '(see https://docs-cupy.chainer.org/en/stable/install.html'\n"
            "            '#install-cudnn).')\n": (
                "            'cuDNN is not enabled'\n"
                "            ' (CuPy 13 is the last that has it);'\n"
                "            ' convolutions run as matrix products.'\n"
                "            )\n"
            ),
        },
    ),
]

_BY_MODULE: dict[str, dict[str, str]] = {}
for _patch in PATCHES:
    _BY_MODULE.setdefault(_patch.module, {}).update(_patch.edits)


def patches() -> list[tuple[str, str, str]]:
    """List what is mended: (Chainer module, what broke, since which version)."""
    return [(patch.module, patch.broke, patch.since) for patch in PATCHES]


def edited(module: str, source: str) -> str:
    """Make a module's edits in its source; text that is not there is left out silently."""
    for old, new in _BY_MODULE[module].items():
        source = source.replace(old, new)
    return source


class _EditingLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its edited source; cached bytecode is neither read nor written."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the edited source."""
        path = self.get_filename(fullname)
        source = edited(fullname, importlib.util.decode_source(self.get_data(path)))
        return compile(source, path, "exec", dont_inherit=True)


class _Finder:
    """Finds the modules of PATCHES where they are, and has them loaded from edited source."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the usual spec with another loader; None for any module not in PATCHES."""
        if name not in _BY_MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _EditingLoader(name, spec.loader.path)
        return spec


def _functions(namespace: object) -> Iterator[types.FunctionType]:
    """Yield the functions and methods that a module defines, those under decorators too."""
    for value in list(vars(namespace).values()):
        if isinstance(value, type) and value.__module__ == getattr(namespace, "__name__", None):
            for method in vars(value).values():
                yield from _unwrapped(method)
        else:
            yield from _unwrapped(value)


def _unwrapped(value: object) -> Iterator[types.FunctionType]:
    while value is not None:
        if isinstance(value, types.FunctionType):
            yield value
        value = getattr(value, "__wrapped__", getattr(value, "__func__", None))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _edit_imported(module: types.ModuleType) -> None:
    """Give the functions of a module that is already there the code of the edited source."""
    loader = getattr(module, "__loader__", None)
    if type(loader) is not importlib.machinery.SourceFileLoader:
        return
    code = _EditingLoader(module.__name__, loader.path).get_code(module.__name__)
    places = {(new.co_name, new.co_firstlineno): new for new in _codes(code)}
    for function in _functions(module):
        old = function.__code__
        new = places.get((old.co_name, old.co_firstlineno))
        if new is not None and new.co_freevars == old.co_freevars:
            function.__code__ = new


_lock = threading.Lock()


def install() -> None:
    """Mend Chainer: at its import, or at once where it has been imported; once is enough.

    Imports nothing itself, neither Chainer nor NumPy.
    """
    with _lock:
        if _Finder in sys.meta_path:
            return
        sys.meta_path.insert(0, _Finder)
        for name in _BY_MODULE:
            if name in sys.modules:
                _edit_imported(sys.modules[name])


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
