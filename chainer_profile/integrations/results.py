"""Folders for the measurements of a program while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.files import make_folder, remove_file, temporary_path
from chainer_profile.basics.words import TYPED
from chainer_profile.measure import machine
from chainer_profile.record.budget import (
    ADVICE,
    BUDGET,
    TRAINING,
    Budget,
    read_budget,
    write_json,
)
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording
from chainer_profile.runs.folder import JOURNAL, RunFolder, is_run_file, take_folder
from chainer_profile.runs.output_files import remove_all, write

if TYPE_CHECKING:
    from chainer_profile.advice.results import Advice

#: Name of the main folder.
MAIN = ""
_IN_MEMORY = "trials are kept in memory, and lost if the program is killed"


@dataclass
class Results:
    """The main folder of a program's measurements, and a subfolder for each further kind of trials.

    The main folder has the trials of the training. Until there are any, it has the trials of the
    network that was called first.
    """

    # The arguments of take_folder.
    out: Path | None
    default: Path
    force: bool
    rank: int | None
    warn: Callable[[str], None]
    limits: bool = True  #: Whether to add the machine's saved limits to recordings.
    #: Called with a line that the user should read while the program runs.
    say: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self._folders: dict[str, RunFolder] = {}
        # Name of the folder with the journal of each kind of trials.
        self._folder_names: dict[str, str] = {}
        # Subfolders with trials of the earlier program that this one replaces.
        self._earlier: list[Path] = []
        self._files = ExitStack()
        self.close = self._files.close  #: Release the folders, and remove journals without trials.

    def take(self, name: str = MAIN) -> RunFolder:
        """Make and lock a folder unless that has been done; a subfolder needs the main folder."""
        if name not in self._folders:
            enter = self._files.enter_context
            if name == MAIN:
                self._folders[name] = enter(
                    take_folder(self.out, self.default, self.force, self.rank)
                )
                if self.force:
                    self._earlier = list(_subfolders_of_trials(self._folders[name].path))
            else:
                path = self.take().path / name
                try:
                    self._folders[name] = enter(take_folder(path, path, self.force))
                except UsageError:  # it has the user's own files: add a number to its name
                    self._folders[name] = enter(take_folder(None, path, False))
        return self._folders[name]

    @property
    def main(self) -> Path | None:
        """Path of the main folder; None unless it was made and locked."""
        return self._folders[MAIN].path if MAIN in self._folders else None

    def folders(self) -> dict[str, str]:
        """The folder of each kind of trials, relative to the main folder."""
        return {
            kind: os.path.relpath(self._folders[name].path, self._folders[MAIN].path)
            for kind, name in self._folder_names.items()
            if name in self._folders
        }

    def journal(self, kind: str) -> Journal:
        """Open the journal of a kind of trials, in memory if no file can be written."""
        try:
            if kind == TRAINING or not self._folder_names:
                self._move_to_main(kind)
            file = self.take(self._folder_names.setdefault(kind, kind)).journal
        except ProfileError as error:
            problem = f"{error}: {_IN_MEMORY}"
            (self.say or self.warn)(problem)
            return Journal()
        return Journal(file, partial(self._explain, kind))

    def _explain(self, kind: str, reason: str) -> str:
        """Make the message of a journal that cannot be written, with its consequences.

        ``say`` prints them at once, if there is one; then the message has only the problem.
        """
        folder = self._folders[self._folder_names[kind]].path
        problem = f"{folder / JOURNAL}: {reason}"
        follows = f"from now on {_IN_MEMORY}; {TYPED} report {folder} recovers the earlier trials"
        if self.say is None:
            return f"{problem}: {follows}"
        self.say(f"the trials cannot be written: {problem}: {follows}")
        return problem

    def _move_to_main(self, kind: str) -> None:
        """Move the journal of a kind to the main folder, and the journal there to a subfolder."""
        names = self._folder_names
        in_main = [other for other, name in names.items() if name == MAIN and other != kind]
        elsewhere = [kind] if names.get(kind, MAIN) != MAIN else []
        try:
            for other in (*in_main, *elsewhere):
                self._swap_journals(other)
        except OSError:  # Windows does not move open files
            return
        names[kind] = MAIN

    def _swap_journals(self, kind: str) -> None:
        """Exchange the journals of the main folder and of the folder named ``kind``."""
        # The files stay open, and each is complete under some name at any time.
        main, other = self.take(), self.take(kind)
        temporary = temporary_path(main.path / JOURNAL)
        os.replace(other.path / JOURNAL, temporary)
        os.replace(main.path / JOURNAL, other.path / JOURNAL)
        os.replace(temporary, main.path / JOURNAL)
        for folder in (main, other):  # it belongs to the journal, and is written again
            remove_file(folder.path / ADVICE)
        self._folders[MAIN] = replace(main, journal=other.journal)
        self._folders[kind] = replace(other, journal=main.journal)
        self._folder_names[kind] = MAIN if self._folder_names[kind] != MAIN else kind

    def save(self, recordings: Mapping[str, Recording]) -> dict[Path, Recording]:
        """Write the recordings of each kind; return them by their folders, the main one first."""
        saved = {}
        for number, (kind, recording) in enumerate(recordings.items()):
            try:
                if not number:
                    self._move_to_main(kind)
                folder = self.take(self._folder_names.get(kind, kind))
                make_folder(folder.path)  # the program may have removed it
                if self.limits:
                    recording = machine.with_saved_limits(recording, self.warn)
                folder.save(recording)
                saved[folder.path] = recording
            except ProfileError as error:
                self.warn(str(error))
            except (OSError, MemoryError) as error:
                self.warn(f"{kind}: the trials could not be saved: {one_line(error)}")
        taken = {folder.path for folder in self._folders.values()}
        for path in self._earlier:
            if path not in taken:
                with self._warning():
                    remove_all(path, is_run_file)
        return saved

    def save_advice(self, kind: str, advice: Advice) -> None:
        """Write the results of the changes that were tried so far to the folder of the trials."""
        if folder := self._folders.get(self._folder_names.get(kind, kind)):
            from chainer_profile.advice.results import write_json as write_advice

            with self._warning():
                write(folder.path, {ADVICE: write_advice(advice)})

    def save_budget(self, budget: Budget) -> None:
        """Write the program's time budget so far."""
        with self._warning():
            write(self.take().path, {BUDGET: write_json(budget)})

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Turn a ProfileError within the context into a warning."""
        try:
            yield
        except ProfileError as error:
            self.warn(str(error))


def _subfolders_of_trials(folder: Path) -> Iterator[Path]:
    """Yield the subfolders with trials that the budget in a folder names."""
    with suppress(ProfileError):  # the budget is damaged
        budget = read_budget(folder)
        for trials in () if budget is None else budget.trials:
            path = folder / trials.folder
            if path != folder:
                yield path
