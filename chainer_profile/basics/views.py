"""A registry of functions that display objects.

With it ``print(recording)`` can call the writers, although :mod:`.record` does not import them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_VIEWS: dict[str, dict[str, Callable[..., Any]]] = {}


def register(kind: str, **views: Callable[..., Any]) -> None:
    """Register views of the class named ``kind``: ``line``, ``text``, ``html`` or others."""
    _VIEWS.setdefault(kind, {}).update(views)


class Displayable:
    """Base of classes with views for the prompt (line), ``print`` (text) and notebooks (HTML)."""

    def view(self, name: str, *args: Any, **options: Any) -> Any:
        """Call the registered view of this name."""
        return _VIEWS[type(self).__name__][name](self, *args, **options)

    def __repr__(self) -> str:
        return str(self.view("line"))

    def __str__(self) -> str:
        return str(self.view("text"))

    def _repr_html_(self) -> str:
        return str(self.view("html"))
