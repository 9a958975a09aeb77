"""JSON that no run has written: what its tests share."""

from __future__ import annotations

from typing import Any

VALUES = [
    *(None, -1, 0, 1, 2**31, 2**63, -(2**63), 2**70, float("nan"), float("inf"), -0.5, 1e308),
    *("", "x", "a\nb", "\x1b[2J", [], {}, True, [-1], [None], [[1]], "/"),
]


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in JSON below a node."""
    items: Any = node.items() if isinstance(node, dict) else enumerate(node)
    found = []
    for key, value in items:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
    return found
