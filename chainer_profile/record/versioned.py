"""Reads JSON files that contain the name and version of their format."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.files import read_regular

T = TypeVar("T")


def read_known(path: Path, content: bytes, form: str, version: int) -> dict[str, Any]:
    """Parse a JSON file. Raise ProfileError for another format or a newer version."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or values.get("format") != form:
        raise ProfileError(f"{path} is not a {form} file")
    check_version(path, values.get("version"), version)
    return values


def read_beside(
    path: Path,
    kind: type[T],
    form: str,
    version: int,
    *,
    words: bool = False,
    check: Callable[[T], None] = lambda built: None,
) -> T | None:
    """Read a dataclass from a JSON file in a run's folder; None if the file is missing.

    ``check`` raises ValueError for impossible values.
    """
    try:
        built = build(kind, read_known(path, read_regular(path), form, version), words=words)
        check(built)
        return built
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ProfileError(f"{path}: damaged ({one_line(error)})") from None


def check_version(path: Path, version: object, newest: int) -> None:
    """Refuse a file whose format is newer than this program."""
    if not isinstance(version, int) or version > newest:
        raise ProfileError(
            f"{path} has format version {version!r}, but this program reads up to {newest}: "
            "update the program, or use the one that wrote the file"
        )


def build(kind: type[T], values: Mapping[str, Any], *, words: bool = False) -> T:
    """Make a dataclass from JSON values. Lists become tuples; unknown fields are ignored.

    An array may be a NumPy array or text with integers. With ``words``, numbers may be text.

    Raises:
        ValueError: The values do not fit the dataclass.
    """
    try:
        built = msgspec.convert(values, kind, strict=not words, dec_hook=_array)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    _set_defaults(built)
    return built


def _set_defaults(value: Any) -> None:
    """Set the attributes of dataclasses that JSON did not have; msgspec leaves them to the class.

    ``vars()`` then has all fields, as after the constructor.
    """
    if dataclasses.is_dataclass(value):
        given = vars(value)
        for field in dataclasses.fields(value):
            if field.name in given:
                _set_defaults(given[field.name])
            else:
                object.__setattr__(value, field.name, field.default)
    elif isinstance(value, tuple | list):
        for item in value:
            _set_defaults(item)


def _array(_kind: type, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, str):
        raise ValueError("times are not text")
    return np.array([int(word) for word in value.split()], np.int64)
