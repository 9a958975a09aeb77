"""Time by line, where samplers tell no lines: every line is timed, by ``sys.monitoring``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from threading import get_ident
from types import CodeType
from typing import Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.samplers import Frames, code_frame

#: Numbers of tools that ``sys.monitoring`` has.
_TOOLS = range(6)
_NAME = "chainer_profile.lines"


class _Node:
    """A line, below the line that called its function."""

    __slots__ = ("below", "code", "line", "ns", "outer")

    def __init__(self, outer: _Node | None, code: CodeType | None, line: int) -> None:
        self.outer, self.code, self.line = outer, code, line
        self.ns = 0
        self.below: dict[tuple[CodeType, int], _Node] = {}

    def child(self, code: CodeType, line: int) -> _Node:
        key = code, line
        node = self.below.get(key)
        if node is None:
            node = self.below[key] = _Node(self, code, line)
        return node

    def stacks(self, outer: Frames = ()) -> Iterator[tuple[Frames, int]]:
        here = outer
        if self.code is not None:
            here = (*outer, code_frame(self.code, self.line))
            if self.ns:
                yield here, self.ns
        for inner in self.below.values():
            yield from inner.stacks(here)


def timed_lines(run: Callable[[], None], now_ns: NowNs) -> dict[Frames, int]:
    """Run something, and time all lines that this thread runs, without what the callbacks take."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        raise ProfileError("timing lines needs Python 3.12 or newer")
    if sys.gettrace() or sys.getprofile() or any(map(monitoring.get_tool, _TOOLS)):
        raise ProfileError("a debugger or another tool is monitoring the program")
    tool, events = monitoring.PROFILER_ID, monitoring.events
    root = _Node(None, None, 0)
    callbacks = _callbacks(root, now_ns)
    monitoring.use_tool_id(tool, _NAME)
    try:
        for name, callback in callbacks.items():
            monitoring.register_callback(tool, getattr(events, name), callback)
        monitoring.set_events(tool, sum(getattr(events, name) for name in callbacks))
        run()
    finally:
        monitoring.set_events(tool, 0)
        for name in callbacks:
            monitoring.register_callback(tool, getattr(events, name), None)
        monitoring.free_tool_id(tool)
    return dict(root.stacks())


def _callbacks(root: _Node, now_ns: NowNs) -> dict[str, Callable[..., None]]:
    """What ``sys.monitoring`` calls, by the names of its events."""
    thread, at, last = get_ident(), root, now_ns()

    def enter(code: CodeType, *_: Any) -> None:
        nonlocal at, last
        if get_ident() != thread:
            return
        at.ns += now_ns() - last
        at = at.child(code, code.co_firstlineno)
        last = now_ns()

    def line(code: CodeType, number: int) -> None:
        nonlocal at, last
        if get_ident() != thread:
            return
        at.ns += now_ns() - last
        if at.code is code and at.outer is not None:
            at = at.outer.child(code, number)
        last = now_ns()

    def leave(code: CodeType, *_: Any) -> None:
        nonlocal at, last
        if get_ident() != thread:
            return
        at.ns += now_ns() - last
        # The first one to leave was entered before this looked.
        if at.code is code and at.outer is not None:
            at = at.outer
        last = now_ns()

    return {
        "PY_START": enter,
        "PY_RESUME": enter,
        "PY_THROW": enter,
        "LINE": line,
        "PY_RETURN": leave,
        "PY_YIELD": leave,
        "PY_UNWIND": leave,
    }
