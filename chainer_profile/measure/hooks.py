"""Function hooks made of callbacks, and classes of links by where their calls come from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import chainer
from chainer import FunctionHook

from chainer_profile.basics.replacements import Replacements

_NUMBERS = count()


def hook_of(*callbacks: Callable[..., None]) -> FunctionHook:
    """A hook that has these methods, by their names."""
    # Methods of a class that find all they need in closure cells are the fastest callbacks: the
    # interpreter caches their look-up, which it does not for functions kept on the instance.
    methods = {callback.__name__: callback for callback in callbacks}
    hook: FunctionHook = type("RecordingHook", (FunctionHook,), methods)()
    hook.name = unique_name("Recorder")
    return hook


def unique_name(of: str) -> str:
    """A name that no other hook has: Chainer takes no two of one name."""
    return f"chainer_profile.{of}-{next(_NUMBERS)}"


class WalkHook(FunctionHook):
    """Tells of every function that is called, and of its backward.

    ``begin`` gets the function, its inputs (and in a backward the gradients behind them), whether
    it is a backward, and the frame that runs it; ``end`` the function, its inputs, its outputs,
    which are None in a backward, and the frame.
    """

    def __init__(
        self,
        begin: Callable[[Any, tuple[Any, ...], bool, FrameType], None] = lambda *_: None,
        end: Callable[[Any, tuple[Any, ...], Any, FrameType], None] = lambda *_: None,
    ) -> None:
        self.name = unique_name("Walk")
        self._begin, self._end = begin, end

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        self._begin(function, in_data, False, sys._getframe(1))

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        # The function does not have its outputs yet; the method that runs it has.
        frame = sys._getframe(1)
        self._end(function, in_data, frame.f_locals["outputs"], frame)

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self._begin(function, (*in_data, *out_grad), True, sys._getframe(1))

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self._end(function, in_data, None, sys._getframe(1))


#: By class of links; it is asked in every call of a link.
_defining: dict[type, type] = {}


def defines_call(kind: type) -> type:
    """The class that a class of links has its ``__call__`` from: Chainer's, or one of its own."""
    defining = _defining.get(kind)
    if defining is None:
        defining = next(base for base in kind.__mro__ if "__call__" in vars(base))
        _defining[kind] = defining
    return defining


def wrap_link_calls(replacements: Replacements, wrap: Callable[[type, Any], Any]) -> None:
    """Put what is made of a class and its ``__call__`` in that one's place, for all links.

    Chainer's link hooks are told of no call that raises, and of none of a class with a ``__call__``
    of its own.
    """
    for kind in classes_of(chainer.Link):
        if "__call__" in vars(kind):
            replacements.wrap(kind, "__call__", partial(wrap, kind))


def classes_of(base: type) -> set[type]:
    """A class and all below it."""
    return {base}.union(*map(classes_of, base.__subclasses__()))
