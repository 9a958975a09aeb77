"""Checks of arguments: each gives the value, or one line that says what would be right."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import UsageError


def whole_number(name: str, value: Any, minimum: int) -> int:
    """A whole number of at least ``minimum``; NumPy's become Python's."""
    try:
        number = minimum - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = minimum - 1
    if number < minimum:
        raise UsageError(f"{name} is {shown(value)}: give a whole number, {minimum} or more")
    return number


def number_between(name: str, value: Any, below: float, wanted: str) -> float | None:
    """A number between 0 and another, both excluded; None stays None."""
    if value is None:
        return None
    try:
        # False for NaN.
        fits = not isinstance(value, bool) and bool(0 < value < below)
        number = float(value) if fits else math.nan
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise UsageError(f"{name} is {shown(value)}: give {wanted}")
    return number


def flag(name: str, value: Any) -> bool:
    """True or False; NumPy's become Python's."""
    kind = type(value)
    # NumPy is not imported for this: its class is named bool or bool_.
    if kind is not bool and (kind.__module__, kind.__name__.rstrip("_")) != ("numpy", "bool"):
        raise UsageError(f"{name} is {shown(value)}: give True or False")
    return bool(value)


def text(name: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {shown(value)}: give a string")
    return value


def as_path(name: str, value: Any) -> Path:
    """The path of a file, from a string or another object with a path."""
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"{name} is {shown(value)}: give the path of a file")
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        raise UsageError(f"{name} is {shown(value)}: give the path of a file")
    return Path(path)


def choice(name: str, value: Any, names: Collection[str]) -> str:
    """A string that is one of these."""
    if not isinstance(value, str) or value not in names:
        given = repr(value) if isinstance(value, str) else shown(value)
        raise UsageError(f"unknown {name} {given}: choose {', '.join(names)}")
    return value


def callable_or_none(name: str, value: Any) -> Any:
    """A function or another callable, or None."""
    if value is not None and not callable(value):
        raise UsageError(f"{name} is {shown(value)}: give a function")
    return value


def shown(value: Any) -> str:
    """A value in a message, in one line and not too long."""
    try:
        return " ".join(repr(value).split())[:60]
    except Exception:  # its __repr__ fails
        return f"a {type(value).__name__}"
