"""A program's own modules come before the library's, as under Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from types import ModuleType

_PACKAGE = __name__.partition(".")[0]
#: Modules that gave way. Others that have imported them go on using them.
_gone: dict[str, ModuleType] = {}


def give_way(folder: str) -> None:
    """Forget loaded modules in whose place a folder has others, as Python would find them."""
    loaded = {name.partition(".")[0] for name in sys.modules} - {_PACKAGE, "__main__"}
    names = {name for name in loaded if _is_another(name, folder)}
    if names:
        names -= _loaded_by_python()
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        _gone[name] = sys.modules.pop(name)


@contextmanager
def put_back() -> Iterator[None]:
    """Within this, an import finds what gave way: functions of the library import others late."""
    own = {name: sys.modules[name] for name in _gone if name in sys.modules}
    sys.modules.update(_gone)
    try:
        yield
    finally:
        for name in _gone:
            del sys.modules[name]
        sys.modules.update(own)


def _is_another(name: str, folder: str) -> bool:
    if BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name):
        return False
    found = PathFinder.find_spec(name, [folder])
    if found is None or found.loader is None:  # a folder without __init__.py stands behind others
        return False
    known = getattr(sys.modules.get(name), "__spec__", None)
    return known is None or known.origin != found.origin


def _loaded_by_python() -> set[str]:
    """Modules that a fresh interpreter has loaded before its program begins."""
    code = "import sys; print(*sys.modules)"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    ran = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
    return set(ran.stdout.split())
