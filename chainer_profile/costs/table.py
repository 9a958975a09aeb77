"""Which formula counts which function: by class, without importing Chainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from chainer_profile.basics.words import BACKWARD, FORWARD, UPDATE
from chainer_profile.costs import about, exact, update
from chainer_profile.costs.call import Call, Work, is_a


class Entry(NamedTuple):
    """What counts a class: a formula, or for rules and hooks what they do."""

    formula: Any
    about: bool = False


#: Of Chainer's classes, by phase and name.
_CHAINERS: dict[str, dict[str, Entry]] = {
    FORWARD: {
        **{name: Entry(formula, about=True) for name, formula in about.FORWARD.items()},
        **{name: Entry(formula) for name, formula in exact.FORWARD.items()},
    },
    BACKWARD: {
        **{name: Entry(formula, about=True) for name, formula in about.BACKWARD.items()},
        **{name: Entry(formula) for name, formula in exact.BACKWARD.items()},
    },
    UPDATE: {name: Entry(found) for name, found in (update.RULES | update.HOOKS).items()},
}
_USERS: dict[tuple[str, type], Entry] = {}
#: What was found already.
_FOUND: dict[str, WeakKeyDictionary[type, Entry | None]] = {
    phase: WeakKeyDictionary() for phase in _CHAINERS
}


def register_user(cls: type, phase: str, formula: Callable[[Any], Any]) -> None:
    """Use a formula for a class, in place of the one that it or its base has."""
    _USERS[phase, cls] = Entry(formula)
    _FOUND[phase].clear()


def forget(cls: type) -> None:
    """Take back what :func:`register_user` was told of a class."""
    for phase in _CHAINERS:
        _USERS.pop((phase, cls), None)
        _FOUND[phase].clear()


def find(function: Any, phase: str) -> Entry | None:
    """The formula for a function: that of its class, or else of the nearest base that has one."""
    cls, found = type(function), _FOUND[phase]
    if cls not in found:
        found[cls] = next(filter(None, (_own(base, phase) for base in cls.__mro__)), None)
    return found[cls]


def _own(cls: type, phase: str) -> Entry | None:
    users = _USERS.get((phase, cls))
    if users is not None or not cls.__module__.startswith("chainer."):
        return users
    return _CHAINERS[phase].get(cls.__name__)


def inner(function: Any) -> Any:
    """The function itself: an old-style one is wrapped in an adapter."""
    if is_a(type(function), "chainer.function.FunctionAdapter"):
        return function.function
    return function


def evaluate(entry: Entry, call: Call) -> Work | None:
    """The work of a call by a formula."""
    result = entry.formula(call)
    work = result if result is None or isinstance(result, Work) else call.work(int(result))
    return replace(work, about=True) if entry.about and work is not None else work
