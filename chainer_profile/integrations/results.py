"""The folders in which a program's measurements are kept while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.files import make_folder, remove_file, temporary_path
from chainer_profile.measure import machine
from chainer_profile.record.budget import ADVICE, BUDGET, Budget, write_json
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording
from chainer_profile.runs.folder import JOURNAL, RunFolder, take_folder
from chainer_profile.runs.written import write

if TYPE_CHECKING:
    from chainer_profile.advice.results import Advice

#: The main folder.
MAIN = ""
#: Names of the kinds of trials; the second one of a kind has a number behind it.
TRAINING, TEST = "train", "test"


@dataclass
class Results:
    """The folder of a program, with further ones in it for further kinds of trials.

    A training's trials are in the main folder. Until one comes, those of the first network are.
    """

    out: Path | None
    default: Path
    force: bool
    rank: int | None
    warn: Callable[[str], None]
    limits: bool = True

    def __post_init__(self) -> None:
        self._folders: dict[str, RunFolder] = {}
        # The folder of each kind of trials, where its journal is.
        self._homes: dict[str, str] = {}
        self._files = ExitStack()
        self.close = self._files.close  #: Leave the folders. A journal without trials goes.

    def take(self, name: str = MAIN) -> RunFolder:
        """The folder of this name; that of the whole program comes first."""
        if name not in self._folders:
            taken = self._files.enter_context
            if name == MAIN:
                self._folders[name] = taken(
                    take_folder(self.out, self.default, self.force, self.rank)
                )
            else:
                place = self.take().path / name
                try:
                    self._folders[name] = taken(take_folder(place, place, self.force))
                except UsageError:  # files of the user's are in the way
                    self._folders[name] = taken(take_folder(None, place, False))
        return self._folders[name]

    @property
    def main(self) -> Path | None:
        """The main folder, where it could be taken."""
        return self._folders[MAIN].path if MAIN in self._folders else None

    def folders(self) -> dict[str, str]:
        """The folder of each kind of trials, relative to the main folder."""
        return {
            kind: os.path.relpath(self._folders[home].path, self._folders[MAIN].path)
            for kind, home in self._homes.items()
            if home in self._folders
        }

    def journal(self, kind: str) -> Journal:
        """The journal of a kind of trials; one in memory where no file can be had."""
        try:
            if kind == TRAINING or not self._homes:
                self._give_main_to(kind)
            return Journal(self.take(self._homes.setdefault(kind, kind)).journal)
        except ProfileError as error:
            self.warn(str(error))
            return Journal()

    def _give_main_to(self, kind: str) -> None:
        """Let a kind of trials have the main folder, where its files can be moved."""
        others = [other for other, home in self._homes.items() if home == MAIN and other != kind]
        elsewhere = [kind] if self._homes.get(kind, MAIN) != MAIN else []
        try:
            for other in (*others, *elsewhere):
                self._exchange(other)
        except OSError:  # Windows moves no open files
            return
        self._homes[kind] = MAIN

    def _exchange(self, kind: str) -> None:
        """Let the main folder and that of a kind of trials exchange their journals."""
        # The files stay open, and each is whole in one of the two folders at any time.
        main, other = self.take(), self.take(kind)
        between = temporary_path(main.path / JOURNAL)
        os.replace(other.path / JOURNAL, between)
        os.replace(main.path / JOURNAL, other.path / JOURNAL)
        os.replace(between, main.path / JOURNAL)
        for folder in (main, other):  # advice is written again beside its trials
            remove_file(folder.path / ADVICE)
        self._folders[MAIN] = replace(main, journal=other.journal)
        self._folders[kind] = replace(other, journal=main.journal)
        self._homes[kind] = MAIN if self._homes[kind] != MAIN else kind

    def save(self, recordings: Mapping[str, Recording]) -> dict[Path, Recording]:
        """Write recordings by the names of their kinds; gives them by their folders, main first."""
        saved = {}
        for number, (kind, recording) in enumerate(recordings.items()):
            try:
                if not number:
                    self._give_main_to(kind)
                folder = self.take(self._homes.get(kind, kind))
                make_folder(folder.path)  # the program may have removed it
                if self.limits:
                    recording = machine.with_saved_limits(recording, self.warn)
                folder.save(recording)
                saved[folder.path] = recording
            except ProfileError as error:
                self.warn(str(error))
            except (OSError, MemoryError) as error:
                self.warn(f"{kind}: the trials could not be saved: {one_line(error)}")
        return saved

    def save_advice(self, kind: str, advice: Advice) -> None:
        """Write what was tried so far in trials of a kind, beside them."""
        if home := self._folders.get(self._homes.get(kind, kind)):
            from chainer_profile.advice.results import write_json as write_advice

            with self._warning():
                write(home.path, {ADVICE: write_advice(advice)})

    def save_budget(self, budget: Budget) -> None:
        """Write where the time went, so far."""
        with self._warning():
            write(self.take().path, {BUDGET: write_json(budget)})

    @contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except ProfileError as error:
            self.warn(str(error))
