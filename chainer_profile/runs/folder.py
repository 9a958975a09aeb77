"""The folder of a run: which one, what is in it, and how files get there. Nothing else writes.

Outside of it there is one file more: the cache of the machine's limits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import lock, made, numbered, remove_file, replacing
from chainer_profile.runs.wanted import is_report

if TYPE_CHECKING:
    from chainer_profile.record.recording import Recording

RECORDING = "recording.npz"
JOURNAL = "recording.journal"


@dataclass(frozen=True)
class RunFolder:
    """A folder that one run has taken for itself, with the open journal of its trials."""

    path: Path
    journal: BinaryIO

    def save(self, recording: Recording) -> None:
        """Write the recording; the journal goes when the recording is safely on the disk.

        So do reports of the recording that was there before.

        Raises:
            ProfileError: It cannot be written. The journal stays.
        """
        save_recording(self.path, recording)
        for path in self.path.iterdir():
            if is_report(path.name) and path.is_file():
                remove_file(path)
        self.journal.close()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def holds_trials(self) -> bool:
        """Whether the journal on the disk holds a profiled trial that is saved nowhere else."""
        return not self.journal.closed and _trials_in(self.path / JOURNAL) > 0


@contextmanager
def take_folder(
    out: Path | None, default: Path, force: bool, rank: int | None = None
) -> Iterator[RunFolder]:
    """Take a folder for a run.

    Args:
        out: The folder that the user named; None takes the default one, or the first of
            ``default-2``, ``default-3``, ... that holds no run.
        default: The default folder.
        force: Whether a named folder that holds a run may be used: its files are replaced when
            the new ones are there.
        rank: Number of the rank whose run it is: all ranks take the same folder, and each of them
            the one named ``rank-0``, ``rank-1``, ... in it.

    Raises:
        UsageError: The named folder holds a run, or is a file.
        ProfileError: The folder cannot be written.
    """
    folders = numbered(default) if out is None else iter([out])
    if rank is not None:
        # No rank of this run has written its recording yet.
        free = (one for one in folders if out or not any(one.glob(f"rank-*/{RECORDING}")))
        folders = (one / f"rank-{rank}" for one in free)
    replace = force and out is not None
    with ExitStack() as stack:
        for folder in folders:
            with ExitStack() as tried:
                tried.enter_context(made(folder))
                try:
                    journal = _open_journal(folder, replace)
                except FileExistsError:
                    if out is None:
                        continue
                    raise UsageError(
                        f"--out {folder}: holds a run already; name another folder, or replace it "
                        "with --force"
                    ) from None
                except OSError as error:
                    raise ProfileError(f"{folder}: cannot be written ({error.strerror})") from error
                stack.push(tried.pop_all())
            break
        stack.enter_context(journal)
        run, process = RunFolder(folder, journal), os.getpid()
        try:
            yield run
        finally:
            # A program that is run may have forked: its child leaves the folder alone.
            if os.getpid() == process and not journal.closed and not run.holds_trials():
                remove_file(folder / JOURNAL)


def _open_journal(folder: Path, replace: bool) -> BinaryIO:
    """A new journal; where one may be replaced, an old one is emptied unless a run writes it."""
    from chainer_profile.record.journal import recover

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


def _trials_in(journal: Path) -> int:
    """Number of profiled trials in a journal; 0 where it cannot be read."""
    from chainer_profile.record.journal import recover

    try:
        return recover(journal).n_trials
    except ProfileError:
        return 0


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
    from chainer_profile.record.journal import recover
    from chainer_profile.record.recording import Recording

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
                remove_file(journal)
                return recording
    if (place / RECORDING).exists():
        return Recording.load(place / RECORDING)
    if killed:
        raise ProfileError(
            f"{place}: the run was killed before its first trials were written; run it again with "
            "--force"
        )
    raise ProfileError(f"{place}: holds no run (there is no {RECORDING} in it)")
