"""Attributes of other objects, replaced for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

_NOTHING: Any = object()


@dataclass(eq=False)
class _Replaced:
    """An attribute of an object, and the wrappers around it, innermost first."""

    owner: Any
    name: str
    was_its_own: bool
    value: Any
    around: dict[object, Callable[[Any], Any]] = field(default_factory=dict)
    #: The value that was set last.
    ours: Any = _NOTHING

    def renew(self) -> None:
        """Set the attribute from its wrappers; a second call changes nothing.

        A value that somebody else has set meanwhile stays.
        """
        if self.ours is not _NOTHING and vars(self.owner).get(self.name) is not self.ours:
            return
        # Not by the owner's own __setattr__: ChainerMN's optimizers set attributes of inner ones.
        kind: Any = type if isinstance(self.owner, type) else object
        if not self.around and not self.was_its_own:
            if self.name in vars(self.owner):
                kind.__delattr__(self.owner, self.name)
                self.ours = _NOTHING
            return
        value = self.value
        for wrap in self.around.values():
            value = wrap(value)
        kind.__setattr__(self.owner, self.name, value)
        self.ours = value


class Replacements:
    """Attributes of objects that are replaced for a while.

    Several replacements of an attribute can be undone in any order and from any thread. After an
    interrupt at any place, :meth:`undo` undoes the rest.
    """

    _all: ClassVar[dict[tuple[int, str], _Replaced]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self) -> None:
        self._undo: list[tuple[_Replaced, object]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of an object to a value."""
        self.wrap(owner, name, lambda before: value)

    def wrap(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Set an attribute to ``wrap(before)``, again when a replacement below it is undone."""
        with self._lock:
            key = id(owner), name
            replaced = self._all.get(key)
            if replaced is None:
                was_its_own = name in vars(owner)
                value = vars(owner)[name] if was_its_own else getattr(owner, name, None)
                replaced = _Replaced(owner, name, was_its_own, value)
            # It is noted first, so it is undone even if the rest is interrupted.
            this = object()
            self._undo.append((replaced, this))
            self._all[key] = replaced
            replaced.around[this] = wrap
            replaced.renew()

    def undo(self) -> None:
        """Restore the attributes."""
        with self._lock:
            while self._undo:
                replaced, this = self._undo[-1]
                replaced.around.pop(this, None)
                replaced.renew()
                if not replaced.around:
                    self._all.pop((id(replaced.owner), replaced.name), None)
                self._undo.pop()

    def __enter__(self) -> Replacements:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()
