"""A fresh process for every change: it runs the network in blocks when it is asked to.

Both sides are here. They speak in lines of JSON over the process's standard streams; what the
network itself prints goes nowhere.
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

#: Seconds of a block: the shorter, the more of them, and the more alike is what disturbs them.
BLOCK_S = 0.01
#: Runs that are shorter than this find the caches as others left them: one is not timed.
_SHORT_S = 0.05
#: Runs before the first block, at most, and seconds that they take.
_WARM_RUNS, _WARM_S = 5, 0.5
#: BLAS threads that have nothing to do keep a core busy for some time, which the next process
#: needs: it is waited until they sleep, in steps of so many seconds and at most so many of them.
_REST_S, _MOST_RESTS = 0.01, 20
#: What a process is asked.
READY, BLOCK, CHECK, LAYERS = "ready", "block", "check", "layers"


class WorkerError(ProfileError):
    """A change cannot be tried; the message says why in one line."""


#: Makes a network under a change ready to run, as :func:`.network.network_under` does.
Work = Callable[[], AbstractContextManager[Any]]


def serve(
    work: Work,
    asked: TextIO,
    answers: TextIO,
    *,
    wall: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Answer what is asked, a line each, until there are no more questions."""

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    try:
        with work() as running:
            begin, runs = wall(), 0
            while runs < _WARM_RUNS and (not runs or wall() - begin < _WARM_S):
                last = wall()
                running.run()
                runs += 1
            run_s = wall() - last
            _rest(cpu, sleep)
            answer(value=None)
            for question in asked:
                if question.strip() == BLOCK:
                    block = _block(running, run_s, wall, cpu)
                    _rest(cpu, sleep)
                    answer(value=block)
                else:
                    answer(value=getattr(running, question.strip())())
    except (Exception, SystemExit) as error:  # the network's own, or an engine's
        answer(error=str(error) if isinstance(error, ProfileError) else one_line(error))


def _block(
    running: Any, run_s: float, wall: Callable[[], float], cpu: Callable[[], float]
) -> dict[str, float]:
    """CPU time of all threads and wall time of one input in a block."""
    count = max(1, round(BLOCK_S / max(run_s, 1e-6)))
    if run_s < _SHORT_S:  # others have used the caches
        running.run()
    wall_s, cpu_s = wall(), cpu()
    for _ in range(count):
        running.run()
    cpu_s, wall_s = cpu() - cpu_s, wall() - wall_s
    inputs = count * running.batchsize
    return {"cpu_s": cpu_s / inputs, "wall_s": wall_s / inputs}


def _rest(cpu: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """Wait until no thread of this process is busy any more."""
    for _ in range(_MOST_RESTS):
        before_s = cpu()
        sleep(_REST_S)
        if cpu() - before_s < _REST_S / 10:
            return


def serve_here(work: Work) -> None:
    """The same over this process's own streams."""
    with (
        os.fdopen(os.dup(0), "r") as asked,
        os.fdopen(os.dup(1), "w") as answers,
        open(os.devnull, "r+b") as nothing,
    ):
        for stream in (0, 1, 2):
            os.dup2(nothing.fileno(), stream)
        serve(work, asked, answers)


class Worker:
    """Such a process, from outside. It begins at once."""

    def __init__(
        self,
        words: Sequence[str],
        stop: Callable[[], str],
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._stop = stop
        self._lines: Queue[str] = Queue()
        self._process = subprocess.Popen(
            killed_with_parent([sys.executable, *words]),
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # A session of its own: Ctrl-C on the terminal is for the program that asks.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError, OSError):  # closed by the other thread
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put("")

    def ask(self, question: str, patience_s: float) -> Any:
        """What it answers within so many seconds; None where the waiting was stopped.

        :data:`READY` is not asked but waited for: the process says so by itself.
        """
        assert self._process.stdin is not None
        if question != READY:
            with suppress(OSError):  # it has ended: why stands in its answers
                self._process.stdin.write(question + "\n")
                self._process.stdin.flush()
        end = time.monotonic() + patience_s
        while True:
            try:
                line = self._lines.get(timeout=0.1)
                break
            except Empty:
                if self._stop():
                    return None
                if time.monotonic() > end:
                    raise WorkerError(f"has not answered for {patience_s:.0f} s") from None
        if not line:
            code = self._process.wait()
            end_words = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            raise WorkerError(f"its process ended ({end_words})")
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
