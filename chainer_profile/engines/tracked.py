"""Arrays that tell when a network's own code looks at their numbers, outside of all functions.

What a network computes by Chainer's functions can be planned; what its code reads by itself (``if
x.sum() > 0``, ``h.array *= 2``, ``x / 255`` of an array) may be another thing for every input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import chainer
import numpy as np

_listening: ContextVar[Callable[[str], None] | None] = ContextVar("listening", default=None)

#: Functions of NumPy that look at shapes and types alone.
_OF_SHAPES = frozenset(
    [
        *("shape", "ndim", "size", "reshape", "result_type", "can_cast", "shares_memory"),
        *("zeros_like", "ones_like", "empty_like", "full_like", "may_share_memory"),
    ]
)
#: Methods that do, or that give the same numbers with other axes at the same place.
_HARMLESS = frozenset(["reshape", "ravel", "squeeze", "view", "setflags", "newbyteorder", "astype"])
_OPERATORS = ("bool", "int", "float", "complex", "index", "iter", "contains", "getitem", "setitem")


class Tracked(np.ndarray[Any, Any]):
    """A view of an array in a pass in which somebody listens; see :func:`listening`."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        _tell(ufunc.__name__)
        kwargs = {key: _plain(value) for key, value in kwargs.items()}
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ not in _OF_SHAPES:
            _tell(function.__name__)
        return function(*_plain(args), **_plain(kwargs))

    def astype(self, dtype: Any, *args: Any, copy: Any = True, **kwargs: Any) -> Any:
        """The array itself where it is of the type already, as Chainer's operators ask for it."""
        if not copy and np.dtype(dtype) == self.dtype:
            return self
        _tell("astype")
        convert: Any = super().astype
        return convert(dtype, *args, copy=copy, **kwargs)


def _telling(name: str) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tell(name.strip("_"))
        return original(self, *args, **kwargs)

    return method


_PUBLIC = [name for name in dir(np.ndarray) if not name.startswith("_")]
for _name in [*_PUBLIC, *(f"__{name}__" for name in _OPERATORS)]:
    if callable(getattr(np.ndarray, _name)) and _name not in _HARMLESS:
        setattr(Tracked, _name, _telling(_name))


def _plain(value: Any) -> Any:
    """The same without tracked arrays."""
    if isinstance(value, Tracked):
        return value.view(np.ndarray)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


def _tell(what: str) -> None:
    listener = _listening.get()
    if listener is not None:
        listener(what)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Within this, a function is told what looks at numbers of tracked arrays."""
    token = _listening.set(listener)
    try:
        yield
    finally:
        _listening.reset(token)


def whose_line() -> str:
    """File and line of the code that is running, outside of NumPy, Chainer and this package."""
    own = [Path(module.__file__ or "").parent for module in (np, chainer)]
    own.append(Path(__file__).parents[1])
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if not any(folder in path.parents for folder in own):
            return f"{path.name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
