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


def read_if_exists(
    path: Path,
    kind: type[T],
    form: str,
    version: int,
    *,
    text_numbers: bool = False,
    check: Callable[[T], None] = lambda built: None,
) -> T | None:
    """Read a dataclass from a JSON file; None if the file is missing.

    Args:
        path: The file.
        kind: The dataclass.
        form: Name of the format.
        version: Newest version of the format that this program reads.
        text_numbers: Accept text instead of numbers.
        check: Raises ValueError for impossible values.

    Raises:
        ProfileError: The file is damaged, or has another format or a newer version.
    """
    try:
        values = read_known(path, read_regular(path), form, version)
        built = build(kind, values, text_numbers=text_numbers)
        check(built)
        return built
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ProfileError(f"{path}: damaged ({one_line(error)})") from None


def check_version(path: Path, version: object, newest: int) -> None:
    """Raise ProfileError for a file with a newer format than this program reads."""
    if not isinstance(version, int) or version > newest:
        raise ProfileError(
            f"{path} has format version {version!r}, but this program reads up to {newest}: "
            "update the program, or use the one that wrote the file"
        )


def build(kind: type[T], values: Mapping[str, Any], *, text_numbers: bool = False) -> T:
    """Make a dataclass from JSON values. Lists become tuples; unknown fields are ignored.

    An array may be a NumPy array or text with integers. With ``text_numbers``, numbers may be text.

    Raises:
        ValueError: The values do not fit the dataclass.
    """
    try:
        built = msgspec.convert(values, kind, strict=not text_numbers, dec_hook=_array)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    _set_defaults(built)
    return built


def _set_defaults(value: Any) -> None:
    """Set the attributes of dataclasses that JSON did not have; msgspec leaves them to the class.

    ``vars()`` then has all fields, as after the constructor.
    """
    if dataclasses.is_dataclass(value):
        values = vars(value)
        for field in dataclasses.fields(value):
            if field.name in values:
                _set_defaults(values[field.name])
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
