"""Samples the Python functions that run in a program's main thread, by part of its time."""

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
#: Number of functions that each part lists; the others are added up.
_MAX_FUNCTIONS = 12
_OWN_CODE: Account = (REST, "")
#: At most this many samples wait for their account.
_MAX_UNDECIDED = 2000
#: How long to wait for the end of a sample, in seconds.
_STOP_TIMEOUT_S = 1.0
#: A function of the profiler that only passes calls of the program on to another function.
_FORWARDING_FRAME = "in_account"
#: Files of a program that is given as text; and names of code that is part of a function.
_TEXTS = ("<string>", "<stdin>")
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
#: Below this frame runs a function of Chainer's, which is a row of a trial.
_APPLY = "apply", f"{CHAINER}function_node.py"

#: The program's innermost function, and what it calls of a library; either may be None.
Location = tuple[CodeType | None, CodeType | None]


class Sampler:
    """Samples the thread that calls :meth:`start`, from another thread, until :meth:`stop`.

    The program cannot see the other thread: :mod:`threading` does not list it, it takes no signals,
    and it ends before a fork, so that Python does not warn of threads in a process that forks.
    """

    def __init__(
        self,
        accounts: Accounts,
        what_runs: Callable[[], str],
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.problem = ""  #: Why nothing is sampled; empty if all is well.
        self._accounts, self._what_runs, self._now_ns = accounts, what_runs, now_ns
        self._at_ns = now_ns()
        # Nanoseconds and number of samples, by account, kind of code, and location.
        self._seen: defaultdict[tuple[Account, str, Location], list[int]]
        self._seen = defaultdict(lambda: [0, 0])
        # Samples of the program's own code, whose account is known later: the clock, the time since
        # the sample before, the kind of code, and the location.
        self._undecided: list[tuple[int, int, str, Location]] = []
        self._deciding = allocate_lock()
        #: Gives the clock from which on accounts are undecided.
        self.undecided_since: Callable[[], int] = now_ns
        self._sampled = 0  # the thread that is sampled
        # Releasing the first ends the other thread, which releases the second at its end.
        self._running: tuple[LockType, LockType] | None = None
        self._forks = False  # whether it stopped for a fork

    def start(self) -> None:
        self._sampled, self._at_ns = get_ident(), self._now_ns()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork)
        self._begin()

    def stop(self) -> None:
        """End the sampling."""
        running, self._running = self._running, None
        if running is not None:
            stops, ended = running
            stops.release()
            ended.acquire(timeout=_STOP_TIMEOUT_S)

    def _begin(self) -> None:
        stops, ended = allocate_lock(), allocate_lock()
        stops.acquire()
        ended.acquire()
        try:
            with _signals_blocked():
                start_new_thread(self._sample_until, (stops, ended))
        except RuntimeError as error:
            self.problem = one_line(error)
        else:
            self._running = stops, ended

    def _before_fork(self) -> None:
        self._forks = self._running is not None
        self.stop()

    def _after_fork(self) -> None:
        if self._forks:
            self._begin()

    def _sample_until(self, stops: LockType, ended: LockType) -> None:
        due_ns = self._now_ns()
        try:
            while True:
                now_ns = self._now_ns()
                due_ns = next_due(due_ns, now_ns)
                if stops.acquire(timeout=(due_ns - now_ns) * NS):
                    break
                self.sample(sys._current_frames().get(self._sampled))
        except Exception as error:
            self.problem = one_line(error)
        finally:
            ended.release()

    def sample(self, frame: FrameType | None) -> None:
        """Note the code that runs in the thread's innermost frame, since the last sample."""
        now_ns, at_ns = self._now_ns(), self._at_ns
        self._at_ns = now_ns
        account = self._accounts.account
        if account[0] in (IMPORTS, PROFILER, START):
            return
        where = self._what_runs()
        location = None if where == NETWORK else _location_of(frame)
        if location is None:
            where, location = NETWORK, _NO_LOCATION
        if account[0] == REST:
            self._undecided.append((now_ns, now_ns - at_ns, where, location))
            if len(self._undecided) > _MAX_UNDECIDED:
                self._decide_until(self.undecided_since())
        else:
            self._add(account, now_ns - at_ns, where, location)

    def _add(self, account: Account, ns: int, where: str, location: Location) -> None:
        seen = self._seen[account, where, location]
        seen[0] += ns
        seen[1] += 1

    def decide(self, begin_ns: int, end_ns: int, account: Account) -> None:
        """Assign samples of the program's own code between two times to an account.

        Earlier samples stay in the account of the program's own code.
        """
        self._decide_until(begin_ns)
        self._decide_until(end_ns, account)

    def _decide_until(self, end_ns: int, account: Account = _OWN_CODE) -> None:
        with self._deciding:
            # The other thread may add to the end of the list at the same time.
            n_ended = bisect_right(self._undecided, end_ns, key=itemgetter(0))
            ended = self._undecided[:n_ended]
            del self._undecided[:n_ended]
            for _, ns, where, location in ended:
                self._add(account, ns, where, location)

    def sampled(self) -> tuple[Sampled, ...]:
        """The functions of each part, the most time first."""
        by_part: defaultdict[tuple[Account, str], dict[str, list[int]]] = defaultdict(dict)
        # Copies, as the other thread may add to them.
        seen = [
            ((_OWN_CODE, where, location), ns, 1) for _, ns, where, location in [*self._undecided]
        ]
        seen += [(key, ns, samples) for key, (ns, samples) in self._seen.copy().items()]
        for (account, where, location), ns, samples in seen:
            sums = by_part[account, where].setdefault(name_of(location), [0, 0])
            sums[0] += ns
            sums[1] += samples
        return tuple(_largest(by_part))


_NO_LOCATION: Location = None, None


def next_due(due_ns: int, now_ns: int) -> int:
    """The first time after now that is whole periods after ``due_ns``: delays do not add up."""
    return due_ns + _PERIOD_NS * (max(0, now_ns - due_ns) // _PERIOD_NS + 1)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals in threads that start within the context: only the program's get signals."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _largest(
    by_part: defaultdict[tuple[Account, str], dict[str, list[int]]],
) -> Iterator[Sampled]:
    for ((part, name), where), functions in by_part.items():
        others = functions.pop("", [0, 0])
        ranked = sorted(functions.items(), key=lambda item: -item[1][0])
        for function, (ns, samples) in ranked[:_MAX_FUNCTIONS]:
            yield Sampled(part, name, where, function, ns, samples)
        rest = np.sum([others, *(seen for _, seen in ranked[_MAX_FUNCTIONS:])], axis=0)
        if rest[0]:
            yield Sampled(part, name, where, "", *rest.tolist())


def _location_of(frame: FrameType | None) -> Location | None:
    """Locate a sample in the program; returns None in a function of Chainer's, which is a row."""
    # The search ends at our innermost frame, because the profiler calls functions with an account.
    if frame is not None and frame.f_code.co_filename.startswith(OURS):
        return _NO_LOCATION
    # The outermost function of a library, and the outermost that is not Chainer's.
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
            if CHAINER not in file:
                beyond_chainer = code
        elif file in _TEXTS or not (file.startswith("<") or code.co_name in _COMPREHENSIONS):
            return code, called
        frame = frame.f_back
    return None, beyond_chainer


def name_of(location: Location) -> str:
    """``train.py:30 accuracy > CRF1d.argmax``; empty for no location."""
    program_code, library_code = location
    if program_code is None:
        return "" if library_code is None else _named(library_code)
    name = _named(program_code)
    return name if library_code is None else f"{name} > {_qualified(library_code)}"


def _named(code: CodeType) -> str:
    file = os.path.basename(code.co_filename)
    if code.co_name == "<module>":
        return f"{file} {code.co_name}"
    return f"{file}:{code.co_firstlineno} {_qualified(code)}"


def _qualified(code: CodeType) -> str:
    name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has the name alone
    return str(name).replace(".<locals>", "")
