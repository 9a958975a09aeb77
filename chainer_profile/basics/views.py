"""Views of types: they are plugged in, so that no type imports its own writers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_VIEWS: dict[str, dict[str, Callable[..., Any]]] = {}


def register(kind: str, **views: Callable[..., Any]) -> None:
    """Give a type, by its name, its views: ``line``, ``text``, ``html`` and others of its own."""
    _VIEWS.setdefault(kind, {}).update(views)


class Displayable:
    """A type that a prompt shows as a line, ``print`` as a text, and a notebook as HTML."""

    def view(self, name: str, *args: Any, **options: Any) -> Any:
        """A view that was plugged in for this type."""
        return _VIEWS[type(self).__name__][name](self, *args, **options)

    def __repr__(self) -> str:
        return str(self.view("line"))

    def __str__(self) -> str:
        return str(self.view("text"))

    def _repr_html_(self) -> str:
        return str(self.view("html"))
