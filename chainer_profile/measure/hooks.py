"""A function hook that reports every call to callbacks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

from chainer import FunctionHook

_NUMBERS = count()


def unique_name(kind: str) -> str:
    """A name that no other hook has, because Chainer refuses two hooks with the same name."""
    return f"chainer_profile.{kind}-{next(_NUMBERS)}"


class WalkHook(FunctionHook):
    """Calls ``begin`` and ``end`` around every forward and backward of a function.

    Args:
        begin: Gets the function, its inputs, whether this is a backward, and the frame that runs
            the function. In a backward, the output gradients follow the inputs in the same tuple.
        end: Gets the function, its inputs, its outputs (None in a backward), and the frame.
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
        # The function does not have its outputs yet, but the calling method has them as a variable.
        frame = sys._getframe(1)
        self._end(function, in_data, frame.f_locals["outputs"], frame)

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self._begin(function, (*in_data, *out_grad), True, sys._getframe(1))

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self._end(function, in_data, None, sys._getframe(1))
