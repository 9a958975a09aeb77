"""A sweep: its folder, its finished cases, and running the others."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from chainer_profile.analyse.case_result import CaseResult, result_of
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.files import as_json, locked, read_regular, removed_if_empty
from chainer_profile.basics.units import format_input
from chainer_profile.basics.words import COMMAND, DTYPES, PHASES
from chainer_profile.record.parts import Settings
from chainer_profile.record.recording import COMPLETE, TIME_LIMIT, Recording
from chainer_profile.record.versioned import read_known
from chainer_profile.runs.executors import Outcome, Workers
from chainer_profile.runs.folder import JOURNAL, RECORDING, is_of_run, save_recording
from chainer_profile.runs.written import (
    refuse_folders,
    refuse_foreign,
    remove,
    remove_all,
    write,
)

FORMAT = "chainer-profile sweep"
VERSION = 1
PLAN = "sweep.json"
ABOUT = "case.json"
_FILES = re.compile(r"sweep\.(json|csv|md|html)|(latency-by-network|by-batch-size)\.(png|svg)")
#: Attempts at a case that fails.
MAX_ATTEMPTS = 2
#: The settings that a case determines, beside the network and its input's shape.
_DETERMINED = (
    *("batchsize", "device", "phase", "trials", "warmups", "threads", "seed", "dtype"),
    "max_seconds",
)


@dataclass(frozen=True)
class Case:
    """A run of a sweep. Cases are equal if they measure the same."""

    #: The user's name for the network.
    model: str
    settings: Settings
    #: The arguments of the program that runs it.
    words: tuple[str, ...] = field(compare=False)
    #: Arguments of the network, and of its call, that the settings do not say.
    arguments: str = ""

    @property
    def key(self) -> dict[str, Any]:
        shape = list(self.settings.input_shape[1:])
        determined = {name: getattr(self.settings, name) for name in _DETERMINED}
        key = {**determined, "model": self.model, "input_shape": shape}
        return key | ({"arguments": self.arguments} if self.arguments else {})

    @property
    def name(self) -> str:
        """A name for the case's folder, which other cases may have too."""
        of = self.settings
        parts = [of.model, format_input(of.input_shape[1:]), of.device.replace(":", "")]
        parts += [f"b{of.batchsize}"]
        parts += [word for word in (of.phase, of.dtype) if word not in (PHASES[0], DTYPES[0])]
        parts += [f"t{of.threads}"] if of.threads not in (None, 1) else []
        parts += [f"seed{of.seed}"] if of.seed else []
        return "-".join(parts)

    def is_of(self, settings: Settings) -> bool:
        """Whether the settings of a recording are those of this case."""
        names = ("model", "input_shape", *_DETERMINED)
        return all(getattr(settings, name) == getattr(self.settings, name) for name in names)


def case_names(cases: Iterable[Case], taken: Mapping[Case, str]) -> dict[Case, str]:
    """The name of each case's folder: the name that it has already, or a free one."""
    names: dict[Case, str] = {}
    used = set(taken.values())
    for case in cases:
        free = (f"{case.name}-{n}" if n > 1 else case.name for n in count(1))
        names[case] = taken.get(case) or next(name for name in free if name not in used)
        used.add(names[case])
    return names


class SweepFolder:
    """The folder of a sweep, in which nothing is written before :meth:`begin`."""

    def __init__(self, path: Path, cases: Sequence[Case], force: bool) -> None:
        self.path, self._force = path, force
        plan = _read_plan(path)
        by_key = {_json(case.key): case for case in cases}
        taken = {by_key[key]: name for key, name in plan.items() if key in by_key}
        #: Names of the cases' folders: of this sweep, of the sweep that is in the folder, and of
        #: those cases of the latter that are not in this one.
        self.names = case_names(cases, {} if force else taken)
        self.kept = list(plan.values())
        self.others = [name for key, name in plan.items() if key not in by_key]

    def begin(self) -> None:
        """Write the plan of the sweep, and remove files that it replaces."""
        if self._force and self.kept:
            remove(self.path, lambda name: _is_of_sweep(name) and name != PLAN)
            for name in self.kept:
                remove_all(self.path / name, _is_of_case)
        cases = [{"name": name, **case.key} for case, name in self.names.items()]
        plan = {"format": FORMAT, "version": VERSION, "cases": cases}
        write(self.path, {PLAN: as_json(plan)})

    def finished(self, case: Case) -> CaseResult | None:
        """The result of a case whose recording is complete and of the same settings, else None."""
        folder = self.path / self.names[case]
        try:
            recording = Recording.load(folder / RECORDING)
        except ProfileError:
            return None
        is_whole = recording.ended in (COMPLETE, TIME_LIMIT)
        if self._force or not is_whole or not case.is_of(recording.settings):
            return None
        try:
            machine = str(json.loads(read_regular(folder / ABOUT))["machine"])
        except (OSError, ValueError, LookupError, TypeError):
            machine = ""
        return result_of(self.names[case], recording, machine)

    def keep(self, case: Case, outcome: Outcome, recording: Recording) -> CaseResult:
        """Write a case's recording; returns its result."""
        folder = self.path / self.names[case]
        command = shlex.join([*COMMAND, *case.words, "--out", str(folder)])
        recording = replace(recording, settings=replace(recording.settings, command=command))
        # The recording comes last, since with it the case counts as finished.
        write(folder, {ABOUT: _json({"machine": outcome.machine}) + "\n"})
        save_recording(folder, recording)
        return result_of(self.names[case], recording, outcome.machine)


@contextmanager
def take_sweep(path: Path, cases: Sequence[Case], force: bool) -> Iterator[SweepFolder]:
    """Lock a folder for a sweep within the context; ``force`` measures all cases again."""
    if (path / RECORDING).exists() or (path / JOURNAL).exists():
        raise UsageError(f"--out {path} contains a run; name another folder for the sweep")
    with removed_if_empty(path), locked(path, "another sweep is writing there"):
        folder = SweepFolder(path, cases, force)
        if folder.others and not force:
            raise UsageError(
                f"--out {path} contains another sweep (with {folder.others[0]}); name another "
                "folder, or replace it with --force"
            )
        goes_on = force or bool(folder.kept)
        refuse_foreign(path, _is_of_sweep, "sweep", bool(folder.kept), goes_on)
        for name in folder.names.values():
            refuse_folders(path / name, _is_of_case)
        yield folder


def _is_of_sweep(name: str) -> bool:
    """Whether a sweep may write a file of this name into its folder."""
    return _FILES.fullmatch(name) is not None


def _is_of_case(name: str) -> bool:
    """Whether a case may write a file of this name into its folder."""
    return name == ABOUT or is_of_run(name)


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)


def _read_plan(path: Path) -> dict[str, str]:
    """Names of the cases of the sweep in a folder, by their keys; empty if there is none."""
    place = path / PLAN
    if not place.exists():
        return {}
    names = {}
    try:
        for entry in read_known(place, read_regular(place), FORMAT, VERSION)["cases"]:
            name = entry.pop("name")
            # The name becomes part of a path that may be removed.
            if name != os.path.basename(name) or name in ("", ".", ".."):
                raise ValueError(name)
            names[_json(entry)] = name
    except (OSError, ProfileError, LookupError, TypeError, ValueError, AttributeError):
        raise UsageError(
            f"{place}: damaged, or of a newer version; remove it, or name another folder"
        ) from None
    return names


def run_cases(
    todo: Sequence[Case], folder: SweepFolder, workers: Workers, say: Callable[[str], None]
) -> Generator[tuple[Case, CaseResult]]:
    """Have workers run cases; yields each with its result as it ends."""
    sweep, directory = uuid.uuid4().hex, os.getcwd()
    futures = {workers.submit(sweep, case.words, directory): (case, 1) for case in todo}
    try:
        while futures:
            wait(futures, return_when=FIRST_COMPLETED)
            for future in [future for future in futures if future.done()]:
                case, attempt = futures.pop(future)
                outcome, recording = _outcome_of(future)
                name = folder.names[case]
                if recording is not None:
                    yield case, folder.keep(case, outcome, recording)
                elif attempt < MAX_ATTEMPTS:
                    say(f"{name}: {outcome.error}; trying once more")
                    futures[workers.submit(sweep, case.words, directory)] = case, attempt + 1
                else:
                    yield case, CaseResult(name, case.settings, outcome.machine, outcome.error)
    finally:
        for future in futures:
            future.cancel()
        if futures:
            workers.stop(sweep)


def _outcome_of(future: Future[Outcome]) -> tuple[Outcome, Recording | None]:
    """The outcome of a case, with its recording unless it has an error."""
    try:
        outcome = future.result()
    except CancelledError as error:  # by Dask
        raise ProfileError(
            "the scheduler disconnected; repeat the command when it is back"
        ) from error
    except Exception as error:  # of any kind: a worker that died, or lacks this package
        outcome = Outcome(error=one_line(error)[:300])
    if outcome.error:
        return outcome, None
    try:
        with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
            place = Path(folder, RECORDING)
            place.write_bytes(outcome.recording)
            return outcome, Recording.load(place)
    except (OSError, ProfileError) as error:
        return outcome._replace(error=f"the result is unusable: {error}"), None
