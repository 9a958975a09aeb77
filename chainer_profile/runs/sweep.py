"""A sweep: its folder and cases. Runs the cases that are not finished."""

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
from itertools import count, pairwise
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
from chainer_profile.runs.folder import JOURNAL, RECORDING, is_run_file, save_recording
from chainer_profile.runs.output_files import (
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
#: Settings that identify a case, in addition to the network and the shape of its input.
_IDENTIFYING = (
    *("batchsize", "device", "phase", "trials", "warmups", "threads", "seed", "dtype"),
    "max_seconds",
)


@dataclass(frozen=True)
class Case:
    """One run of a sweep. Cases with equal networks and settings are equal."""

    model: str  #: Name of the network, as the user typed it.
    settings: Settings
    words: tuple[str, ...] = field(compare=False)  #: Arguments of the command that runs the case.
    #: Arguments of the network and of its call that the settings do not contain.
    arguments: str = ""

    @property
    def key(self) -> dict[str, Any]:
        """The values that identify the case in the plan of a sweep."""
        shape = list(self.settings.input_shape[1:])
        settings = {name: getattr(self.settings, name) for name in _IDENTIFYING}
        key = {**settings, "model": self.model, "input_shape": shape}
        return key | ({"arguments": self.arguments} if self.arguments else {})

    @property
    def name(self) -> str:
        """A name for the case's folder; other cases may have the same."""
        settings = self.settings
        shapes = [
            re.sub(r"[^\w.=]", "-", value)
            for option, value in pairwise(self.words)
            if option == "--input-shape"
        ]
        shape = format_input(settings.input_shape[1:])
        parts = [settings.model, "+".join(shapes) if len(shapes) > 1 else shape]
        parts += [settings.device.replace(":", ""), f"b{settings.batchsize}"]
        parts += [settings.phase] if settings.phase != PHASES[0] else []
        parts += [settings.dtype] if settings.dtype != DTYPES[0] else []
        parts += [f"t{settings.threads}"] if settings.threads not in (None, 1) else []
        parts += [f"seed{settings.seed}"] if settings.seed else []
        return "-".join(parts)

    def matches(self, settings: Settings) -> bool:
        """Whether a recording with these settings belongs to this case."""
        names = ("model", "input_shape", *_IDENTIFYING)
        return all(getattr(settings, name) == getattr(self.settings, name) for name in names)


def case_names(cases: Iterable[Case], existing: Mapping[Case, str]) -> dict[Case, str]:
    """Choose the name of each case's folder: its existing name, or a free one."""
    names: dict[Case, str] = {}
    used = set(existing.values())
    for case in cases:
        free = (f"{case.name}-{n}" if n > 1 else case.name for n in count(1))
        names[case] = existing.get(case) or next(name for name in free if name not in used)
        used.add(names[case])
    return names


class SweepFolder:
    """The folder of a sweep. Nothing is written before :meth:`begin`."""

    def __init__(self, path: Path, cases: Sequence[Case], force: bool) -> None:
        self.path, self._force = path, force
        plan = _read_plan(path)
        by_key = {_json(case.key): case for case in cases}
        existing = {by_key[key]: name for key, name in plan.items() if key in by_key}
        #: Names of the cases' folders.
        self.names = case_names(cases, {} if force else existing)
        #: Names of the folders of an earlier sweep in this folder.
        self.earlier_names = list(plan.values())
        #: Names among these for cases that this sweep does not have.
        self.foreign_names = [name for key, name in plan.items() if key not in by_key]

    def begin(self) -> None:
        """Write the plan of the sweep; with ``force``, remove the files of an earlier sweep."""
        if self._force and self.earlier_names:
            remove(self.path, lambda name: _is_sweep_file(name) and name != PLAN)
            for name in self.earlier_names:
                remove_all(self.path / name, _is_case_file)
        cases = [{"name": name, **case.key} for case, name in self.names.items()]
        plan = {"format": FORMAT, "version": VERSION, "cases": cases}
        write(self.path, {PLAN: as_json(plan)})

    def finished(self, case: Case) -> CaseResult | None:
        """The result of a case; None without a complete recording with the same settings."""
        folder = self.path / self.names[case]
        try:
            recording = Recording.load(folder / RECORDING)
        except ProfileError:
            return None
        is_complete = recording.ended in (COMPLETE, TIME_LIMIT)
        if self._force or not is_complete or not case.matches(recording.settings):
            return None
        try:
            machine = str(json.loads(read_regular(folder / ABOUT))["machine"])
        except (OSError, ValueError, LookupError, TypeError):
            machine = ""
        return result_of(self.names[case], recording, machine)

    def save(self, case: Case, outcome: Outcome, recording: Recording) -> CaseResult:
        """Write a case's recording; return its result."""
        folder = self.path / self.names[case]
        command = shlex.join([*COMMAND, *case.words, "--out", str(folder)])
        recording = replace(recording, settings=replace(recording.settings, command=command))
        # The recording is written last, because a case with a recording is finished.
        write(folder, {ABOUT: _json({"machine": outcome.machine}) + "\n"})
        save_recording(folder, recording)
        return result_of(self.names[case], recording, outcome.machine)


@contextmanager
def take_sweep(path: Path, cases: Sequence[Case], force: bool) -> Iterator[SweepFolder]:
    """Lock a folder for a sweep. ``force`` measures all cases again."""
    if (path / RECORDING).exists() or (path / JOURNAL).exists():
        raise UsageError(f"--out {path} contains a run; name another folder for the sweep")
    with removed_if_empty(path), locked(path, "another sweep is writing there"):
        folder = SweepFolder(path, cases, force)
        if folder.foreign_names and not force:
            raise UsageError(
                f"--out {path} contains another sweep (with {folder.foreign_names[0]}); name "
                "another folder, or replace it with --force"
            )
        has_sweep = bool(folder.earlier_names)
        refuse_foreign(path, _is_sweep_file, "sweep", has_sweep, force or has_sweep)
        for name in folder.names.values():
            refuse_folders(path / name, _is_case_file)
        yield folder


def _is_sweep_file(name: str) -> bool:
    """Whether a sweep may write a file of this name into its folder."""
    return _FILES.fullmatch(name) is not None


def _is_case_file(name: str) -> bool:
    """Whether a case may write a file of this name into its folder."""
    return name == ABOUT or is_run_file(name)


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)


def _read_plan(path: Path) -> dict[str, str]:
    """Read the names of the cases of a sweep, by their keys; empty without a sweep."""
    file = path / PLAN
    if not file.exists():
        return {}
    names = {}
    try:
        for entry in read_known(file, read_regular(file), FORMAT, VERSION)["cases"]:
            name = entry.pop("name")
            # The name becomes part of a path that may be deleted.
            if name != os.path.basename(name) or name in ("", ".", ".."):
                raise ValueError(name)
            names[_json(entry)] = name
    except (OSError, ProfileError, LookupError, TypeError, ValueError, AttributeError):
        raise UsageError(
            f"{file}: damaged, or of a newer version; remove it, or name another folder"
        ) from None
    return names


def run_cases(
    todo: Sequence[Case], folder: SweepFolder, workers: Workers, say: Callable[[str], None]
) -> Generator[tuple[Case, CaseResult]]:
    """Run cases on workers; yield each case with its result when it ends.

    A case that fails runs once more; if it fails again, its result has the error.
    """
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
                    yield case, folder.save(case, outcome, recording)
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
    """Read the outcome of a case, and its recording unless it has an error."""
    try:
        outcome = future.result()
    except CancelledError as error:  # raised by Dask
        raise ProfileError(
            "the scheduler disconnected; repeat the command when it is back"
        ) from error
    except Exception as error:  # any kind: a worker died, or does not have this package
        outcome = Outcome(error=one_line(error)[:300])
    if outcome.error:
        return outcome, None
    try:
        with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
            file = Path(folder, RECORDING)
            file.write_bytes(outcome.recording)
            return outcome, Recording.load(file)
    except (OSError, ProfileError) as error:
        return outcome._replace(error=f"the result is unusable: {error}"), None
