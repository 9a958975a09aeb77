"""JSON files that name their format and its version, and dataclasses from JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from chainer_profile.basics.errors import ProfileError, one_line

T = TypeVar("T")


def read_known(path: Path, content: bytes, form: str, version: int) -> dict[str, Any]:
    """The values in a JSON file; refused if its format is another one, or its version is newer."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or values.get("format") != form:
        raise ProfileError(f"{path} is not a {form} file")
    check_version(path, values.get("version"), version)
    return values


def read_beside(
    path: Path, kind: type[T], form: str, version: int, *, words: bool = False
) -> T | None:
    """A dataclass from a JSON file in a run's folder; None where there is none."""
    try:
        return build(kind, read_known(path, path.read_bytes(), form, version), words=words)
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
    """A dataclass from values of JSON: lists become tuples, unknown fields are ignored.

    Arrays may be there, or be text with their integers; with ``words`` numbers may be text, too.

    Raises:
        ValueError: The values do not fit the dataclass.
    """
    try:
        return msgspec.convert(values, kind, strict=not words, dec_hook=_array)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _array(_kind: type, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, str):
        raise ValueError("times are not text")
    return np.array([int(word) for word in value.split()], np.int64)
