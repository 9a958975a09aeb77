"""Checks of arguments. Each returns the value, or raises UsageError with a correct example."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import UsageError


def whole_number(name: str, value: Any, minimum: int) -> int:
    """Check a whole number of at least ``minimum``; convert NumPy's integers to int."""
    try:
        number = minimum - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = minimum - 1
    if number < minimum:
        raise UsageError(f"{name} is {short_repr(value)}: give a whole number, {minimum} or more")
    return number


def number_between(name: str, value: Any, below: float, wanted: str) -> float | None:
    """Check a number above 0 and below ``below``, or None; ``wanted`` describes it in messages."""
    if value is None:
        return None
    try:
        # False for NaN.
        fits = not isinstance(value, bool) and bool(0 < value < below)
        number = float(value) if fits else math.nan
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise UsageError(f"{name} is {short_repr(value)}: give {wanted}")
    return number


def flag(name: str, value: Any) -> bool:
    """Check a boolean; convert NumPy's booleans to bool."""
    kind = type(value)
    # This does not import NumPy. The class is named bool or bool_, depending on its version.
    if kind is not bool and (kind.__module__, kind.__name__.rstrip("_")) != ("numpy", "bool"):
        raise UsageError(f"{name} is {short_repr(value)}: give True or False")
    return bool(value)


def text(name: str, value: Any) -> str:
    """Check a string."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {short_repr(value)}: give a string")
    return value


def as_path(name: str, value: Any) -> Path:
    """Check the path of a file: a string or another object with a path."""
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"{name} is {short_repr(value)}: give the path of a file")
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        raise UsageError(f"{name} is {short_repr(value)}: give the path of a file")
    return Path(path)


def choice(name: str, value: Any, names: Collection[str]) -> str:
    """Check that a string is one of ``names``."""
    if not isinstance(value, str) or value not in names:
        given = repr(value) if isinstance(value, str) else short_repr(value)
        raise UsageError(f"unknown {name} {given}: choose {', '.join(names)}")
    return value


def callable_or_none(name: str, value: Any) -> Any:
    """Check a callable or None."""
    if value is not None and not callable(value):
        raise UsageError(f"{name} is {short_repr(value)}: give a function")
    return value


def short_repr(value: Any) -> str:
    """Format a value for a message, in one line of at most 60 characters."""
    try:
        return " ".join(repr(value).split())[:60]
    except Exception:  # from the value's __repr__
        return f"a {type(value).__name__}"
