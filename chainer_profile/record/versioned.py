"""Files of ours in JSON, which say what they are and in which version; and types from JSON."""

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
    """The content of a file of ours; refused if it is of another kind, or of a newer version."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("format") != form:
        raise ProfileError(f"{path} is not a {form} file")
    check_version(path, found.get("version"), version)
    return found


def read_beside(
    path: Path, kind: type[T], form: str, version: int, *, words: bool = False
) -> T | None:
    """A dataclass from a file of ours in a run's folder; None where there is none."""
    try:
        return build(kind, read_known(path, path.read_bytes(), form, version), words=words)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ProfileError(f"{path}: damaged ({one_line(error)})") from None


def check_version(path: Path, found: object, newest: int) -> None:
    """Refuse a file whose format is newer than this program."""
    if not isinstance(found, int) or found > newest:
        raise ProfileError(
            f"{path} has format version {found!r}, but this program reads up to {newest}: "
            "update the program, or use the one that wrote the file"
        )


def build(kind: type[T], values: Mapping[str, Any], *, words: bool = False) -> T:
    """A dataclass from values of JSON, or ValueError: lists become tuples, and more fields nothing.

    With ``words`` numbers may be words, as infinite ones are, and arrays words of integers.
    """
    try:
        return msgspec.convert(values, kind, strict=not words, dec_hook=_array)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _array(_kind: type, text: Any) -> Any:
    """An array from the words of its integers."""
    if not isinstance(text, str):
        raise ValueError("times are not text")
    return np.array([int(word) for word in text.split()], np.int64)
