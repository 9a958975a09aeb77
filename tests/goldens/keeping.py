"""What the goldens keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Contents by the end of the file's name.
Kept = dict[str, str]


def listed(said: Mapping[str, Iterable[str]]) -> Kept:
    """Cases by their names, and below each what is said of it."""
    parts = ("\n".join([f"-- {name}", *(list(said) or ["nothing"])]) for name, said in said.items())
    return {"txt": "\n".join([*parts, ""])}
