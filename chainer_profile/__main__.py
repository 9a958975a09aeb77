"""The door: ``python -m chainer_profile``, the command ``chainer-profile``, and ``profile.py``."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def _load(name: str, path: Path) -> ModuleType:
    """Import the file of a package, wherever it is."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not __package__:
    # Run as a file, as sweeps do. The folder of the package does not come first: in site-packages
    # a backport can have the name of a standard module.
    here = Path(__file__).resolve().parent
    sys.path[:] = [__file__, *(place for place in sys.path if place != str(here))]
    if str(here.parent) not in sys.path:
        sys.path.append(str(here.parent))
    _load("chainer_profile", here / "__init__.py")
elif __name__ == "__main__" and not getattr(sys.flags, "safe_path", sys.flags.isolated):
    # `python -m` puts the current folder first: its modules are not to take the place of ours.
    sys.path[0] = __file__


def main(argv: list[str] | None = None) -> int:
    """Run a command with the networks that come with the profiler; returns the exit code.

    Args:
        argv: The arguments after the program's name; by default the process's own.
    """
    try:
        from chainer_profile.cli.main import main as run

        registry = import_module(f"{_models()}.registry").REGISTRY
    except KeyboardInterrupt:  # before the command could handle it
        return 130
    return run(sys.argv[1:] if argv is None else argv, registry)


def _models() -> str:
    """The package of the networks: part of this package, or a folder next to it in a clone."""
    name = "chainer_profile.models"
    beside = Path(__file__).parents[1] / "models" / "__init__.py"
    if (
        name not in sys.modules
        and beside.is_file()
        and not (Path(__file__).parent / "models").is_dir()
    ):
        _load(name, beside)
    return name


if __name__ == "__main__":
    sys.exit(main())
