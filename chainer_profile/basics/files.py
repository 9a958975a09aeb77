"""Files and folders of ours: written whole or not at all, and by one program at a time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from chainer_profile.basics.errors import ProfileError


def lock(journal: BinaryIO, folder: Path) -> None:
    """Mark a journal as in use, until it is closed or the process ends.

    Raises:
        ProfileError: Another process uses it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ProfileError(f"{folder}: its run is still going on; wait for its end") from error
    except OSError:  # a file system without locks
        pass


def remove_empty(folders: list[Path]) -> None:
    """Remove folders that were made for nothing, innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def numbered(default: Path) -> Iterator[Path]:
    """A folder, then the same with a number: ``default``, ``default-2``, ``default-3``, ..."""
    yield default
    number = 2
    while True:
        yield default.with_name(f"{default.name}-{number}")
        number += 1


def write_file(path: Path, content: bytes) -> None:
    """Write a file of a sweep, and make the folders that it needs.

    Raises:
        ProfileError: It cannot be written.
    """
    make_folder(path.parent)
    with replacing(path) as file:
        file.write(content)


def make_folder(path: Path) -> None:
    """Make a folder, unless it is there.

    Raises:
        ProfileError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error


def remove_file(path: Path) -> None:
    """Remove a file of ours, if it is there and can be removed."""
    with suppress(OSError):
        path.unlink()


def remove_folder(path: Path) -> None:
    """Remove a folder of ours with all that is in it, if it is there and can be removed."""
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def taking(folder: Path) -> Iterator[None]:
    """Within this, the folder is a sweep's of this process alone.

    Raises:
        ProfileError: It cannot be made, or another process has taken it.
    """
    make_folder(folder)
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(opened)
        raise ProfileError(f"{folder}: another sweep is writing there; wait for its end") from error
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(opened)


@contextmanager
def replacing(path: Path, part_name: str = "") -> Iterator[BinaryIO]:
    """A file to write, which takes the name's place when it is complete and on the disk.

    Args:
        path: The file.
        part_name: What it is called until then, where several programs may write it at a time.
    """
    part = path.with_name(part_name or f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
