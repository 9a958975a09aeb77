"""Writing into a folder that may hold files of the user's: which folders, and which names.

A command knows the names of all files that it may write: its table of files. A folder that holds
other things and no results of the command is refused, unless ``--force`` is given; also then only
files of those names are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import is_empty, remove_file, write_file

#: Whether a file's name stands in a command's table of files.
IsOurs = Callable[[str], bool]


def write(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files into a folder, which is made if it is not there; returns them."""
    if not contents:
        return []
    refuse_folders(folder, contents.__contains__)
    for name, content in contents.items():
        write_file(folder / name, content)
    return [folder / name for name in contents]


def remove(folder: Path, is_ours: IsOurs) -> None:
    """Remove the files of these names, which the results that are replaced were made of."""
    for path in _entries(folder):
        if is_ours(path.name) and not path.is_dir():
            remove_file(path)


def remove_all(folder: Path, is_ours: IsOurs) -> None:
    """Remove the files of these names, and the folder if nothing else is in it."""
    remove(folder, is_ours)
    with suppress(OSError):
        folder.rmdir()


def refuse_folders(folder: Path, is_ours: IsOurs) -> None:
    """Refuse where a folder has the name of a file that may be written."""
    for path in _entries(folder):
        if is_ours(path.name) and path.is_dir():
            raise UsageError(f"{path} is a folder; move it away, or name another folder")


def refuse_foreign(
    folder: Path, is_ours: IsOurs, what: str, has_results: bool, force: bool | None = None
) -> None:
    """Refuse a folder that the user named and that is not empty, but for what may be replaced.

    That is the results of the same command, ``what``, and with ``force`` anything. Where the
    command has no ``--force`` (None), its own results are replaced without it.
    """
    if not folder.is_dir():
        return
    replaced = has_results if force is None else force
    if not (replaced or is_empty(folder)):
        with_force = "" if force is None else ", or replace it with --force"
        said = f"contains a {what} already; name another folder{with_force}"
        if not has_results:
            names = [path.name for path in _entries(folder) if path.name[0] != "."]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            with_force = "" if force is None else ", or write into it with --force"
            said = f"contains {names[0]}{more}, but no {what}; name another folder{with_force}"
        raise UsageError(f"{folder} {said}")
    refuse_folders(folder, is_ours)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):  # making the folder says so
        return []
    except OSError as error:
        raise ProfileError(f"{folder}: cannot be read ({error.strerror})") from error
