"""Finds an engine of the user's own."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.networks.loading import import_file, import_module, importable

if TYPE_CHECKING:
    from chainer_profile.engines.protocol import Engine

_OWN = "module:Class or path/to/file.py:Class"
_METHODS = ("prepare", "run", "layers")


def find_engine(name: str) -> Engine:
    """The engine that a name stands for.

    Args:
        name: ``module:Class`` (installed, or in the current folder) or ``path/to/file.py:Class``.
            The class is called without arguments.

    Raises:
        UsageError: There is none of this name, or it is no engine.
        ProfileError: The user's code fails.
    """
    place, colon, attribute = name.rpartition(":")
    if not colon:
        nearest = difflib.get_close_matches(name.lower(), ENGINES, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(ENGINES)}."
        raise UsageError(f"unknown engine {name!r}: {hint} Your own engine is {_OWN}.")
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise UsageError(f"engine {name}: there is no file {place}")
    words = [attribute] if is_file else [attribute, *place.split(".")]
    if not all(word.isidentifier() for word in words):
        raise UsageError(f"engine {name!r}: your own engine is {_OWN}")
    folder = Path(place).resolve().parent if is_file else Path.cwd()
    with importable(folder):
        module = import_file(Path(place)) if is_file else import_module(place)
        made = getattr(module, attribute, None)
        if made is None:
            raise UsageError(f"engine {name}: {place} has no {attribute!r}")
        try:
            engine: Engine = made()
        except Exception as error:  # the user's own code
            raise ProfileError(f"engine {name}: cannot be made: {one_line(error)}") from error
    lacks = [method for method in _METHODS if not callable(getattr(engine, method, None))]
    if lacks:
        raise UsageError(f"engine {name}: is no engine, as it has no {' and no '.join(lacks)}")
    return engine
