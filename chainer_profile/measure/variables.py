"""The networks and optimizers that variables hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import chainer

from chainer_profile.basics.paths import joined


def prefix_of(optimizer: Any, roots: Sequence[tuple[str, Any]]) -> str:
    """What the paths of an optimizer's network begin with."""
    for prefix, root in roots:
        for path, link in root.namedlinks():
            if link is optimizer.target:
                return joined(prefix, str(path))
    return ""


def networks(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The networks among variables, each with ``/`` and its name; no links of other networks."""
    # Names that begin with _ are IPython's own.
    found: dict[int, tuple[str, Any]] = {}
    for name, value in namespace.items():
        if isinstance(value, chainer.Link) and not name.startswith("_"):
            found.setdefault(id(value), (f"/{name}", value))
    below = {id(link) for _, root in found.values() for link in root.links(skipself=True)}
    return [named for identity, named in found.items() if identity not in below]


def optimizers(namespace: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The optimizers among variables, one for a parameter: one that is named, or the last."""
    known = {
        id(value): (name, value)
        for name, value in reversed(list(namespace.items()))
        if isinstance(value, chainer.Optimizer)
        and value.target is not None
        and not name.startswith("_")
    }
    chosen, taken = [], set[int]()
    for _, optimizer in sorted(known.values(), key=lambda named: named[0] not in names):
        params = {id(param) for param in optimizer.target.params()}
        if not params & taken:
            chosen.append(optimizer)
            taken |= params
    return chosen
