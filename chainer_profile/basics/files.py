"""Files and folders that one program at a time writes.

They are written completely or not at all, except by :func:`write_at`.
"""

from __future__ import annotations

import errno
import io
import math
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from itertools import count
from json import dumps  # now, because a program that is run may replace json.dumps
from pathlib import Path
from typing import Any, BinaryIO

from chainer_profile.basics.errors import ProfileError, UsageError

if sys.platform != "win32":
    import fcntl  # now, because a program that is run may have a module of that name

#: The largest file of text that is read at once.
MAX_NBYTES = 1 << 28
#: Files that Windows adds to folders.
_JUNK = ("Thumbs.db", "desktop.ini")


def lock(
    opened: BinaryIO | int, folder: Path, reason: str = "a run is still writing into it"
) -> None:
    """Lock an open file or folder until it is closed or the process ends.

    Raises a ProfileError with the ``reason`` if another process has locked it. The ``folder`` is
    only named in the message.
    """
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ProfileError(f"{folder}: {reason}; wait until it ends") from error
    except OSError:  # a file system without locks
        pass


@contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; after the context, remove the new ones that are empty."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            is_file = folder.exists() and not isinstance(error, NotADirectoryError)
            problem = "is a file; name a folder" if is_file else "a part of this path is a file"
            raise UsageError(f"--out {folder}: {problem}") from None
        except OSError as error:
            raise ProfileError(f"{folder}: cannot be written ({error.strerror})") from error
        yield
    finally:
        for path in new:
            with suppress(OSError):
                path.rmdir()


@contextmanager
def locked(folder: Path, reason: str) -> Iterator[None]:
    """Lock a folder within the context; see :func:`lock`."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        lock(opened, folder, reason)
        yield
    finally:
        os.close(opened)


def is_empty(folder: Path) -> bool:
    """Whether a folder has only hidden files and the files named in :data:`_JUNK`."""
    return all(path.name[0] == "." or path.name in _JUNK for path in folder.iterdir())


def is_free(path: Path) -> bool:
    """Whether a path does not exist or is an empty folder."""
    try:
        return not os.path.lexists(path) or is_empty(path)
    except OSError:  # a file, or a folder that cannot be read
        return False


def numbered(default: Path) -> Iterator[Path]:
    """Yield endless names for a folder: ``default``, ``default-2``, ``default-3``, ..."""
    yield default
    for number in count(2):
        yield default.with_name(f"{default.name}-{number}")


def write_file(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, and make its folder if necessary."""
    make_folder(path.parent)
    with replacing(path) as file:
        file.write(content)


def as_json(content: Mapping[str, Any]) -> str:
    """Convert a mapping to the text of a JSON file.

    Infinity and NaN become strings, and an array of integers a string such as ``1 2 3``.
    """
    return dumps(_json_value(content), indent=1, allow_nan=False) + "\n"


def _json_value(value: Any) -> Any:
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float):  # NumPy's, too
        return value if math.isfinite(value) else str(value)
    return " ".join(map(str, value.tolist())) if hasattr(value, "dtype") else value


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error


def remove_file(path: Path) -> None:
    """Remove a file if it exists and can be removed."""
    with suppress(OSError):
        path.unlink()


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading.

    To open a FIFO would wait until a program writes into it, and a device may have no end.

    Raises:
        OSError: The path is no regular file, or the file cannot be read.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    # A program that is run may have replaced the builtin.
    file = io.open(path, "rb", opener=opener)  # noqa: SIM115, UP020
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_regular(path: Path, max_nbytes: int = MAX_NBYTES) -> bytes:
    """Read a regular file of at most ``max_nbytes`` bytes.

    Raises:
        OSError: The path is no regular file, or the file is larger or cannot be read.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > max_nbytes:
            raise OSError(errno.EFBIG, "the file is too large", str(path))
        return file.read()


#: Flags that create a file, and fail if it exists.
NEW = os.O_CREAT | os.O_EXCL


def file_identity(fd: int) -> tuple[int, int] | None:
    """Device and inode of an open file; None if the descriptor is closed."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def write_at(fd: int, at: int, content: bytes | memoryview) -> tuple[int, OSError | None]:
    """Write the bytes that fit at a position of a file. Return their number, and any error."""
    done = 0
    try:
        os.lseek(fd, at, os.SEEK_SET)
        while done < len(content):
            done += os.write(fd, content[done:])
    except OSError as error:
        # Frames in the traceback refer to ``content``, which pins the size of its bytearray.
        return done, error.with_traceback(None)
    return done, None


def open_unfollowed(path: Path, flags: int = 0) -> BinaryIO:
    """Open a file for reading and writing without following a symbolic link.

    ``flags`` may be :data:`NEW`.
    """
    flags |= getattr(os, "O_NOFOLLOW", 0)

    def opener(name: str, mode_flags: int) -> int:
        return os.open(name, mode_flags | flags, 0o666)

    return io.open(path, "r+b", opener=opener)  # noqa: UP020


def temporary_path(path: Path) -> Path:
    """Random hidden path in the same folder, for a file or folder until it is complete."""
    # Another user who can write to the folder could put a link at a predictable path.
    return path.with_name(f".chainer-profile-{os.urandom(8).hex()}.part")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file; after the context, move it to ``path`` once it is on the disk.

    After an exception ``path`` stays as it was.
    """
    if not path.parent.is_dir():
        raise ProfileError(f"{path}: cannot be written (there is no folder {path.parent})")
    temporary = temporary_path(path)
    try:
        with open_unfollowed(temporary, NEW) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        remove_file(temporary)
