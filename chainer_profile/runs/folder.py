"""The folder of a run: reserves it, and reads and writes its recording."""

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
from chainer_profile.runs.output_files import refuse_foreign, remove

if TYPE_CHECKING:
    from chainer_profile.record.recording import Recording

RECORDING = "recording.npz"
JOURNAL = "recording.journal"
_RANK = "rank-"


@dataclass(frozen=True)
class RunFolder:
    """A folder that a run has reserved, with the open journal of its trials."""

    path: Path
    journal: BinaryIO

    def save(self, recording: Recording) -> None:
        """Write the recording and remove the journal of its trials.

        Raises:
            ProfileError: The recording cannot be written. The message has the number of trials in
                the journal, and the command that recovers them.
        """
        try:
            save_recording(self.path, recording)
        except ProfileError as error:
            hint = _how_to_recover(self.path, recording.n_trials)
            raise ProfileError(f"{error}; {hint}") from error
        self.journal.close()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def has_trials(self) -> bool:
        """Whether the journal has profiled trials that are not saved in a recording."""
        return not self.journal.closed and _trials_in(self.path / JOURNAL) > 0


@contextmanager
def take_folder(
    out: Path | None, default: Path, force: bool, rank: int | None = None
) -> Iterator[RunFolder]:
    """Reserve a folder for a run: ``out``, or the default with the next free number.

    With ``force``, ``out`` may contain files. New files of the run replace files of an earlier run.
    All ranks of a run use the same folder; each has its own ``rank-N`` in it.
    """
    for folder in _possible_folders(out, default, rank):
        with files.removed_if_empty(folder):
            if out is not None:
                has_run = (folder / RECORDING).exists() or (folder / JOURNAL).exists()
                refuse_foreign(folder, is_run_file, "run", has_run, force)
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
                    # A forked child of the program must not touch the folder.
                    if os.getpid() == process and not _trials_in(folder / JOURNAL):
                        files.remove_file(folder / JOURNAL)
            return


def _possible_folders(out: Path | None, default: Path, rank: int | None) -> Iterator[Path]:
    """Yield ``out``, or the free numbered defaults; for a rank, the subfolders ``rank-N``."""
    if rank is None:
        return iter([out]) if out else filter(files.is_free, files.numbered(default))
    folders = [out] if out else filter(_is_free_for_ranks, files.numbered(default))
    return (folder / f"{_RANK}{rank}" for folder in folders)


def is_run_file(name: str) -> bool:
    """Whether a run may write a file of this name into its folder."""
    return name in (RECORDING, JOURNAL) or is_report(name)


def _is_free_for_ranks(folder: Path) -> bool:
    """Whether the ranks' folders have no recordings, and no files except journals of this run."""
    return not any(
        (rank / RECORDING).exists() or not (files.is_free(rank) or (rank / JOURNAL).exists())
        for rank in folder.glob(f"{_RANK}*")
    )


def _open_journal(folder: Path, replace: bool) -> BinaryIO:
    """Create and lock a journal, or empty an old one if ``replace``.

    The trials of a killed run are saved before. Raise FileExistsError if the folder has a run that
    may not be replaced, and ProfileError if a run is writing it.
    """
    from chainer_profile.record.journal import recover

    path = folder / JOURNAL
    # Opening a new journal fails if another run has just created it.
    journal = files.open_unfollowed(path, 0 if replace and path.exists() else files.NEW)
    try:
        files.lock(journal, folder)
        if not (folder / RECORDING).exists():
            # Keep the trials of a killed run until the recording of the new run replaces them.
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


def _how_to_recover(folder: Path, n_trials: int) -> str:
    """Name the journal with the trials that could not be saved, and the command to save them."""
    saved = _trials_in(folder / JOURNAL)
    if not saved:
        return f"{folder / JOURNAL} has no trials: they are lost"
    which = "the" if saved == n_trials else f"{format_count(saved)} of {format_count(n_trials)}"
    return (
        f"{which} trials are still in {folder / JOURNAL}: free some space, then run {TYPED} report "
        f"{folder}"
    )


def _trials_in(journal: Path) -> int:
    """Number of profiled trials in a journal; 0 if it cannot be read."""
    from chainer_profile.record.journal import recover

    try:
        return recover(journal).n_trials
    except ProfileError:
        return 0


def save_recording(folder: Path, recording: Recording, keep: Collection[str] = ()) -> None:
    """Write a recording into its folder; remove reports of an earlier one except ``keep``."""
    is_replaced = (folder / RECORDING).exists()
    with files.replacing(folder / RECORDING) as file:
        recording.save(file)
    if is_replaced:
        remove(folder, lambda name: is_report(name) and name not in keep)


def load_run(path: Path) -> Recording:
    """Read the recording in a folder or file. Convert the journal of a killed run first."""
    from chainer_profile.record.journal import KILLED, recover
    from chainer_profile.record.recording import Recording

    if not path.is_dir():
        return Recording.load(path)
    journal = path / JOURNAL
    killed = journal.exists()
    if killed:
        recording = recover(journal)
        with files.open_regular(journal) as file:
            files.lock(file, path)
            if recording.n_trials:
                try:
                    # The killed program's budget and advice belong to these trials.
                    save_recording(path, recording, keep=(BUDGET, ADVICE))
                except ProfileError as error:
                    hint = _how_to_recover(path, recording.n_trials)
                    raise ProfileError(f"{error}; {hint}") from error
                files.remove_file(journal)
                return recording
    if (path / RECORDING).exists():
        return Recording.load(path / RECORDING)
    if killed:
        is_damaged = recording.ended != KILLED
        why = recording.ended if is_damaged else "killed before its first trials were written"
        raise ProfileError(f"{path}: the run was {why}; run it again with --force")
    below = sorted(path.glob(f"*/{_RANK}0"))
    hint = f"; {below[0].parent} contains ranks" if below else ""
    raise ProfileError(f"{path} contains no run (no {RECORDING}){hint}")


def has_ranks(folder: Path) -> bool:
    """Whether a folder contains folders of ranks (``rank-0``, ...) and is not a run itself."""
    has_run = (folder / RECORDING).exists() or (folder / JOURNAL).exists()
    return not has_run and bool(_rank_folders(folder))


def read_ranks(folder: Path) -> tuple[dict[str, Recording], list[str], dict[str, str]]:
    """Read the recordings of all ranks.

    Returns:
        The recordings, by the names of the ranks' folders; one line for each recording that is
        missing or damaged; and the outcomes of the programs that have a budget, by folder.
    """
    recordings, problems, outcomes = {}, [], {}
    for rank in _rank_folders(folder):
        try:
            recordings[rank.name] = load_run(rank)
        except ProfileError as error:
            problem = str(error).removeprefix(f"{rank}: ").replace(f"{rank}/", "")
            problems.append(f"{rank.name}: {problem}")
        with suppress(ProfileError):  # the report of that rank shows the problem
            if budget := read_budget(rank):
                outcomes[rank.name] = budget.outcome
    return recordings, problems, outcomes


def _rank_folders(folder: Path) -> list[Path]:
    """The folders of ranks in a folder."""
    folders = folder.glob(f"{_RANK}*")
    return sorted(path for path in folders if path.name.removeprefix(_RANK).isdigit())
