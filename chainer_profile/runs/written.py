"""Writing into a folder that may hold files of the user's.

A command has a table of all files that it may write. It refuses a folder that holds other files and
no results of its own, unless ``--force`` is given, and replaces only files of its table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import is_empty, remove_file, write_file

#: Whether a file's name stands in a command's table of files.
IsOurs = Callable[[str], bool]


def write(folder: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write files into a folder, which is made if it is not there; returns them."""
    if not contents:
        return []
    refuse_folders(folder, contents.__contains__)
    for name, content in contents.items():
        write_file(folder / name, content.encode() if isinstance(content, str) else content)
    return [folder / name for name in contents]


def remove(folder: Path, is_ours: IsOurs) -> None:
    """Remove the files of these names."""
    for path in _entries(folder):
        if is_ours(path.name) and not path.is_dir():
            remove_file(path)


def remove_all(folder: Path, is_ours: IsOurs) -> None:
    """Remove the files of these names, and the folder if that leaves it empty."""
    remove(folder, is_ours)
    with suppress(OSError):
        folder.rmdir()


def refuse_folders(folder: Path, is_ours: IsOurs) -> None:
    """Raise an error if a folder has the name of a file that may be written."""
    for path in _entries(folder):
        if is_ours(path.name) and path.is_dir():
            raise UsageError(f"{path} is a folder; move it away, or name another folder")


def refuse_foreign(
    folder: Path, is_ours: IsOurs, results: str, has_results: bool, force: bool | None = None
) -> None:
    """Raise an error for a folder of ``--out`` that holds files which may not be replaced.

    Results of the same command may be replaced if it has no ``--force`` (None), and with ``force``
    anything may.
    """
    if not folder.is_dir():
        return
    replaced = has_results if force is None else force
    if not (replaced or is_empty(folder)):
        with_force = "" if force is None else ", or replace it with --force"
        reason = f"contains a {results} already; name another folder{with_force}"
        if not has_results:
            names = [path.name for path in _entries(folder) if path.name[0] != "."]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            with_force = "" if force is None else ", or write into it with --force"
            reason = f"contains {names[0]}{more}, but no {results}; name another folder{with_force}"
        raise UsageError(f"{folder} {reason}")
    refuse_folders(folder, is_ours)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):  # making the folder says so
        return []
    except OSError as error:
        raise ProfileError(f"{folder}: cannot be read ({error.strerror})") from error
