"""NumPy's changes since Chainer 7: old names for a user's code, and advice on errors."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from chainer_profile.basics.replacements import Replacements
from chainer_profile.numpy_names import GONE_SINCE, WRITE, value


class OldNames:
    """A context that restores names that NumPy has removed, and records their use."""

    def __init__(self) -> None:
        # File and line of the first use of each name.
        self._used: dict[str, str] = {}
        self._process = os.getpid()
        self._replacements = Replacements()

    def __enter__(self) -> OldNames:
        numpy = sys.modules.get("numpy")
        if numpy is None:  # wait, as the program may first set variables that NumPy's import reads
            sys.meta_path.insert(0, self)
        else:
            self._restore_names(numpy)
        return self

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._replacements.undo()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Restore the names as soon as NumPy is imported; called by the import system."""
        if name != "numpy":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_restore_names(module: ModuleType) -> None:
                execute(module)
                self._restore_names(module)

            loader.exec_module = execute_and_restore_names
        return spec

    def _restore_names(self, numpy: ModuleType) -> None:
        def with_old_names(look_up: Callable[[str], object]) -> Callable[[str], object]:
            # Python calls this for a name that the module does not have.
            def __getattr__(name: str) -> object:  # noqa: N807
                if name not in WRITE:
                    return look_up(name)
                if name not in self._used:
                    self._record_use(name, sys._getframe(1))
                return value(name)

            return __getattr__

        self._replacements.wrap(numpy, "__getattr__", with_old_names)

    def _record_use(self, name: str, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        if frame is None:
            return
        path = Path(frame.f_code.co_filename)
        # Installed packages look for names to find out which NumPy this is.
        if not {"site-packages", "dist-packages"}.intersection(path.parts):
            self._used[name] = f"{path.name}:{frame.f_lineno}"

    @property
    def note(self) -> str:
        """Advice on the old names that were used; empty without any, and in a fork."""
        if not self._used or os.getpid() != self._process:
            return ""
        write = ", ".join(
            f"{WRITE[name]} for np.{name} ({line}, gone since NumPy {GONE_SINCE[name]})"
            for name, line in self._used.items()
        )
        return f"names that NumPy removed were restored. Write {write}"


_NUMBERS = (
    "no longer makes numbers of arrays that have dimensions; write x.item() for an array of one "
    "element, or take the newest NumPy that still does it: "
    'python -m pip install "numpy<2.4"'
)
_METHOD = r"'numpy\.ndarray' object has no attribute '{0}'|`{0}` was removed from the ndarray class"
#: Patterns of exceptions' messages, and the change in NumPy that causes each.
_CHANGES = {
    "only 0-dimensional arrays can be converted to Python scalars": _NUMBERS,
    r"%\w format: a(n integer| real number) is required, not numpy\.ndarray": _NUMBERS,
    "inhomogeneous shape": (
        "no longer makes an array from rows of different lengths; write "
        "np.array(rows, dtype=object)"
    ),
    "Unable to avoid copy while creating an array": (
        "fails with copy=False where it has to copy; write np.asarray(x)"
    ),
    r"Python integer -?\d+ out of bounds for (\w+)": (
        "no longer wraps a number that {0} cannot hold; write np.array(number).astype(np.{0})"
    ),
    "The binary mode of fromstring is removed": (
        "no longer reads bytes with np.fromstring; write np.frombuffer(x, dtype).copy()"
    ),
    "Object arrays cannot be loaded when allow_pickle=False": (
        "loads pickled objects only on request; write np.load(file, allow_pickle=True) for a "
        "file that you trust"
    ),
    'arrays to stack must be passed as a "sequence" type': (
        "no longer stacks generators; write np.stack(list(arrays))"
    ),
    **{
        _METHOD.format(name): f"removed ndarray.{name}; write {write}"
        for name, write in {
            "itemset": "x[index] = value",
            "newbyteorder": "x.view(x.dtype.newbyteorder(order))",
            "ptp": "np.ptp(x)",
            "tostring": "x.tobytes()",
        }.items()
    },
}


def advice(error: BaseException | None) -> str:
    """Explain the change in NumPy that caused an exception; empty for other exceptions."""
    if not isinstance(error, AttributeError | TypeError | ValueError | OverflowError):
        return ""
    message = str(error)
    for pattern, change in _CHANGES.items():
        if match := re.search(pattern, message):
            return f"NumPy {change.format(*match.groups())}"
    return ""
