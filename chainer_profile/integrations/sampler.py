"""Samples a program's main thread: which Python functions run in which part of its time."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import get_native_id
from types import CodeType, FrameType

import numpy as np

from chainer_profile.basics.errors import one_line
from chainer_profile.integrations.origins import CHAINER, LIBRARIES, OURS
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.record.budget import IMPORTS, NETWORK, PROFILER, START, Sampled

RATE_PER_S = 100
#: So many functions of each part are kept; the others are added up.
_MOST_FUNCTIONS = 12
#: A process ignores it by default, so a late signal does no harm.
_SIGNAL = getattr(signal, "SIGURG", signal.SIGINT)  # Windows lacks it
#: Linux's numbers: of the clock that never goes back, and of signals for a single thread.
_CLOCK_MONOTONIC, _SIGEV_THREAD_ID = 1, 4
#: A function of ours that passes calls of the program on to what it calls.
_PASSES_ON = "in_account"
#: Files of a program that is given as text; and what runs within a function, by another name.
_TEXTS = ("<string>", "<stdin>")
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
#: Below this frame runs a function of Chainer's, which is a row of a trial.
_APPLY = "apply", f"{CHAINER}function_node.py"

#: The program's innermost function, and what it calls of a library; either may be None.
Place = tuple[CodeType | None, CodeType | None]


class _SignalEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("padding", ctypes.c_int * 11),
    )


class _Interval(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_long) for name in ("s", "ns", "first_s", "first_ns"))


class Sampler:
    """Samples the main thread between :meth:`start` and :meth:`stop`.

    A timer of Linux sends the thread a signal, and Python runs :meth:`sample` between two of its
    steps. The timer goes with the process, and neither children nor what it executes have it.
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
        # Nanoseconds and number of samples, by account, kind of code, and place.
        self._seen: defaultdict[tuple[Account, str, Place], list[int]]
        self._seen = defaultdict(lambda: [0, 0])
        self._timer: ctypes.c_void_p | None = None

    def start(self) -> None:
        if not sys.platform.startswith("linux"):
            self.problem = "only Linux has the timer that samples need"
            return
        if signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
            self.problem = "SIGURG has a handler already"
            return
        event = _SignalEvent(signal=_SIGNAL, notify=_SIGEV_THREAD_ID, thread=get_native_id())
        timer, every_ns = ctypes.c_void_p(), 10**9 // RATE_PER_S
        interval = _Interval(0, every_ns, 0, every_ns)
        try:
            library = ctypes.CDLL(None, use_errno=True)
            if library.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
                raise OSError(ctypes.get_errno(), "the system gives no timer")
            signal.signal(_SIGNAL, self._on_signal)
            signal.siginterrupt(_SIGNAL, False)
        except (AttributeError, OSError, ValueError) as error:
            self.problem = one_line(error)
            return
        self._timer, self._at_ns = timer, self._now_ns()
        library.timer_settime(timer, 0, ctypes.byref(interval), None)

    def stop(self) -> None:
        """Sample no more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            ctypes.CDLL(None).timer_delete(timer)
            with suppress(ValueError):  # not in the main thread
                signal.signal(_SIGNAL, signal.SIG_DFL)

    def _on_signal(self, _signal: int, frame: FrameType | None) -> None:
        if self._timer is not None:
            self.sample(frame)

    def sample(self, frame: FrameType | None) -> None:
        """Note what runs now, innermost frame first, for the time since the last sample."""
        now_ns, at_ns = self._now_ns(), self._at_ns
        self._at_ns = now_ns
        account = self._accounts.account
        if account[0] in (IMPORTS, PROFILER, START):
            return
        where = self._what_runs()
        place = None if where == NETWORK else _place_of(frame)
        if place is None:
            where, place = NETWORK, _NOWHERE
        seen = self._seen[account, where, place]
        seen[0] += now_ns - at_ns
        seen[1] += 1

    def sampled(self) -> tuple[Sampled, ...]:
        """The functions of each part, the most time first."""
        by_part: defaultdict[tuple[Account, str], dict[str, list[int]]] = defaultdict(dict)
        for (account, where, place), (ns, samples) in self._seen.items():
            of_part = by_part[account, where].setdefault(name_of(place), [0, 0])
            of_part[0] += ns
            of_part[1] += samples
        return tuple(_largest(by_part))


_NOWHERE: Place = None, None


def _largest(
    by_part: defaultdict[tuple[Account, str], dict[str, list[int]]],
) -> Iterator[Sampled]:
    for ((part, name), where), functions in by_part.items():
        others = functions.pop("", [0, 0])
        ranked = sorted(functions.items(), key=lambda item: -item[1][0])
        for function, (ns, samples) in ranked[:_MOST_FUNCTIONS]:
            yield Sampled(part, name, where, function, ns, samples)
        rest = np.sum([others, *(seen for _, seen in ranked[_MOST_FUNCTIONS:])], axis=0)
        if rest[0]:
            yield Sampled(part, name, where, "", *rest.tolist())


def _place_of(frame: FrameType | None) -> Place | None:
    """Where a sample finds the program; None in a function of Chainer's, which is a row."""
    # Only frames within our innermost frame count: the profiler calls whatever has an account.
    if frame is not None and frame.f_code.co_filename.startswith(OURS):
        return _NOWHERE
    # The outermost function of a library, and the outermost that is not Chainer's.
    called = beyond_chainer = None
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(OURS):
            if code.co_name != _PASSES_ON:
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


def name_of(place: Place) -> str:
    """``train.py:30 accuracy > CRF1d.argmax``; empty for no place."""
    own, called = place
    if own is None:
        return "" if called is None else _named(called)
    return _named(own) if called is None else f"{_named(own)} > {_qualified(called)}"


def _named(code: CodeType) -> str:
    file = os.path.basename(code.co_filename)
    if code.co_name == "<module>":
        return f"{file} {code.co_name}"
    return f"{file}:{code.co_firstlineno} {_qualified(code)}"


def _qualified(code: CodeType) -> str:
    name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has the name alone
    return str(name).replace(".<locals>", "")
