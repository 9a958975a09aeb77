"""Entry point of ``python -m chainer_profile``, ``chainer-profile`` and ``profile.py``."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def _load(name: str, path: Path) -> ModuleType:
    """Import a package from its file under a name."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not __package__:
    # Sweeps run this file. The folder of the package must not come first in sys.path: in
    # site-packages a backport can have the name of a standard module.
    package = Path(__file__).resolve().parent
    sys.path[:] = [__file__, *(entry for entry in sys.path if entry != str(package))]
    if str(package.parent) not in sys.path:
        sys.path.append(str(package.parent))
    _load("chainer_profile", package / "__init__.py")
elif __name__ == "__main__" and not getattr(sys.flags, "safe_path", sys.flags.isolated):
    # `python -m` puts the current folder first. Its modules must not replace other modules.
    sys.path[0] = __file__


def main(argv: list[str] | None = None) -> int:
    """Run a command with the networks that come with the profiler; return the exit code.

    Args:
        argv: The arguments after the program's name. Default: the arguments of the process.
    """
    try:
        from chainer_profile.cli.main import main as run

        registry = import_module(f"{_models()}.registry").REGISTRY
    except KeyboardInterrupt:  # before the command handles it
        return 130
    return run(sys.argv[1:] if argv is None else argv, registry)


def _models() -> str:
    """Name of the package of networks; in a clone, load it from the folder ``models`` first."""
    name = "chainer_profile.models"
    in_clone = Path(__file__).parents[1] / "models" / "__init__.py"
    if (
        name not in sys.modules
        and in_clone.is_file()
        and not (Path(__file__).parent / "models").is_dir()
    ):
        _load(name, in_clone)
    return name


if __name__ == "__main__":
    sys.exit(main())
