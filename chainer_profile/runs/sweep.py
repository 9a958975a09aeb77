"""A sweep: its folder, which cases are done, and running the others until all are."""

from __future__ import annotations

import json
import math
import os
import shlex
import uuid
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from chainer_profile.basics.describe import describe
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import make_folder, remove_file, remove_folder, taking, write_file
from chainer_profile.record.recording import COMPLETE, TIME_LIMIT, Recording
from chainer_profile.runs import output
from chainer_profile.runs.executors import Outcome, Task, Workers, failure
from chainer_profile.runs.sweep_cases import Case, case_names

FORMAT = "chainer-profile sweep"
VERSION = 1
PLAN = "sweep.json"
ABOUT = "case.json"
SCRATCH = ".running"
#: A case whose process dies is tried so often.
TRIES = 2
#: Seconds between two looks at a sweep of which nothing is heard.
_TICK_S = 5.0
#: How a recording may have ended that is a case's result.
_WHOLE = (COMPLETE, TIME_LIMIT)


@dataclass(frozen=True)
class Result:
    """What came out of one case. Times are in seconds, of clean trials where there are any.

    Attributes:
        case: The case.
        name: Name of its folder.
        machine: The machine that it ran on; empty where that is not known.
        processor: What the machine has, GPU or processor.
        blocks: Kind of the network's blocks, such as ``basic``; empty without blocks.
        mean_s: Mean latency; NaN for a case that failed, as all numbers.
        std_s: Its standard deviation.
        median_s: Median latency.
        trials: How many trials that are.
        clean: Whether they are trials without hooks.
        fps: Inputs a second.
        parameters: Number of parameters.
        memory_nbytes: The most that was allocated in a trial, beyond what was there at its begin;
            None where it is not known.
        threads: BLAS threads in use; None where that is not known.
        started: When the run began (UTC).
        error: Why the case failed, in one line; empty where it did not.
    """

    case: Case
    name: str
    machine: str = ""
    processor: str = ""
    blocks: str = ""
    mean_s: float = math.nan
    std_s: float = math.nan
    median_s: float = math.nan
    trials: int = 0
    clean: bool = True
    fps: float = math.nan
    parameters: int | None = None
    memory_nbytes: int | None = None
    threads: int | None = None
    started: str = ""
    error: str = ""


def result_of(case: Case, name: str, recording: Recording, machine: str) -> Result:
    """The result of a case from its recording."""
    clean = len(recording.clean_ns) > 0
    samples = recording.clean_ns if clean else recording.trial_ns
    environment = recording.environment
    gpu = environment.gpu
    values: dict[str, Any] = {}
    if samples is not None and len(samples):
        trial = describe(samples)
        values = {
            "mean_s": trial.mean_s,
            "std_s": trial.std_s,
            "median_s": trial.median_s,
            "trials": trial.count,
            "fps": case.batchsize / trial.mean_s if trial.mean_s else math.nan,
        }
    return Result(
        case=case,
        name=name,
        machine=machine,
        processor=gpu.name if gpu is not None and gpu.name else environment.processor,
        blocks=block_kind(recording),
        clean=clean,
        parameters=sum(link.parameters for link in recording.links) or None,
        memory_nbytes=None if recording.memory is None else recording.memory.high_water_nbytes,
        threads=max((library.threads for library in environment.blas), default=None),
        started=environment.started,
        **values,
    )


def block_kind(recording: Recording) -> str:
    """Kinds of the network's blocks: ``basic``, ``bottleneck``; empty where it has none.

    A block is a link that has links of its own, is in no other block, and has a number for a name
    (``/res2/0``) or a class of which the name ends with Block. Its kind is that name without Block.
    """
    paths = [link.path for link in recording.links]
    parents = {path.rpartition("/")[0] for path in paths}
    kinds: dict[str, None] = {}
    blocks: list[str] = []
    for link in recording.links:
        named = link.path.rpartition("/")[2].isdecimal() or link.kind.endswith("Block")
        inside = any(link.path.startswith(f"{block}/") for block in blocks)
        if not named or inside or link.path not in parents:
            continue
        blocks.append(link.path)
        kinds.setdefault((link.kind.removesuffix("Block") or link.kind).lower())
    return "+".join(kinds)


class Listener(Protocol):
    """Who is told how a sweep goes."""

    def begun(self, name: str) -> None:
        """A case was handed to a worker."""

    def waiting(self, workers: int) -> None:
        """Nothing was heard for some seconds, from so many workers."""

    def again(self, name: str, error: str) -> None:
        """A case is tried once more."""

    def ended(self, result: Result, seconds: float) -> None:
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
        for name in (*self._stale, SCRATCH):
            remove_folder(self.path / name)
        cases = [{"name": name, **case.key} for case, name in self.names.items()]
        plan = {"format": FORMAT, "version": VERSION, "cases": cases}
        write_file(self.path / PLAN, _json_bytes(plan))

    def finished(self, case: Case) -> Result | None:
        """The result of a case that is done, or None."""
        folder = self.path / self.names[case]
        if self._stale:
            return None
        try:
            recording = Recording.load(folder / output.RECORDING)
        except ProfileError:
            return None
        if not case.is_of(recording) or recording.ended not in _WHOLE:
            return None
        about = _read_json(folder / ABOUT)
        machine = about.get("machine", "") if isinstance(about, dict) else ""
        return result_of(case, self.names[case], recording, str(machine))

    def keep(self, case: Case, outcome: Outcome) -> Result:
        """Write what a case brought, and give its result.

        Raises:
            ProfileError: It cannot be written.
        """
        name = self.names[case]
        folder = self.path / name
        about = {"machine": outcome.machine, "seconds": outcome.seconds}
        write_file(folder / ABOUT, _json_bytes(about))
        # The recording comes last: a case is done when it is there.
        received = folder / f".{output.RECORDING}.received"
        write_file(received, outcome.recording)
        try:
            recording = Recording.load(received)
            words = ["python", "profile.py", *case.arguments, "--out", str(folder)]
            settings = replace(recording.settings, command=shlex.join(words))
            output.save_recording(folder, replace(recording, settings=settings))
        except ProfileError as error:
            return Result(case, name, outcome.machine, error=f"what came back is bad: {error}")
        finally:
            remove_file(received)
        return result_of(case, name, recording, outcome.machine)


@contextmanager
def take_sweep(path: Path, cases: Sequence[Case], force: bool) -> Iterator[SweepFolder]:
    """Take a folder for a sweep, until the end of the block.

    A folder that holds a part of the same sweep is gone on with.

    Args:
        path: The folder.
        cases: The cases.
        force: Measure all again: what the folder's sweep has is removed.

    Raises:
        UsageError: The folder holds another sweep, or a run, or is a file.
        ProfileError: It cannot be written, or is in use.
    """
    if path.exists() and not path.is_dir():
        raise UsageError(f"--out {path}: is a file; name a folder")
    if (path / output.RECORDING).exists() or (path / output.JOURNAL).exists():
        raise UsageError(f"--out {path}: holds a run; name another folder for the sweep")
    with taking(path):
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
        try:
            yield SweepFolder(path, case_names(cases, taken), stale)
        finally:
            remove_folder(path / SCRATCH)


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
    content = _read_json(place)
    damaged = UsageError(
        f"{place}: damaged, or of a newer version; remove it, or name another folder"
    )
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise damaged
    if content.get("version") != VERSION or not isinstance(content.get("cases"), list):
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
    extra: Sequence[str] = (),
) -> Generator[Result]:
    """Run cases, as many at a time as there are workers; gives every result when it is there.

    Args:
        todo: The cases.
        folder: Where their recordings go.
        workers: What runs them.
        listener: Who is told.
        extra: More options for every case, which are no part of what it is.
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
                task = Task(sweep, (*case.arguments, *extra), os.getcwd(), scratch)
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
                    result = Result(case, name, outcome.machine, error=error)
                listener.ended(result, monotonic() - begin)
                yield result
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
