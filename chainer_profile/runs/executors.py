"""Runs each case of a sweep in a fresh process, on this machine or on others."""

from __future__ import annotations

import logging
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from chainer_profile.basics.children import killed_with_parent
from chainer_profile.basics.errors import ProfileError, one_line

#: The program that runs a case, in a clone and in an installed package.
PROGRAM = Path(__file__).resolve().parents[1] / "__main__.py"

#: Seconds within which Dask's scheduler must answer, and within which it must have a worker.
_CONNECT_S = 15
_WORKERS_S = 30

_one_at_a_time = threading.Lock()
_running: dict[subprocess.Popen[bytes], str] = {}
_stopped: set[str] = set()


class Outcome(NamedTuple):
    """The result of a case: the bytes of its recording or an error, and the machine's name."""

    recording: bytes = b""
    error: str = ""
    machine: str = ""


class Workers(NamedTuple):
    """Functions that submit a case to a worker (:func:`run_case`) and that stop a sweep."""

    submit: Callable[..., Future[Outcome]]
    stop: Callable[[str], object]


def run_case(sweep: str, words: Sequence[str], folder: str) -> Outcome:
    """Run a case of a sweep in a fresh process, within ``folder`` if that exists here.

    Args:
        sweep: Identifies the sweep, for :func:`stop`.
        words: Arguments of the command.
        folder: Working directory of the process that runs the sweep.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
            recording, error = _run(sweep, words, folder, Path(scratch))
    except OSError as problem:
        recording, error = b"", one_line(problem)
    return Outcome(recording, error, platform.node())


def run_alone(*case: Any) -> Outcome:
    """Run a case of a sweep as :func:`run_case` does, one at a time, as others would disturb it."""
    with _one_at_a_time:
        return run_case(*case)


def _run(sweep: str, words: Sequence[str], folder: str, scratch: Path) -> tuple[bytes, str]:
    """Return the bytes of the recording and an empty text, or no bytes and an error."""
    log, out = scratch / "stderr", scratch / "run"
    command = [sys.executable, str(PROGRAM), *words, "-q", "--format", "none", "--out", str(out)]
    with (
        open(log, "wb") as stderr,
        subprocess.Popen(
            killed_with_parent(command),
            cwd=folder if os.path.isdir(folder) else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            # In a new session, Ctrl-C on the terminal reaches only the driver.
            start_new_session=True,
        ) as process,
    ):
        _running[process] = sweep
        try:
            # The sweep may have been stopped before the process was registered.
            if sweep in _stopped:
                process.kill()
            code = process.wait()
        finally:
            process.kill()
            del _running[process]
    if code == 0:
        return (out / "recording.npz").read_bytes(), ""
    if code < 0:
        return b"", f"its process was killed by {signal.Signals(-code).name}"
    lines = log.read_text(errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"exit code {code} without a message"
    return b"", last.partition(": error: ")[2] or last


def stop(sweep: str) -> None:
    """Kill the running cases of a sweep that this process started, and start no others of it."""
    _stopped.add(sweep)
    for process, name in list(_running.items()):
        if name == sweep:
            process.kill()


@contextmanager
def open_workers(name: str) -> Iterator[Workers]:
    """Open the workers of ``local:PROCESSES`` or ``dask:HOST:PORT``."""
    kind, _, address = name.partition(":")
    if kind == "local":
        with ThreadPoolExecutor(int(address or 1)) as threads:
            yield Workers(lambda *case: threads.submit(run_case, *case), stop)
    else:
        with _dask(address.strip("/")) as workers:
            yield workers


@contextmanager
def _dask(address: str) -> Iterator[Workers]:
    try:
        import distributed
    except ImportError as error:
        raise ProfileError(
            f"--executor dask needs dask.distributed, which cannot be imported "
            f"({one_line(error)[:120]}): python -m pip install dask distributed"
        ) from error
    # One line reports a lost connection; Dask's log would add tracebacks.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    scheduler = f"the Dask scheduler at {address}"
    try:
        client = distributed.Client(f"tcp://{address}", timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ProfileError(f"{scheduler} does not answer ({one_line(error)[:120]})") from error

    def run_on_worker(*case: Any) -> Outcome:
        # Dask pickles a nested function as code, so the scheduler does not need this package.
        from chainer_profile.runs import executors

        return executors.run_alone(*case)

    def stop_workers(sweep: str) -> None:
        # Tasks of the executor would wait for busy workers. Lost workers have stopped already.
        with suppress(Exception):
            client.run(stop, sweep, on_error="ignore")

    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKERS_S)
        except TimeoutError as error:
            raise ProfileError(
                f"{scheduler} has no worker: start one with "
                f"dask worker tcp://{address} --nthreads 1"
            ) from error
        with client.get_executor(pure=False) as executor:
            yield Workers(partial(executor.submit, run_on_worker), stop_workers)
