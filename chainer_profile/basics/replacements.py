"""Attributes of others' objects, replaced for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(eq=False)
class _Replaced:
    """An attribute of an object, and what stands around it, innermost first."""

    owner: Any
    name: str
    was_its_own: bool
    value: Any
    around: list[Callable[[Any], Any]] = field(default_factory=list)

    def renew(self) -> None:
        """Make the attribute what it is to be now."""
        # Not by the owner's own way: ChainerMN's optimizers set attributes of those in them.
        kind: Any = type if isinstance(self.owner, type) else object
        if not self.around and not self.was_its_own:
            kind.__delattr__(self.owner, self.name)
            return
        value = self.value
        for wrap in self.around:
            value = wrap(value)
        kind.__setattr__(self.owner, self.name, value)


class Replacements:
    """Attributes of objects that others take the place of, for a while.

    Several may replace one attribute, and be undone in any order.
    """

    _all: ClassVar[dict[tuple[int, str], _Replaced]] = {}

    def __init__(self) -> None:
        self._undo: list[tuple[_Replaced, Callable[[Any], Any]]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute on an object itself."""
        self.wrap(owner, name, lambda before: value)

    def wrap(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Set an attribute on an object itself.

        Args:
            owner: The object.
            name: The attribute's name.
            wrap: Gives the new value from the one before; is asked again when that goes.
        """
        key = id(owner), name
        if key not in self._all:
            was_its_own = name in vars(owner)
            value = vars(owner)[name] if was_its_own else getattr(owner, name, None)
            self._all[key] = _Replaced(owner, name, was_its_own, value)
        replaced = self._all[key]
        replaced.around.append(wrap)
        self._undo.append((replaced, wrap))
        replaced.renew()

    def undo(self) -> None:
        """Bring back what was there before."""
        while self._undo:
            replaced, wrap = self._undo.pop()
            replaced.around.remove(wrap)
            replaced.renew()
            if not replaced.around:
                del self._all[id(replaced.owner), replaced.name]

    def __enter__(self) -> Replacements:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()
