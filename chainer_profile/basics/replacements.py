"""Temporary replacements of attributes of classes, modules and other objects."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

_NOTHING: Any = object()


@dataclass(eq=False)
class _Replaced:
    """The original value of an attribute, and the wrappers around it, innermost first."""

    owner: Any
    name: str
    is_own: bool  #: Whether the original value is in ``vars(owner)``, or else inherited.
    value: Any
    wrappers: dict[object, Callable[[Any], Any]] = field(default_factory=dict)
    value_set: Any = _NOTHING  #: The value that this class has set last.
    value_next: Any = _NOTHING  #: The value that it was setting, if an interrupt came after that.

    def set(self) -> None:
        """Set the attribute to its wrapped value, or restore the original without wrappers.

        A value that other code has set in the meantime is not changed.
        """
        current = vars(self.owner).get(self.name)
        is_ours = current is self.value_set or current is self.value_next
        if self.value_set is not _NOTHING and not is_ours:
            return
        # The owner's own __setattr__ is bypassed: ChainerMN's optimizers forward it to another one.
        base: Any = type if isinstance(self.owner, type) else object
        if not self.wrappers and not self.is_own:
            if self.name in vars(self.owner):
                base.__delattr__(self.owner, self.name)
                self.value_set = _NOTHING
            return
        value = self.value
        for wrap in self.wrappers.values():
            value = wrap(value)
        self.value_next = value
        base.__setattr__(self.owner, self.name, value)
        self.value_set = value


class Replacements:
    """A set of replaced attributes that are restored together.

    Several replacements of one attribute can be undone in any order and from any thread. If an
    interrupt cut a call short, :meth:`undo` still restores everything.
    """

    _all: ClassVar[dict[tuple[int, str], _Replaced]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self) -> None:
        self._undo: list[tuple[_Replaced, object]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of an object to a value."""
        self.wrap(owner, name, lambda before: value)

    def wrap(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Set an attribute to ``wrap(before)``.

        ``wrap`` is called again with another value when an earlier replacement is undone first.
        """
        with self._lock:
            key = id(owner), name
            replaced = self._all.get(key)
            if replaced is None:
                is_own = name in vars(owner)
                value = vars(owner)[name] if is_own else getattr(owner, name, None)
                replaced = _Replaced(owner, name, is_own, value)
            # Registered first, so that undo() finds it even if the rest is interrupted.
            this = object()
            self._undo.append((replaced, this))
            self._all[key] = replaced
            replaced.wrappers[this] = wrap
            replaced.set()

    def undo(self) -> None:
        """Restore the attributes."""
        with self._lock:
            while self._undo:
                replaced, this = self._undo[-1]
                replaced.wrappers.pop(this, None)
                replaced.set()
                if not replaced.wrappers:
                    self._all.pop((id(replaced.owner), replaced.name), None)
                self._undo.pop()

    def __enter__(self) -> Replacements:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()
