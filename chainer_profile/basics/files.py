"""Our files and folders: written completely or not at all, and by one program at a time."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from itertools import count
from json import dumps  # a program that is run may replace the module's
from pathlib import Path
from typing import Any, BinaryIO

from chainer_profile.basics.errors import ProfileError, UsageError

if sys.platform != "win32":
    import fcntl  # not later: a program that is measured may have a module of that name

#: What Windows puts into folders.
_JUNK = ("Thumbs.db", "desktop.ini")


def lock(opened: BinaryIO | int, folder: Path, by: str = "a run is still writing into it") -> None:
    """Mark an open file or folder as in use, until it is closed or the process ends."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ProfileError(f"{folder}: {by}; wait until it ends") from error
    except OSError:  # a file system without locks
        pass


@contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Make a folder for a while; at the end, new folders that are empty are removed."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            is_file = folder.exists() and not isinstance(error, NotADirectoryError)
            said = "is a file; name a folder" if is_file else "a part of this path is a file"
            raise UsageError(f"--out {folder}: {said}") from None
        except OSError as error:
            raise ProfileError(f"{folder}: cannot be written ({error.strerror})") from error
        yield
    finally:
        for place in new:
            with suppress(OSError):
                place.rmdir()


@contextmanager
def locked(folder: Path, by: str) -> Iterator[None]:
    """Lock a folder for this process; see :func:`lock`."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        lock(opened, folder, by)
        yield
    finally:
        os.close(opened)


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but files that file managers and version control hide."""
    return all(path.name[0] == "." or path.name in _JUNK for path in folder.iterdir())


def is_free(path: Path) -> bool:
    """Whether there is no such file, and no such folder that holds something."""
    try:
        return not os.path.lexists(path) or is_empty(path)
    except OSError:  # a file, or a folder that cannot be read
        return False


def numbered(default: Path) -> Iterator[Path]:
    """A folder, then the same with a number: ``default``, ``default-2``, ``default-3``, ..."""
    yield default
    for number in count(2):
        yield default.with_name(f"{default.name}-{number}")


def write_file(path: Path, content: bytes) -> None:
    """Write a file that the user has named, and make the folders that it needs."""
    make_folder(path.parent)
    with replacing(path) as file:
        file.write(content)


def as_json(content: Mapping[str, Any]) -> str:
    """The text of a JSON file; infinity and NaN become text, an array its integers as text."""
    return dumps(_plain(content), indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):  # NumPy's, too
        return value if math.isfinite(value) else str(value)
    return " ".join(map(str, value.tolist())) if hasattr(value, "dtype") else value


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error


def remove_file(path: Path) -> None:
    """Remove a file of ours, if it is there and can be removed."""
    with suppress(OSError):
        path.unlink()


#: Opens a file that must not be there yet.
NEW = os.O_CREAT | os.O_EXCL


def open_unfollowed(path: Path, how: int = 0) -> BinaryIO:
    """Open a file to read and write it, and follow no symbolic link; ``how`` may be :data:`NEW`."""
    how |= getattr(os, "O_NOFOLLOW", 0)

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | how, 0o666)

    # A program that is run may have replaced the builtin.
    return io.open(path, "r+b", opener=opener)  # noqa: UP020


def temporary_path(path: Path) -> Path:
    """A name for a file or a folder until it is complete, which nobody can foresee."""
    # In another user's folder, a link by a foreseeable name could lead to any file.
    return path.with_name(f".chainer-profile-{os.urandom(8).hex()}.part")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the name's place when it is complete and on the disk."""
    part = temporary_path(path)
    try:
        with open_unfollowed(part, NEW) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        remove_file(part)  # a file system that is read-only refuses this, too
