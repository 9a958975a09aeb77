"""Runs a network with a change in a process, in blocks, on request.

This module has both sides. The parent sends one word per line to the process's standard input; the
process answers with one line of JSON. Output of the network itself is discarded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from queue import Empty, Queue
from types import MappingProxyType
from typing import Any, TextIO

from chainer_profile.basics.children import killed_with_parent
from chainer_profile.basics.errors import ProfileError, one_line

#: Length of a block. Short blocks make more rounds, and disturbances affect all variants equally.
BLOCK_S = 0.01
#: If a run is shorter than this, the caches that other processes filled matter: one untimed run
#: comes first.
_SHORT_S = 0.05
#: Largest number of runs before the first block, and after how many seconds no other one starts.
_WARM_RUNS, _WARM_S = 5, 0.5
#: Idle BLAS threads spin for some time, on a core that the next process needs. The process waits
#: in steps of this length, and for at most this many steps, until they sleep.
_REST_S, _MAX_RESTS = 0.01, 20
#: Requests to a process.
READY, BLOCK, CHECK, LAYERS = "ready", "block", "check", "layers"


class WorkerError(ProfileError):
    """A change cannot be tried; the message says why in one line."""


#: Opens a network that is ready to run, as :func:`.network.network_with_change` does.
OpenNetwork = Callable[[], AbstractContextManager[Any]]


def serve(
    open_network: OpenNetwork,
    requests: TextIO,
    answers: TextIO,
    *,
    wall: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Answer each request with a line of JSON, until the requests end."""

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    try:
        with open_network() as network:
            begin, runs = wall(), 0
            while runs < _WARM_RUNS and (not runs or wall() - begin < _WARM_S):
                last = wall()
                network.run()
                runs += 1
            run_s = wall() - last
            _rest(cpu, sleep)
            answer(value=None)
            for request in requests:
                if request.strip() == BLOCK:
                    block = _time_block(network, run_s, wall, cpu)
                    _rest(cpu, sleep)
                    answer(value=block)
                else:
                    answer(value=getattr(network, request.strip())())
    except (Exception, SystemExit) as error:  # raised by the network or an engine
        answer(error=str(error) if isinstance(error, ProfileError) else one_line(error))


def _time_block(
    network: Any, run_s: float, wall: Callable[[], float], cpu: Callable[[], float]
) -> dict[str, float]:
    """Run a block. Return the CPU time of all threads and the wall time, per input."""
    count = max(1, round(BLOCK_S / max(run_s, 1e-6)))
    if run_s < _SHORT_S:  # other processes have used the caches
        network.run()
    wall_s, cpu_s = wall(), cpu()
    for _ in range(count):
        network.run()
    cpu_s, wall_s = cpu() - cpu_s, wall() - wall_s
    inputs = count * network.batchsize
    return {"cpu_s": cpu_s / inputs, "wall_s": wall_s / inputs}


def _rest(cpu: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """Wait until all threads of this process are idle, or for the longest allowed time."""
    for _ in range(_MAX_RESTS):
        before_s = cpu()
        sleep(_REST_S)
        if cpu() - before_s < _REST_S / 10:
            return


def serve_standard_streams(open_network: OpenNetwork) -> None:
    """Serve requests on standard input; hide all three standard streams from the network."""
    with (
        os.fdopen(os.dup(0), "r") as requests,
        os.fdopen(os.dup(1), "w") as answers,
        open(os.devnull, "r+b") as nothing,
    ):
        for stream in (0, 1, 2):
            os.dup2(nothing.fileno(), stream)
        serve(open_network, requests, answers)


class Worker:
    """The parent's side: starts a process and sends requests to it."""

    def __init__(
        self,
        arguments: Sequence[str],
        stop: Callable[[], str],
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._stop = stop
        self._lines: Queue[str] = Queue()
        self._process = subprocess.Popen(
            killed_with_parent([sys.executable, *arguments]),
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # In a new session, Ctrl-C on the terminal reaches only the parent.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError, OSError):  # closed by the other thread
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put("")

    def ask(self, request: str, timeout_s: float) -> Any:
        """Send a request and return the answer; None if ``stop`` ends the waiting.

        :data:`READY` is not sent: the process reports by itself that it is ready.

        Raises:
            WorkerError: The process failed, ended, or took longer than ``timeout_s``.
        """
        assert self._process.stdin is not None
        if request != READY:
            with suppress(OSError):  # the process has ended; its last answer has the reason
                self._process.stdin.write(request + "\n")
                self._process.stdin.flush()
        end = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=0.1)
                break
            except Empty:
                if self._stop():
                    return None
                if time.monotonic() > end:
                    raise WorkerError(f"has not answered for {timeout_s:.0f} s") from None
        if not line:
            code = self._process.wait()
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            raise WorkerError(f"its process ended ({how})")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
