"""A sweep: its folder, which cases are done, and running the others until all are."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
import uuid
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import locked, made, make_folder, remove_folder
from chainer_profile.basics.words import COMMAND
from chainer_profile.record.digest import Digest, Run
from chainer_profile.record.recording import COMPLETE, TIME_LIMIT, Recording, digest_of
from chainer_profile.record.versioned import read_known
from chainer_profile.runs.executors import Outcome, Task, Workers, failure
from chainer_profile.runs.folder import JOURNAL, RECORDING, save_recording
from chainer_profile.runs.sweep_cases import Case, case_names
from chainer_profile.runs.written import Written, refuse_foreign, write_files

FORMAT = "chainer-profile sweep"
VERSION = 1
PLAN = "sweep.json"
ABOUT = "case.json"
SCRATCH = ".running"
_FILES = re.compile(r"sweep\.(json|csv|md)|(latency-by-network|by-batch-size)\.(png|svg)")
#: A case whose process dies is tried so often.
TRIES = 2
#: Seconds between two looks at a sweep of which nothing is heard.
_TICK_S = 5.0
#: How a recording may have ended that is a case's result.
_WHOLE = (COMPLETE, TIME_LIMIT)


def _failed(case: Case, name: str, machine: str, error: str) -> Run:
    return Run(name, Digest(case.settings), machine, error)


class Listener(Protocol):
    """Who is told how a sweep goes."""

    def begun(self, name: str) -> None:
        """A case was handed to a worker."""

    def waiting(self, workers: int) -> None:
        """Nothing was heard for some seconds, from so many workers."""

    def again(self, name: str, error: str) -> None:
        """A case is tried once more."""

    def ended(self, result: Run, seconds: float) -> None:
        """A case has come to its end, and took so long."""


class SweepFolder:
    """The folder of one sweep, taken by this process; see :func:`take_sweep`.

    Attributes:
        path: The folder.
        names: The folder's name of every case.
    """

    def __init__(self, path: Path, names: dict[Case, str], stale: Sequence[str] = ()) -> None:
        self.path = path
        self.names = names
        self._stale = stale

    def begin(self) -> None:
        """Write down what the sweep is, and remove what it replaces.

        Raises:
            ProfileError: It cannot be written.
        """
        for name in self._stale:
            Written(self.path / name).remove_all()
        remove_folder(self.path / SCRATCH)
        cases = [{"name": name, **case.key} for case, name in self.names.items()]
        plan = {"format": FORMAT, "version": VERSION, "cases": cases}
        write_files(self.path, {PLAN: _json_bytes(plan)})

    def finished(self, case: Case) -> Run | None:
        """The result of a case that is done, or None."""
        folder = self.path / self.names[case]
        if self._stale:
            return None
        try:
            recording = Recording.load(folder / RECORDING)
        except ProfileError:
            return None
        if not case.is_of(recording) or recording.ended not in _WHOLE:
            return None
        about = _read_json(folder / ABOUT)
        machine = about.get("machine", "") if isinstance(about, dict) else ""
        return Run(self.names[case], digest_of(recording), str(machine))

    def keep(self, case: Case, outcome: Outcome) -> Run:
        """Write what a case brought, and give its result.

        Raises:
            ProfileError: It cannot be written.
        """
        name = self.names[case]
        folder = self.path / name
        about = {"machine": outcome.machine, "seconds": outcome.seconds}
        write_files(folder, {ABOUT: _json_bytes(about)})
        # The recording comes last: a case is done when it is there.
        try:
            with tempfile.TemporaryDirectory(prefix="sweep-") as received:
                Path(received, name).write_bytes(outcome.recording)
                recording = Recording.load(Path(received, name))
            words = [*COMMAND, *case.arguments, "--out", str(folder)]
            settings = replace(recording.settings, command=shlex.join(words))
            recording = replace(recording, settings=settings)
            save_recording(folder, recording)
        except ProfileError as error:
            return _failed(case, name, outcome.machine, f"what came back is bad: {error}")
        return Run(name, digest_of(recording), outcome.machine)


@contextmanager
def take_sweep(path: Path, cases: Sequence[Case], force: bool) -> Iterator[SweepFolder]:
    """Take a folder for a sweep, until the end of the block.

    A folder that holds a part of the same sweep is gone on with.

    Args:
        path: The folder.
        cases: The cases.
        force: Measure all again: what the folder's sweep has is removed.

    Raises:
        UsageError: The folder is a file, or holds another sweep, a run, or files that could be
            lost.
        ProfileError: It cannot be written, or is in use.
    """
    if (path / RECORDING).exists() or (path / JOURNAL).exists():
        raise UsageError(f"--out {path}: holds a run; name another folder for the sweep")
    with made(path), locked(path, "another sweep is writing there"):
        kept = _read_plan(path)
        keys = {_key_text(case.key): case for case in cases}
        others = [name for key, name in kept.items() if key not in keys]
        if others and not force:
            raise UsageError(
                f"--out {path}: holds another sweep (with {others[0]}); name another folder, or "
                "replace it with --force"
            )
        stale = tuple(kept.values()) if force else ()
        taken = {} if force else {keys[key]: name for key, name in kept.items()}
        names = case_names(cases, taken)
        refuse_foreign(path, force or bool(kept), _is_of_sweep, "sweep")
        if not kept and (path / SCRATCH).exists():
            raise UsageError(f"--out {path}: holds {SCRATCH}; name another folder for the sweep")
        for name in names.values():
            Written(path / name).refuse({RECORDING, ABOUT}.__contains__)
        try:
            yield SweepFolder(path, names, stale)
        finally:
            remove_folder(path / SCRATCH)


def _is_of_sweep(name: str) -> bool:
    """Whether a sweep may write a file of this name into its folder."""
    return _FILES.fullmatch(name) is not None


def planned_names(path: Path, cases: Sequence[Case]) -> SweepFolder:
    """The folder of a sweep with the names that its cases have or would get; nothing is written.

    Raises:
        UsageError: What the folder holds is damaged.
    """
    kept = _read_plan(path)
    taken = {case: kept[key] for case in cases if (key := _key_text(case.key)) in kept}
    return SweepFolder(path, case_names(cases, taken))


def _key_text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def _read_plan(path: Path) -> dict[str, str]:
    """Names of the cases of the sweep in a folder, by their keys; empty where there is none."""
    place = path / PLAN
    if not place.exists():
        return {}
    damaged = UsageError(
        f"{place}: damaged, or of a newer version; remove it, or name another folder"
    )
    try:
        content = read_known(place, place.read_bytes(), FORMAT, VERSION)
    except (OSError, ProfileError):
        raise damaged from None
    if not isinstance(content.get("cases"), list):
        raise damaged
    kept = {}
    for entry in content["cases"]:
        name = entry.pop("name", None) if isinstance(entry, dict) else None
        # It will be joined to the folder, and perhaps removed.
        if not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", ".."):
            raise damaged
        kept[_key_text(entry)] = name
    return kept


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _json_bytes(content: Any) -> bytes:
    return json.dumps(content, indent=1).encode() + b"\n"


def run_cases(
    todo: Sequence[Case],
    folder: SweepFolder,
    workers: Workers,
    listener: Listener,
) -> Generator[tuple[Case, Run]]:
    """Run cases, as many at a time as there are workers; gives every one with its result.

    Args:
        todo: The cases.
        folder: Where their recordings go.
        workers: What runs them.
        listener: Who is told.
    """
    sweep = uuid.uuid4().hex
    scratch = None
    if workers.local and todo:
        scratch = os.path.abspath(folder.path / SCRATCH)
        make_folder(Path(scratch))
    waiting = deque((case, 1) for case in todo)
    running: dict[Future[Outcome], tuple[Case, int, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, workers.count()):
                case, attempt = waiting.popleft()
                task = Task(sweep, case.arguments, os.getcwd(), scratch)
                future = _submit(workers, task)
                running[future] = case, attempt, monotonic()
                listener.begun(folder.names[case])
            done, _ = wait(running, timeout=_TICK_S, return_when="FIRST_COMPLETED")
            if not done:
                listener.waiting(workers.count())
            for future in done:
                case, attempt, begin = running.pop(future)
                name, outcome = folder.names[case], _outcome(future)
                if outcome.died and attempt < TRIES:
                    listener.again(name, outcome.error)
                    waiting.appendleft((case, attempt + 1))
                    continue
                if outcome.recording:
                    result = folder.keep(case, outcome)
                else:
                    twice = ", twice" if outcome.died else ""
                    error = f"{outcome.error}{twice}"
                    result = _failed(case, name, outcome.machine, error)
                listener.ended(result, monotonic() - begin)
                yield case, result
    finally:
        for future in running:
            future.cancel()
        if running:
            workers.stop(sweep)


def _submit(workers: Workers, task: Task) -> Future[Outcome]:
    try:
        return workers.submit(task)
    except Exception as error:  # a pool that broke, a scheduler that went away
        broken: Future[Outcome] = Future()
        broken.set_exception(error)
        return broken


def _outcome(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except Exception as error:  # by others' code, with errors of any kind
        return failure(error)
