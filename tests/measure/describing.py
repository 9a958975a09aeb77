"""Deep descriptions of objects: every attribute, item and byte, by path."""

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
    """Describe types, ids and contents of everything that objects refer to.

    Also describes random generators. The description references the objects, so that no new object
    gets the same id. For objects in ``leave``, it has only the id.
    """
    description: dict[str, Any] = {
        "random": random.getstate(),
        "numpy.random": _plain(np.random.get_state(legacy=False)),  # noqa: NPY002
    }
    seen = {id(value) for value in leave}
    waiting = list(objects.items())
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _LEAVES):
            description[path] = value
            continue
        description[path] = type(value), id(value), _Reference(value)
        if id(value) not in seen:
            seen.add(id(value))
            content = _content(value)
            if content is not None:
                description[f"{path} content"] = content
            waiting += [(f"{path}{name}", child) for name, child in _children(value)]
    return description


class _Reference:
    """A reference that keeps an object alive; all references are equal."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reference)

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
    """A generator's state with bytes instead of arrays, so that ``==`` gives one bool."""
    if isinstance(state, dict):
        return {name: _plain(item) for name, item in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def _children(value: Any) -> list[tuple[str, Any]]:
    """The objects that an object refers to, each with the last component of its path."""
    children: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        children += [(f"[{n}: {key!r}]", child) for n, (key, child) in enumerate(value.items())]
    elif isinstance(value, (list, tuple, deque)):
        children += [(f"[{n}]", child) for n, child in enumerate(value)]
    elif isinstance(value, (set, frozenset)):
        children += [(f"{{{child!r}}}", child) for child in value]
    elif isinstance(value, np.ndarray) and value.dtype == object:
        children += [(f"[{n}]", child) for n, child in enumerate(value.ravel().tolist())]
    elif isinstance(value, MethodType):
        children += [(".__self__", value.__self__), (".__func__", value.__func__)]
    elif isinstance(value, FunctionType):
        children += [(f".{cell}", child) for cell, child in enumerate(value.__closure__ or ())]
    elif isinstance(value, CellType):
        with suppress(ValueError):  # an empty one
            children.append((".cell_contents", value.cell_contents))
    children += [(f".{name}", child) for name, child in getattr(value, "__dict__", {}).items()]
    for base in type(value).__mro__:
        for name in vars(base).get("__slots__", ()):
            if hasattr(value, name):
                children.append((f".{name}", getattr(value, name)))
    return children


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Lines with the paths at which two descriptions differ."""
    names = [*before, *(name for name in after if name not in before)]
    return "\n".join(
        f"{name}: {_short(before.get(name))} became {_short(after.get(name))}"
        for name in names
        if not _same(before.get(name, names), after.get(name, names))
    )


def _same(before: Any, after: Any) -> bool:
    return before is after or bool(before == after)


def _short(value: Any) -> str:
    is_reference = isinstance(value, tuple) and bool(value) and isinstance(value[-1], _Reference)
    return repr(value[-1].value if is_reference else value)[:120]
