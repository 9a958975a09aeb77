"""Samples the main thread of a program, and adds up the time of each Python function."""

from __future__ import annotations

import os
import signal
import sys
import time
from _thread import LockType, allocate_lock, start_new_thread
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from threading import get_ident
from types import CodeType, FrameType

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import one_line
from chainer_profile.integrations.origins import CHAINER, LIBRARIES, OURS
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.record.budget import IMPORTS, NETWORK, PROFILER, REST, START, Sampled

RATE_PER_S = 100
_PERIOD_NS = 10**9 // RATE_PER_S
#: The sampling thread rests for this many times the CPU time of the sample before. A sample is
#: expensive in a program that releases the global interpreter lock often: each release wakes the
#: waiting thread, which finds the lock taken again.
_REST_PER_CPU_TIME = 50
#: Largest number of functions in the result for one account. The others are added up.
_MAX_FUNCTIONS = 12
#: The account of the program's own code, until its samples are assigned to another one.
_OWN_CODE: Account = (REST, "")
#: Largest number of samples that wait for their account.
_MAX_UNDECIDED = 2000
#: Longest wait for the end of the sampling thread, in seconds.
_STOP_TIMEOUT_S = 1.0
#: Name of the profiler's wrapper that calls a function for the program.
_FORWARDING_FRAME = "in_account"
#: File names of a program that is given as text.
_TEXTS = ("<string>", "<stdin>")
#: Names of code that counts as part of the function around it.
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
#: Name and file of the frame that calls a Chainer function, which is a row of a trial.
_APPLY = "apply", f"{os.sep}chainer{os.sep}function_node.py"

#: The innermost function of the program, and the library function that it calls, or None.
Location = tuple[CodeType | None, CodeType | None]


class Sampler:
    """Samples the thread that calls :meth:`start`, from another thread, until :meth:`stop`.

    The other thread is hidden from the program: :mod:`threading` does not list it, and it receives
    no signals. It ends before a fork, so that Python does not warn of threads in the process.

    Args:
        accounts: The accounts of the program's time.
        what_runs: Returns the kind of code that runs: ``NETWORK``, ``LOADING`` or ``OTHER``.
        now_ns: The clock.
        cpu_ns: The CPU time of the calling thread.
    """

    def __init__(
        self,
        accounts: Accounts,
        what_runs: Callable[[], str],
        now_ns: Callable[[], int] = time.perf_counter_ns,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.problem = ""  #: Why nothing is sampled; empty if all is well.
        self._accounts, self._what_runs = accounts, what_runs
        self._now_ns, self._cpu_ns = now_ns, cpu_ns
        self._previous_ns = now_ns()
        # Nanoseconds and number of samples, by account, kind of code and location.
        self._seen: defaultdict[tuple[Account, str, Location], list[int]]
        self._seen = defaultdict(lambda: [0, 0])
        # Samples of the program's own code, whose account is decided later. Each has the clock, the
        # nanoseconds since the previous sample, the kind of code and the location.
        self._undecided: list[tuple[int, int, str, Location]] = []
        self._undecided_lock = allocate_lock()
        #: Returns the clock up to which all accounts are decided.
        self.undecided_since: Callable[[], int] = now_ns
        self._sampled_thread = 0  # identifier of the sampled thread
        # The other thread ends when the first lock is released, and then releases the second.
        self._running: tuple[LockType, LockType] | None = None
        self._stopped_for_fork = False  # whether a fork stopped the sampling

    def start(self) -> None:
        """Start to sample the calling thread."""
        self._sampled_thread, self._previous_ns = get_ident(), self._now_ns()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork)
        self._start_thread()

    def stop(self) -> None:
        """Stop sampling, and wait for the other thread."""
        running, self._running = self._running, None
        if running is not None:
            stop_lock, ended_lock = running
            stop_lock.release()
            ended_lock.acquire(timeout=_STOP_TIMEOUT_S)

    def _start_thread(self) -> None:
        stop_lock, ended_lock = allocate_lock(), allocate_lock()
        stop_lock.acquire()
        ended_lock.acquire()
        try:
            with _signals_blocked():
                start_new_thread(self._sample_until_released, (stop_lock, ended_lock))
        except RuntimeError as error:
            self.problem = one_line(error)
        else:
            self._running = stop_lock, ended_lock

    def _before_fork(self) -> None:
        self._stopped_for_fork = self._running is not None
        self.stop()

    def _after_fork(self) -> None:
        if self._stopped_for_fork:
            self._start_thread()

    def _sample_until_released(self, stop_lock: LockType, ended_lock: LockType) -> None:
        """Sample in every period until ``stop_lock`` is released; then release ``ended_lock``.

        Periods are left out while the thread rests.
        """
        due_ns, used_cpu_ns = self._now_ns(), self._cpu_ns()
        try:
            while True:
                now_ns, cpu_ns = self._now_ns(), self._cpu_ns()
                rest_ns = _REST_PER_CPU_TIME * (cpu_ns - used_cpu_ns)
                used_cpu_ns = cpu_ns
                due_ns = next_due(due_ns, now_ns + rest_ns)
                if stop_lock.acquire(timeout=(due_ns - now_ns) * NS):
                    break
                self.sample(sys._current_frames().get(self._sampled_thread))
        except Exception as error:
            self.problem = one_line(error)
        finally:
            ended_lock.release()

    def sample(self, frame: FrameType | None) -> None:
        """Add the time since the previous sample to the code that runs now, at ``frame``."""
        now_ns, previous_ns = self._now_ns(), self._previous_ns
        self._previous_ns = now_ns
        account = self._accounts.account
        if account[0] in (IMPORTS, PROFILER, START):
            return
        code_kind = self._what_runs()
        location = None if code_kind == NETWORK else _location_of(frame)
        if location is None:
            code_kind, location = NETWORK, _UNKNOWN
        if account[0] == REST:
            self._undecided.append((now_ns, now_ns - previous_ns, code_kind, location))
            if len(self._undecided) > _MAX_UNDECIDED:
                self._decide_until(self.undecided_since())
        else:
            self._add(account, now_ns - previous_ns, code_kind, location)

    def _add(self, account: Account, ns: int, code_kind: str, location: Location) -> None:
        seen = self._seen[account, code_kind, location]
        seen[0] += ns
        seen[1] += 1

    def decide(self, begin_ns: int, end_ns: int, account: Account) -> None:
        """Assign samples of the program's own code between two times to an account.

        Earlier samples stay in the account of the program's own code.
        """
        self._decide_until(begin_ns)
        self._decide_until(end_ns, account)

    def _decide_until(self, end_ns: int, account: Account = _OWN_CODE) -> None:
        """Assign the undecided samples until ``end_ns`` to an account."""
        with self._undecided_lock:
            # The other thread may add to the end of the list at the same time.
            n_decided = bisect_right(self._undecided, end_ns, key=itemgetter(0))
            decided = self._undecided[:n_decided]
            del self._undecided[:n_decided]
            for _, ns, code_kind, location in decided:
                self._add(account, ns, code_kind, location)

    def sampled_functions(self) -> tuple[Sampled, ...]:
        """The time of each function by account and kind of code, the longest time first."""
        by_part: defaultdict[tuple[Account, str], dict[str, list[int]]] = defaultdict(dict)
        # Copies, because the other thread may add samples at the same time.
        seen = [
            ((_OWN_CODE, code_kind, location), ns, 1)
            for _, ns, code_kind, location in [*self._undecided]
        ]
        seen += [(key, ns, samples) for key, (ns, samples) in self._seen.copy().items()]
        for (account, code_kind, location), ns, samples in seen:
            sums = by_part[account, code_kind].setdefault(location_name(location), [0, 0])
            sums[0] += ns
            sums[1] += samples
        return tuple(_largest_functions(by_part))


_UNKNOWN: Location = None, None


def next_due(due_ns: int, after_ns: int) -> int:
    """Advance a due time by whole periods until it is after another time.

    Delays do not add up then.
    """
    return due_ns + _PERIOD_NS * (max(0, after_ns - due_ns) // _PERIOD_NS + 1)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block all signals in threads that start within the context."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _largest_functions(
    by_part: defaultdict[tuple[Account, str], dict[str, list[int]]],
) -> Iterator[Sampled]:
    """Yield the functions of each account with the most time, and the sum of the others."""
    for ((part, name), code_kind), functions in by_part.items():
        others = functions.pop("", [0, 0])
        ranked = sorted(functions.items(), key=lambda item: -item[1][0])
        for function, (ns, samples) in ranked[:_MAX_FUNCTIONS]:
            yield Sampled(part, name, code_kind, function, ns, samples)
        rest = np.sum([others, *(seen for _, seen in ranked[_MAX_FUNCTIONS:])], axis=0)
        if rest[0]:
            yield Sampled(part, name, code_kind, "", *rest.tolist())


def _location_of(frame: FrameType | None) -> Location | None:
    """Locate a sample in the program; returns None within a row of a trial."""
    # The search ends at the profiler's innermost frame: the profiler calls code with an account.
    if frame is not None and frame.f_code.co_filename.startswith(OURS):
        return _UNKNOWN
    # The outermost library function below the program, and the outermost one outside Chainer.
    called = beyond_chainer = None
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(OURS):
            if code.co_name != _FORWARDING_FRAME:
                break
            frame = frame.f_back
            continue
        if code.co_name == _APPLY[0] and file.endswith(_APPLY[1]):
            return None
        if file.startswith(LIBRARIES):
            called = code
            if not file.startswith(CHAINER):
                beyond_chainer = code
        elif file in _TEXTS or not (file.startswith("<") or code.co_name in _COMPREHENSIONS):
            return code, called
        frame = frame.f_back
    return None, beyond_chainer


def location_name(location: Location) -> str:
    """Format a location: ``train.py:30 accuracy > CRF1d.argmax``; empty if it is unknown."""
    program_code, library_code = location
    if program_code is None:
        return "" if library_code is None else _code_name(library_code)
    name = _code_name(program_code)
    return name if library_code is None else f"{name} > {_qualified_name(library_code)}"


def _code_name(code: CodeType) -> str:
    file = os.path.basename(code.co_filename)
    if code.co_name == "<module>":
        return f"{file} {code.co_name}"
    return f"{file}:{code.co_firstlineno} {_qualified_name(code)}"


def _qualified_name(code: CodeType) -> str:
    name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has the name alone
    return str(name).replace(".<locals>", "")
