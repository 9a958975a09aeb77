"""The folder of a run: which one, what is in it, and how files get there. Nothing else writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from chainer_profile.errors import ProfileError, UsageError

if TYPE_CHECKING:
    from chainer_profile.recording import Recording
    from chainer_profile.summary import Summary

RECORDING = "recording.npz"
JOURNAL = "recording.journal"


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
        (self.path / JOURNAL).unlink()


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
    folders = _numbered(default) if out is None else iter([out])
    replace = force and out is not None
    for folder in folders:
        new = not folder.exists()
        try:
            if not replace and (folder / RECORDING).exists():
                raise FileExistsError
            folder.mkdir(parents=True, exist_ok=True)
            # Opening with x fails where another run of this moment was quicker.
            journal = open(folder / JOURNAL, "w+b" if replace else "x+b")  # noqa: SIM115
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
            raise ProfileError(f"{folder}: cannot be written ({error.strerror})") from None
        break
    with journal:
        try:
            yield RunFolder(folder, journal)
        finally:
            if not journal.closed and os.fstat(journal.fileno()).st_size == 0:
                (folder / JOURNAL).unlink(missing_ok=True)
                if new:
                    folder.rmdir()


def _numbered(default: Path) -> Iterator[Path]:
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
    with _replacing(folder / RECORDING) as file:
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
    if journal.exists():
        recording = recover(journal)
        if recording.n_trials:
            save_recording(place, recording)
            journal.unlink()
            return recording
    if not (place / RECORDING).exists():
        raise ProfileError(
            f"{place}: the run was killed before its first trial was complete"
            if journal.exists()
            else f"{place}: holds no run (there is no {RECORDING} in it)"
        )
    return Recording.load(place / RECORDING)


def write_reports(folder: Path, summary: Summary) -> list[Path]:
    """Write everything that is made from a recording; returns the files.

    Raises:
        ProfileError: A file cannot be written.
    """
    from chainer_profile.renderers import csv, markdown, plot

    contents = {
        "layers.csv": csv.render(summary).encode(),
        "layers.png": plot.render(summary, "png"),
        "layers.svg": plot.render(summary, "svg"),
        "report.md": markdown.render(summary, plot="layers.png", table="layers.csv").encode(),
    }
    for name, content in contents.items():
        with _replacing(folder / name) as file:
            file.write(content)
    return [folder / name for name in contents]


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the name's place when it is complete and on the disk."""
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        part.unlink(missing_ok=True)
