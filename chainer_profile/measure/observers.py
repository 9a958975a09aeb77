"""The operations of a program, and the observers that learn when each begins and ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any, Protocol

import chainer

from chainer_profile.measure.links import LinkTracker

#: The operations that are reported. An operation inside another one of its kind is not.
LOAD, CONVERT = "load", "convert"
NETWORK, LOSS, CLEARGRADS, BACKWARD = "network", "loss", "cleargrads", "backward"
BACKPROP = "backprop"
SETUP, UPDATE, HOOK, RULE = "setup", "update", "hook", "rule"
ITERATION, RUN, COMMUNICATION = "iteration", "run", "communication"

#: Called at the end of an operation with the exception that it raised, if any, and its result.
End = Callable[[BaseException | None, Any], None]


class Observer(Protocol):
    """Learns when its thread begins and ends operations."""

    @property
    def thread(self) -> int:
        """Identity of the observed thread."""

    def begin_operation(self, operation: str, owner: Any, args: tuple[Any, ...]) -> End | None:
        """Learn that an operation begins; returns a function to call at its end, or None.

        Args:
            operation: One of the constants above.
            owner: The object whose method it is, or the function.
            args: The other arguments.
        """

    def begin_elsewhere(self, operation: str) -> None:
        """Learn that another thread begins an operation."""

    def fail(self, error: Exception) -> None:
        """Learn that a method of this observer raised, and that it was removed."""


class CallObserver(Observer, Protocol):
    """An observer with a tracker of links, which also learns when functions raise."""

    @property
    def tracker(self) -> LinkTracker:
        """The tracker; the wrapper of ``Link.__call__`` updates it."""

    def function_raised(self, function: Any) -> None:
        """Learn that a function has raised an exception."""


class _OpenOperations(threading.local):
    """The operations that run in each thread."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()


class _Observed:
    """The observers, and the operations that run now."""

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        self.call_observers: list[CallObserver] = []
        #: The tracker of the only call observer; None if there are several, or none.
        self.only_tracker: LinkTracker | None = None
        self.open = _OpenOperations()

    def add(self, observer: Observer, calls: bool) -> None:
        """Report to an observer; with ``calls``, it is a :class:`CallObserver`."""
        self.observers.append(observer)
        if calls:
            self.call_observers.append(observer)  # type: ignore[arg-type]
        self._find_only_tracker()

    def remove(self, observer: Observer) -> None:
        """Report no longer to an observer, which need not have been added."""
        # report() may iterate over the lists. Hooks compare by name, so compare by identity.
        self.observers[:] = [each for each in self.observers if each is not observer]
        self.call_observers[:] = [each for each in self.call_observers if each is not observer]
        self._find_only_tracker()

    def _find_only_tracker(self) -> None:
        trackers = [observer.tracker for observer in self.call_observers]
        self.only_tracker = trackers[0] if len(trackers) == 1 else None


OBSERVED = _Observed()


def report(operation: str, owner: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
    """Report the begin of an operation, make the call, and report the end."""
    thread, kinds = get_ident(), OBSERVED.open.kinds
    ends: list[tuple[Observer, End]] = []
    kinds.add(operation)
    # An observer may add another one, which learns of this operation as well.
    for observer in OBSERVED.observers:
        try:
            if observer.thread != thread:
                observer.begin_elsewhere(operation)
            elif (end := observer.begin_operation(operation, owner, args)) is not None:
                ends.append((observer, end))
        except Exception as error:
            _fail(observer, error)
    try:
        result = call()
    except BaseException as error:
        kinds.discard(operation)
        _end(ends, error, None)
        raise
    kinds.discard(operation)
    _end(ends, None, result)
    return result


def _end(ends: list[tuple[Observer, End]], raised: BaseException | None, result: Any) -> None:
    """Report the end of an operation to the observers, the last one first."""
    for observer, end in reversed(ends):
        try:
            end(raised, result)
        except Exception as error:
            _fail(observer, error)


def _fail(observer: Observer, error: Exception) -> None:
    """Remove an observer that has failed, and report this to it. The program continues."""
    OBSERVED.remove(observer)
    with suppress(Exception):
        observer.fail(error)


def open_operations() -> set[str]:
    """The operations that run in the calling thread."""
    return OBSERVED.open.kinds


def _forget_in_child() -> None:
    """Forget all observers in a child process, which is not observed."""
    for observer in [*OBSERVED.observers]:
        with suppress(Exception):
            chainer.get_function_hooks().pop(getattr(observer, "name", ""), None)
    OBSERVED.observers.clear()
    OBSERVED.call_observers.clear()
    OBSERVED.only_tracker = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
