"""Which links are running, also where Chainer tells no hook of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any

import chainer
from chainer import LinkHook

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.hooks import (
    classes_of,
    defines_call,
    unique_name,
)


class LinkStack(LinkHook):
    """Keeps the links whose forward is running, outermost first, and counts the calls.

    Chainer calls no link hook for a link whose class defines ``__call__``, as all did up to
    Chainer 4: those methods are replaced meanwhile. Nor does it call the second one after an
    exception: a link whose call is no longer on the interpreter's stack has ended.
    """

    def __init__(self) -> None:
        self.name = unique_name("LinkStack")
        self.calls: dict[int, int] = {}
        #: Called with every link that a hook sees.
        self.noted: Callable[[Any], None] = lambda link: None
        # The link, the frame of its call, and whether its own method stands for the hook.
        self._running: list[tuple[Any, FrameType, bool]] = []
        self._replacements = Replacements()

    @property
    def links(self) -> list[Any]:
        """Those that are running."""
        while self._running and not is_running(self._running[-1][1]):
            self._running.pop()
        return self.last

    @property
    def last(self) -> list[Any]:
        """Those that were running when this was last told of anything."""
        return [link for link, _, _ in self._running]

    def __enter__(self) -> LinkStack:
        super().__enter__()
        thread = get_ident()
        for kind in classes_of(chainer.Link) - {chainer.Link}:
            if "__call__" in vars(kind):
                self._replacements.wrap(kind, "__call__", partial(self._noting, thread, kind))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._replacements.undo()
        super().__exit__(*exception)

    def add_running(self, link: Any, frame: FrameType) -> None:
        """Know a link whose call has begun; of Chainer's own ``__call__`` a hook is yet to tell."""
        if defines_call(type(link)) is not chainer.Link:
            self._begin(link, frame, True)

    def _noting(self, thread: int, kind: type, method: Any) -> Any:
        def noting_call(link: Any, *args: Any, **kwargs: Any) -> Any:
            # It may be called by a subclass's.
            if get_ident() != thread or defines_call(type(link)) is not kind:
                return method(link, *args, **kwargs)
            frame = sys._getframe()
            self.noted(link)
            self._begin(link, frame, True)
            self.began(link, args, frame)
            out = method(link, *args, **kwargs)
            self._end(frame)
            self.ended(frame)
            return out

        return noting_call

    def _begin(self, link: Any, frame: FrameType, by_method: bool) -> None:
        self._running = self._running[: len(self.links)]
        self._running.append((link, frame, by_method))
        self.calls[id(link)] = self.calls.get(id(link), 0) + 1

    def forward_preprocess(self, args: Any) -> None:
        """Note that a link begins."""
        # A __call__ of its own may call Chainer's.
        if self.links and self._running[-1][2] and self._running[-1][0] is args.link:
            return
        self.noted(args.link)
        frame = sys._getframe(1)
        self._begin(args.link, frame, False)
        self.began(args.link, args.args, frame)

    def forward_postprocess(self, args: Any) -> None:
        """Note that it ends."""
        frame = sys._getframe(1)
        self._end(frame)
        self.ended(frame)

    def _end(self, frame: FrameType) -> None:
        if self.links and self._running[-1][1] is frame:
            self._running.pop()

    def began(self, link: Any, args: tuple[Any, ...], frame: FrameType) -> None:
        """A link was called; for subclasses."""

    def ended(self, frame: FrameType) -> None:
        """A call has ended; for subclasses."""


def is_running(frame: FrameType) -> bool:
    """Whether a frame is one of those that called this."""
    now: FrameType | None = sys._getframe(1)
    while now is not None:
        if now is frame:
            return True
        now = now.f_back
    return False
