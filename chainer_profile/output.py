"""The folder of a run: which one, what is in it, and how files get there. Nothing else writes.

Outside of it there is one file more: the cache of the machine's limits.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from chainer_profile import formats
from chainer_profile.errors import ProfileError, UsageError
from chainer_profile.formats import USUAL, Wanted

if TYPE_CHECKING:
    from chainer_profile.recording import MachineLimits, Recording
    from chainer_profile.summaries import Summary

RECORDING = "recording.npz"
JOURNAL = "recording.journal"
#: Of the cache of limits; to be raised when they are measured in another way.
_LIMITS_VERSION = 1


@dataclass(frozen=True)
class RunFolder:
    """A folder that one run has taken for itself, with the open journal of its trials."""

    path: Path
    journal: BinaryIO

    def save(self, recording: Recording) -> None:
        """Write the recording; the journal goes when the recording is safely on the disk.

        Raises:
            ProfileError: It cannot be written. The journal stays.
        """
        save_recording(self.path, recording)
        self.journal.close()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def holds_trials(self) -> bool:
        """Whether the journal on the disk holds a profiled trial that is saved nowhere else."""
        return not self.journal.closed and _trials_in(self.path / JOURNAL) > 0


@contextmanager
def take_folder(out: Path | None, default: Path, force: bool) -> Iterator[RunFolder]:
    """Take a folder for a run.

    Args:
        out: The folder that the user named; None takes the default one, or the first of
            ``default-2``, ``default-3``, ... that holds no run.
        default: The default folder.
        force: Whether a named folder that holds a run may be used: its files are replaced when
            the new ones are there.

    Raises:
        UsageError: The named folder holds a run, or is a file.
        ProfileError: The folder cannot be written.
    """
    folders = numbered(default) if out is None else iter([out])
    replace = force and out is not None
    for folder in folders:
        made: list[Path] = []
        try:
            made = [place for place in (folder, *folder.parents) if not place.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            journal = _open_journal(folder, replace)
        except FileExistsError:
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"--out {folder}: is a file; name a folder") from None
            if out is None:
                continue
            raise UsageError(
                f"--out {folder}: holds a run already; name another folder, or replace it with "
                "--force"
            ) from None
        except NotADirectoryError:
            raise UsageError(f"--out {folder}: a part of this path is a file") from None
        except OSError as error:
            remove_empty(made)
            raise ProfileError(f"{folder}: cannot be written ({error.strerror})") from error
        break
    with journal:
        run = RunFolder(folder, journal)
        try:
            yield run
        finally:
            if not journal.closed and not run.holds_trials():
                (folder / JOURNAL).unlink(missing_ok=True)
                remove_empty(made)


def _open_journal(folder: Path, replace: bool) -> BinaryIO:
    """A new journal; where one may be replaced, an old one is emptied unless a run writes it."""
    from chainer_profile.journal import recover

    path = folder / JOURNAL
    # Opening with x fails where another run of this moment was quicker.
    journal = open(path, "r+b" if replace and path.exists() else "x+b")  # noqa: SIM115
    try:
        lock(journal, folder)
        if not (folder / RECORDING).exists():
            # What a killed run left stays until the new run is there.
            if _trials_in(path):
                save_recording(folder, recover(path))
        elif not replace:
            path.unlink()
            raise FileExistsError
        journal.truncate(0)
    except BaseException:
        journal.close()
        raise
    return journal


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


def _trials_in(journal: Path) -> int:
    """Number of profiled trials in a journal; 0 where it cannot be read."""
    from chainer_profile.journal import recover

    try:
        return recover(journal).n_trials
    except ProfileError:
        return 0


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


def save_recording(folder: Path, recording: Recording) -> None:
    """Write a recording into its folder.

    Raises:
        ProfileError: It cannot be written.
    """
    with replacing(folder / RECORDING) as file:
        recording.save(file)


def load_run(place: Path) -> Recording:
    """The recording in a folder, or in a file. What a killed run left is made whole first.

    Raises:
        ProfileError: There is none, or it is damaged.
    """
    from chainer_profile.journal import recover
    from chainer_profile.recording import Recording

    if not place.is_dir():
        return Recording.load(place)
    journal = place / JOURNAL
    killed = journal.exists()
    if killed:
        recording = recover(journal)
        with open(journal, "rb") as file:
            lock(file, place)
            if recording.n_trials:
                try:
                    save_recording(place, recording)
                except ProfileError as error:
                    raise ProfileError(f"{error}; the trials are kept in {journal}") from error
                journal.unlink(missing_ok=True)
                return recording
    if (place / RECORDING).exists():
        return Recording.load(place / RECORDING)
    if killed:
        raise ProfileError(
            f"{place}: the run was killed before its first trials were written; run it again with "
            "--force"
        )
    raise ProfileError(f"{place}: holds no run (there is no {RECORDING} in it)")


def write_reports(folder: Path, summary: Summary, wanted: Wanted = USUAL) -> list[Path]:
    """Write everything that is made from a recording; returns the files.

    Args:
        folder: Where they go.
        summary: What they are made from.
        wanted: What is wanted beside the usual files.

    Raises:
        ProfileError: A file cannot be written, or a package that one needs is missing.
    """
    contents = _usual_reports(summary, wanted) if wanted.usual else {}
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.write(content)
    # What may fail for want of a package comes last.
    for name, content in formats.contents(summary, wanted):
        with replacing(folder / name) as file:
            file.write(content)
        contents[name] = content
    return [folder / name for name in contents]


def _usual_reports(summary: Summary, wanted: Wanted) -> dict[str, bytes]:
    from chainer_profile.renderers import csv, links_csv, markdown, page, plot, roofline
    from chainer_profile.roofline import has_plot

    contents = {
        "layers.csv": csv.render(summary).encode(),
        "links.csv": links_csv.render(summary).encode(),
        "layers.png": plot.render(summary, "png"),
        "layers.svg": plot.render(summary, "svg"),
        "report.md": markdown.render(
            summary, plot="layers.png", table="layers.csv", links="links.csv", title=wanted.title
        ).encode(),
        "report.html": page.render(summary).encode(),
    }
    if has_plot(summary.recording, summary.layers):
        contents["roofline.png"] = roofline.render(summary, "png")
        contents["roofline.svg"] = roofline.render(summary, "svg")
    return contents


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
def taken(folder: Path) -> Iterator[None]:
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


def limits_file() -> Path | None:
    """Where the limits of machines are kept; None where the user has no folder for such files.

    By the XDG Base Directory Specification, which passes over a relative ``XDG_CACHE_HOME``.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    return Path(cache, "chainer-profile", "machine.json") if os.path.isabs(cache) else None


def load_limits() -> dict[str, MachineLimits]:
    """The limits that are kept, by their keys; what is damaged or foreign is passed over."""
    path = limits_file()
    if path is None:
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict) or content.get("version") != _LIMITS_VERSION:
        return {}
    entries = content.get("limits")
    found = [_limits(entry) for entry in entries] if isinstance(entries, list) else []
    return {limits.key: limits for limits in found if limits is not None}


def _limits(entry: Any) -> MachineLimits | None:
    """Limits from JSON, or None where they cannot be what was written."""
    from chainer_profile.recording import MachineLimits

    names = {field.name for field in fields(MachineLimits)}
    if not isinstance(entry, dict) or set(entry) != names:
        return None
    values = dict(entry)
    if not all(isinstance(values.pop(name), str) for name in ("key", "device", "measured")):
        return None
    if values["half_flops_per_s"] is None:
        del values["half_flops_per_s"]
    if not all(type(values.pop(name)) is int for name in ("threads", "copied_nbytes")):
        return None
    rates = values.values()
    if not all(isinstance(rate, float) and 0 < rate < math.inf for rate in rates):
        return None
    return MachineLimits(**entry)


def save_limits(limits: MachineLimits) -> None:
    """Keep the limits of a machine, beside those of others that are kept.

    Of two programs that do so at the same moment one may go unheard, but the file stays whole.

    Raises:
        ProfileError: They cannot be written.
    """
    path = limits_file()
    if path is None:
        raise ProfileError("there is no home folder; set XDG_CACHE_HOME to a folder")
    kept = load_limits() | {limits.key: limits}
    content = {"version": _LIMITS_VERSION, "limits": [asdict(entry) for entry in kept.values()]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error
    # Every writer has a part of its own.
    with replacing(path, f".{path.name}.{uuid.uuid4().hex}.part") as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")


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
