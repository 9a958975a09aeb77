"""A deep description of objects: every attribute, item and byte, by its path."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_LEAVES = (type, ModuleType, BuiltinFunctionType, str, bytes, int, float, type(None))


def describe(leave: Iterable[Any] = (), **objects: Any) -> dict[str, Any]:
    """Describe types, identities and contents of everything that objects refer to.

    Random generators are described, too. The description references the objects, so that no other
    object gets their identity. It has only the identity of objects in ``leave``.
    """
    found: dict[str, Any] = {
        "random": random.getstate(),
        "numpy.random": _plain(np.random.get_state(legacy=False)),  # noqa: NPY002
    }
    seen = {id(value) for value in leave}
    waiting = list(objects.items())
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _LEAVES):
            found[path] = value
            continue
        found[path] = type(value), id(value), _Kept(value)
        if id(value) not in seen:
            seen.add(id(value))
            content = _content(value)
            if content is not None:
                found[f"{path} content"] = content
            waiting += [(f"{path}{name}", part) for name, part in _parts(value)]
    return found


class _Kept:
    """Keeps an object alive; all are equal."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept)

    __hash__ = None  # type: ignore[assignment]


def _content(value: Any) -> Any:
    """The data of an object: bytes, or the state of a generator."""
    if isinstance(value, np.ndarray):
        data = None if value.dtype == object else value.tobytes()
        return value.shape, value.flags.writeable, value.dtype.str, data
    if isinstance(value, np.random.RandomState):
        return _plain(value.get_state(legacy=False))
    if isinstance(value, np.random.Generator):
        return _plain(value.bit_generator.state)
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, bytearray):
        return bytes(value)
    return None


def _plain(state: Any) -> Any:
    """A generator's state without arrays, whose comparison has no single truth."""
    if isinstance(state, dict):
        return {name: _plain(part) for name, part in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The objects that an object refers to, with the ends of their paths."""
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        parts += [(f"[{n}: {key!r}]", part) for n, (key, part) in enumerate(value.items())]
    elif isinstance(value, (list, tuple, deque)):
        parts += [(f"[{n}]", part) for n, part in enumerate(value)]
    elif isinstance(value, (set, frozenset)):
        parts += [(f"{{{part!r}}}", part) for part in value]
    elif isinstance(value, np.ndarray) and value.dtype == object:
        parts += [(f"[{n}]", part) for n, part in enumerate(value.ravel().tolist())]
    elif isinstance(value, MethodType):
        parts += [(".__self__", value.__self__), (".__func__", value.__func__)]
    elif isinstance(value, FunctionType):
        parts += [(f".{cell}", part) for cell, part in enumerate(value.__closure__ or ())]
    elif isinstance(value, CellType):
        with suppress(ValueError):  # an empty one
            parts.append((".cell_contents", value.cell_contents))
    parts += [(f".{name}", part) for name, part in getattr(value, "__dict__", {}).items()]
    for base in type(value).__mro__:
        for name in vars(base).get("__slots__", ()):
            if hasattr(value, name):
                parts.append((f".{name}", getattr(value, name)))
    return parts


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The paths at which two descriptions differ, in lines."""
    names = [*before, *(name for name in after if name not in before)]
    return "\n".join(
        f"{name}: {_short(before.get(name))} became {_short(after.get(name))}"
        for name in names
        if not _same(before.get(name, names), after.get(name, names))
    )


def _same(before: Any, after: Any) -> bool:
    return before is after or bool(before == after)


def _short(value: Any) -> str:
    kept = isinstance(value, tuple) and bool(value) and isinstance(value[-1], _Kept)
    return repr(value[-1].value if kept else value)[:120]
