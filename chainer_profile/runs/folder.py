"""The folder of a run: taking it, and reading and writing its recording."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from chainer_profile.basics import files
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.units import format_count
from chainer_profile.basics.words import TYPED
from chainer_profile.record.budget import ADVICE, BUDGET, read_budget
from chainer_profile.runs.formats import is_report
from chainer_profile.runs.written import refuse_foreign, remove

if TYPE_CHECKING:
    from chainer_profile.record.recording import Recording

RECORDING = "recording.npz"
JOURNAL = "recording.journal"
_RANK = "rank-"


@dataclass(frozen=True)
class RunFolder:
    """A folder that a run has taken, with the open journal of its trials."""

    path: Path
    journal: BinaryIO

    def save(self, recording: Recording) -> None:
        """Write the recording and remove the journal of its trials.

        Raises:
            ProfileError: The recording cannot be written. The message says how many of its trials
                the journal has, and which command recovers them.
        """
        try:
            save_recording(self.path, recording)
        except ProfileError as error:
            raise ProfileError(f"{error}; {_kept(self.path, recording.n_trials)}") from error
        self.journal.close()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def holds_trials(self) -> bool:
        """Whether the journal holds a profiled trial that is not saved in a recording."""
        return not self.journal.closed and _trials_in(self.path / JOURNAL) > 0


@contextmanager
def take_folder(
    out: Path | None, default: Path, force: bool, rank: int | None = None
) -> Iterator[RunFolder]:
    """Take a folder for a run: ``out``, or the default with the next free number.

    With ``force``, ``out`` may hold something: files with names of a run's are replaced when the
    new ones are written. All ranks of a run take the same folder, and each its ``rank-N`` in it.
    """
    for folder in _places(out, default, rank):
        with files.removed_if_empty(folder):
            if out is not None:
                has_run = (folder / RECORDING).exists() or (folder / JOURNAL).exists()
                refuse_foreign(folder, is_of_run, "run", has_run, force)
            try:
                journal = _open_journal(folder, replace=force)
            except FileExistsError:
                if out is None:
                    continue
                raise UsageError(
                    f"--out {folder} contains a run already; name another folder, or replace it "
                    "with --force"
                ) from None
            except OSError as error:
                raise ProfileError(f"{folder}: cannot be written ({error.strerror})") from error
            process = os.getpid()
            with journal:
                try:
                    yield RunFolder(folder, journal)
                finally:
                    # The child of a program that forks leaves the folder alone.
                    if os.getpid() == process and not _trials_in(folder / JOURNAL):
                        files.remove_file(folder / JOURNAL)
            return


def _places(out: Path | None, default: Path, rank: int | None) -> Iterator[Path]:
    """The folders that a run may take, the first one that is free."""
    if rank is None:
        return iter([out]) if out else filter(files.is_free, files.numbered(default))
    places = [out] if out else filter(_is_free_for_ranks, files.numbered(default))
    return (place / f"{_RANK}{rank}" for place in places)


def is_of_run(name: str) -> bool:
    """Whether a run may write a file of this name into its folder."""
    return name in (RECORDING, JOURNAL) or is_report(name)


def _is_free_for_ranks(folder: Path) -> bool:
    """Whether it holds no rank's recording and no other files but journals of this run's ranks."""
    return not any(
        (rank / RECORDING).exists() or not (files.is_free(rank) or (rank / JOURNAL).exists())
        for rank in folder.glob(f"{_RANK}*")
    )


def _open_journal(folder: Path, replace: bool) -> BinaryIO:
    """A new journal, or an old one, emptied, if it may be replaced and no run is writing it."""
    from chainer_profile.record.journal import recover

    path = folder / JOURNAL
    # Opening a new journal fails if another run has just done so.
    journal = files.open_unfollowed(path, 0 if replace and path.exists() else files.NEW)
    try:
        files.lock(journal, folder)
        if not (folder / RECORDING).exists():
            # Trials of a killed run stay until those of the new run replace them.
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


def _kept(folder: Path, n_trials: int) -> str:
    """Name the file with the trials that could not be saved, and the command that saves them."""
    kept = _trials_in(folder / JOURNAL)
    if not kept:
        return f"{folder / JOURNAL} has no trials: they are lost"
    which = "the" if kept == n_trials else f"{format_count(kept)} of {format_count(n_trials)}"
    return (
        f"{which} trials are kept in {folder / JOURNAL}: free some space, then run {TYPED} report "
        f"{folder}"
    )


def _trials_in(journal: Path) -> int:
    """Number of profiled trials in a journal; 0 if it cannot be read."""
    from chainer_profile.record.journal import recover

    try:
        return recover(journal).n_trials
    except ProfileError:
        return 0


def save_recording(folder: Path, recording: Recording, kept: Collection[str] = ()) -> None:
    """Write a recording into its folder, and remove reports of an earlier one but ``kept``."""
    is_replaced = (folder / RECORDING).exists()
    with files.replacing(folder / RECORDING) as file:
        recording.save(file)
    if is_replaced:
        remove(folder, lambda name: is_report(name) and name not in kept)


def load_run(place: Path) -> Recording:
    """The recording in a folder or file; the trials of a killed run become a recording first."""
    from chainer_profile.record.journal import KILLED, recover
    from chainer_profile.record.recording import Recording

    if not place.is_dir():
        return Recording.load(place)
    journal = place / JOURNAL
    killed = journal.exists()
    if killed:
        recording = recover(journal)
        with files.open_regular(journal) as file:
            files.lock(file, place)
            if recording.n_trials:
                try:
                    # The killed program's budget and advice belong to these trials.
                    save_recording(place, recording, kept=(BUDGET, ADVICE))
                except ProfileError as error:
                    raise ProfileError(f"{error}; {_kept(place, recording.n_trials)}") from error
                files.remove_file(journal)
                return recording
    if (place / RECORDING).exists():
        return Recording.load(place / RECORDING)
    if killed:
        is_damaged = recording.ended != KILLED
        why = recording.ended if is_damaged else "killed before its first trials were written"
        raise ProfileError(f"{place}: the run was {why}; run it again with --force")
    below = sorted(place.glob(f"*/{_RANK}0"))
    hint = f"; {below[0].parent} contains ranks" if below else ""
    raise ProfileError(f"{place} contains no run (no {RECORDING}){hint}")


def has_ranks(folder: Path) -> bool:
    """Whether a folder contains folders of ranks, rank-0 and so on, and no run of its own."""
    has_run = (folder / RECORDING).exists() or (folder / JOURNAL).exists()
    return not has_run and bool(_rank_folders(folder))


def read_ranks(folder: Path) -> tuple[dict[str, Recording], list[str], dict[str, str]]:
    """The recordings of all ranks, the problems, and the outcomes.

    Recordings and outcomes are by the names of the ranks' folders; a problem is a line about a
    recording that is missing or damaged; outcomes tell how programs ended, if their budgets do.
    """
    recordings, problems, outcomes = {}, [], {}
    for place in _rank_folders(folder):
        try:
            recordings[place.name] = load_run(place)
        except ProfileError as error:
            problem = str(error).removeprefix(f"{place}: ").replace(f"{place}/", "")
            problems.append(f"{place.name}: {problem}")
        with suppress(ProfileError):  # which the report of that rank tells
            if budget := read_budget(place):
                outcomes[place.name] = budget.outcome
    return recordings, problems, outcomes


def _rank_folders(folder: Path) -> list[Path]:
    """The folders of ranks in a folder."""
    places = folder.glob(f"{_RANK}*")
    return sorted(place for place in places if place.name.removeprefix(_RANK).isdigit())
