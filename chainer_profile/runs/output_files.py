"""Writes results into a folder without loss of the user's files.

A command has a table of all files that it may write, and replaces only these. Without ``--force``
it refuses a folder that contains other files and no results of the same command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import is_empty, remove_file, write_file

#: Returns whether a command's table of files has this name.
IsOwnFile = Callable[[str], bool]


def write(folder: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write files by name into a folder, which is made if necessary; return their paths."""
    if not contents:
        return []
    refuse_folders(folder, contents.__contains__)
    for name, content in contents.items():
        write_file(folder / name, content.encode() if isinstance(content, str) else content)
    return [folder / name for name in contents]


def remove(folder: Path, is_own: IsOwnFile) -> None:
    """Remove the command's files from a folder."""
    for path in _entries(folder):
        if is_own(path.name) and not path.is_dir():
            remove_file(path)


def remove_all(folder: Path, is_own: IsOwnFile) -> None:
    """Remove the command's files from a folder, and the folder if it is empty then."""
    remove(folder, is_own)
    with suppress(OSError):
        folder.rmdir()


def refuse_folders(folder: Path, is_own: IsOwnFile) -> None:
    """Raise UsageError if a subfolder has the name of a file that the command may write."""
    for path in _entries(folder):
        if is_own(path.name) and path.is_dir():
            raise UsageError(f"{path} is a folder; move it away, or name another folder")


def refuse_foreign(
    folder: Path, is_own: IsOwnFile, results: str, has_results: bool, force: bool | None = None
) -> None:
    """Raise UsageError if a folder contains files, unless the command may write there.

    Args:
        folder: The folder of ``--out``.
        is_own: Whether the command may write a file of this name.
        results: Name of the results of the command, for the message.
        has_results: Whether the folder contains results of the same command.
        force: The value of ``--force``. None for a command without this option, which may replace
            its own results.
    """
    if not folder.is_dir():
        return
    may_replace = has_results if force is None else force
    if not (may_replace or is_empty(folder)):
        with_force = "" if force is None else ", or replace it with --force"
        reason = f"contains a {results} already; name another folder{with_force}"
        if not has_results:
            names = [path.name for path in _entries(folder) if path.name[0] != "."]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            with_force = "" if force is None else ", or write into it with --force"
            reason = f"contains {names[0]}{more}, but no {results}; name another folder{with_force}"
        raise UsageError(f"{folder} {reason}")
    refuse_folders(folder, is_own)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):  # making the folder reports this
        return []
    except OSError as error:
        raise ProfileError(f"{folder}: cannot be read ({error.strerror})") from error
