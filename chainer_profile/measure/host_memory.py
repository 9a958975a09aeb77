"""Memory that Python allocates, counted by tracemalloc while the program may use it, too."""

from __future__ import annotations

import _tracemalloc
import functools
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.replacements import Replacements

#: Values that functions of tracemalloc return while tracing is off.
_WHEN_OFF = {
    "is_tracing": False,
    "get_traced_memory": (0, 0),
    "stop": None,
    "clear_traces": None,
    "reset_peak": None,
}


class HostCounter:
    """Counts allocated memory with tracemalloc, and hides that from the program.

    If the program traces already, its traces are used, and only their peak changes. If it does not,
    we trace, and it sees that tracing is off. When it starts tracing, our tracing ends, so that it
    gets its own traces.
    """

    def __init__(self) -> None:
        self._is_ours = self._has_read = False
        self._problem = ""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Trace allocations, and leave tracing on or off as the program last asked."""
        self._is_ours = not _tracemalloc.is_tracing()
        if self._is_ours:
            _tracemalloc.start()
        try:
            with Replacements() as replacements:
                replacements.wrap(tracemalloc, "start", self._wrap_start)
                for name, value in _WHEN_OFF.items():
                    replacements.wrap(
                        tracemalloc, name, functools.partial(self._wrap, name=name, value=value)
                    )
                yield
        finally:
            if self._is_ours:
                self._is_ours = False
                _tracemalloc.stop()

    def read(self) -> tuple[int, int]:
        """Read the allocated bytes, and their peak since the last reading.

        Raises:
            ProfileError: The program has started, stopped or cleared tracemalloc.
        """
        if not _tracemalloc.is_tracing():
            raise ProfileError("the program stopped tracemalloc")
        if self._problem:
            raise ProfileError(self._problem)
        self._has_read = True
        now_and_peak: tuple[int, int] = _tracemalloc.get_traced_memory()
        _tracemalloc.reset_peak()
        return now_and_peak

    def _wrap_start(self, start: Any) -> Any:
        """Wrap ``tracemalloc.start`` to end our tracing first."""

        @functools.wraps(start)
        def start_for_the_program(*args: Any, **kwargs: Any) -> Any:
            if self._is_ours:
                self._is_ours = False
                _tracemalloc.stop()
                self._note_lost_traces("start")
            return start(*args, **kwargs)

        return start_for_the_program

    def _wrap(self, function: Any, name: str, value: Any) -> Any:
        """Wrap a function of tracemalloc to return ``value`` while we trace."""

        @functools.wraps(function)
        def for_the_program(*args: Any, **kwargs: Any) -> Any:
            if self._is_ours:
                return value
            if name in ("stop", "clear_traces"):
                self._note_lost_traces(name)
            return function(*args, **kwargs)

        return for_the_program

    def _note_lost_traces(self, name: str) -> None:
        """Let later readings fail: without the earlier traces they cannot be compared."""
        if self._has_read:
            self._problem = f"the program called tracemalloc.{name}()"


@contextmanager
def no_collection() -> Iterator[None]:
    """Run without automatic garbage collection, and leave it as the program last asked.

    ``gc.isenabled()`` returns the state that the program asked for.
    """
    is_wanted = gc.isenabled()

    def wish(is_on: bool) -> Callable[[Any], Any]:
        def wrap(function: Any) -> Any:
            @functools.wraps(function)
            def note() -> None:
                nonlocal is_wanted
                is_wanted = is_on

            return note

        return wrap

    with Replacements() as replacements:
        replacements.wrap(gc, "enable", wish(True))
        replacements.wrap(gc, "disable", wish(False))
        replacements.wrap(gc, "isenabled", lambda isenabled: lambda: is_wanted)
        _DISABLE()
        try:
            yield
        finally:
            (_ENABLE if is_wanted else _DISABLE)()


_ENABLE, _DISABLE = gc.enable, gc.disable
