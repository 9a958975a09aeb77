"""Lets Chainer 7.8.1 import and run on current Python, NumPy and CuPy.

Chainer is no longer developed, and several things that it calls have been removed or have changed
their meaning. :func:`install` puts a finder in front of the import system; when one of the Chainer
modules below is imported, its source is compiled with the edits listed here. Nothing else is
touched: no installed file, no name in NumPy, no stand-in module.
"""

import sys
import threading
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import NamedTuple


class Edit(NamedTuple):
    """One change to the source of one Chainer module: every ``old`` becomes ``new``."""

    module: str
    old: str
    new: str
    broke: str
    since: str


EDITS = [
    Edit(
        "chainer._environment_check",
        "import numpy.distutils.system_info\n",
        "\n",
        "numpy.distutils is gone (used here only to look for old Accelerate on macOS)",
        "Python 3.12, NumPy 1.26 with setuptools 74",
    ),
    Edit(
        "chainer._environment_check",
        "numpy.distutils.system_info.get_info('blas_opt')",
        "{}",
        "numpy.distutils is gone (used here only to look for old Accelerate on macOS)",
        "Python 3.12, NumPy 1.26 with setuptools 74",
    ),
    Edit(
        "chainer._environment_check",
        "import pkg_resources\n",
        "\n",
        "pkg_resources is gone",
        "setuptools 81",
    ),
    Edit(
        "chainer._environment_check",
        "    _check_optional_dependencies()\n",
        "\n",
        "pkg_resources is gone; the check only asks for a CuPy of 2020",
        "setuptools 81",
    ),
    Edit(
        "chainer.functions.array.as_strided",
        "np.sctypes['int']",
        "(np.int8, np.int16, np.int32, np.int64)",
        "numpy.sctypes is gone",
        "NumPy 2.0",
    ),
    Edit(
        "chainer.functions.array.as_strided",
        "gy.dtype not in np.sctypes['float']",
        "gy.dtype.kind != 'f'",
        "numpy.sctypes is gone",
        "NumPy 2.0",
    ),
    Edit(
        "chainer.functions.array.resize_images",
        "numpy.float)",
        "float)",
        "numpy.float is gone",
        "NumPy 1.24",
    ),
]

_EDITED = frozenset(edit.module for edit in EDITS)


class _EditingLoader(SourceFileLoader):
    """Loads a module from its source with the edits made; its cached bytecode is left alone."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the edited source."""
        source = self.get_source(fullname)
        assert source is not None
        for edit in EDITS:
            if edit.module == fullname:
                source = source.replace(edit.old, edit.new)
        code: types.CodeType = self.source_to_code(source, self.get_filename(fullname))
        return code


class _Finder:
    """Finds the modules named in EDITS where the import system would, and edits them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the usual spec with an editing loader, or None for any other module."""
        if name not in _EDITED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _EditingLoader(name, spec.loader.path)
        return spec


_lock = threading.Lock()


def install() -> None:
    """Make every later import of Chainer a patched one; imports nothing itself."""
    with _lock:
        if _Finder not in sys.meta_path:
            sys.meta_path.insert(0, _Finder)
