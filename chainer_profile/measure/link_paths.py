"""The paths of links: of networks that are known, and of others that a program calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import ref

from chainer_profile.basics.paths import above, joined, link_of
from chainer_profile.record.recording import LinkCalls


class Paths:
    """The paths of the links of networks, and whose their parameters are."""

    def __init__(self, roots: Sequence[tuple[str, Any]]) -> None:
        self.by_link: dict[int, str] = {}
        # Links that hold others: calls of theirs may take parameters of those.
        self.holders = {"/", "loss"}
        self._links: dict[int, ref[Any]] = {}
        self._roots: dict[str, ref[Any]] = {}
        self.renew(roots)

    def renew(self, roots: Sequence[tuple[str, Any]]) -> None:
        """Know the networks that are there now, such as a copy that takes another's place."""
        for prefix, root in roots:
            known = self._roots.get(prefix)
            if known is None or known() is not root:
                self._add(prefix, root)

    def _add(self, prefix: str, root: Any) -> None:
        self._roots[prefix] = ref(root)
        for path, link in root.namedlinks():
            key = id(link)
            if key not in self.by_link:  # a shared link goes by its first path
                self.by_link[key] = known = joined(prefix, str(path))
                self.holders.add(above(known) or "/")
                self._links[key] = ref(link, partial(self._forget, key))

    def _forget(self, key: int, link: ref[Any]) -> None:
        if self._links.get(key) is link:
            del self._links[key], self.by_link[key]

    def adopt(self, link: Any, holder: str) -> str:
        """Path of a link that is of no network here: below another, by the name of its class."""
        # One that is gone leaves its path to the next one of its class.
        first = prefix = f"{holder.rstrip('/')}/{type(link).__name__}"
        number = 1
        while (known := self._roots.get(prefix)) is not None and known() is not None:
            number += 1
            prefix = f"{first}-{number}"
        self._add(prefix, link)
        return self.by_link[id(link)]

    def params(self) -> Iterator[tuple[str, Any]]:
        """Every parameter, with the path of its link."""
        for prefix, one in self._roots.items():
            root = one()
            for path, param in () if root is None else root.namedparams():
                yield joined(prefix, link_of(path)), param

    def parameters(self, path: str) -> tuple[Any, ...]:
        """The arrays of the parameters of the link at a path."""
        arrays = (param.array for of, param in self.params() if of == path)
        return tuple(array for array in arrays if array is not None)

    def links(self, calls: dict[str, int], iterations: int) -> tuple[LinkCalls, ...]:
        """The links that are there, with their mean calls, and parameters of their own."""
        own = own_sizes(self.params())
        alive = [(path, self._links[key]()) for key, path in self.by_link.items()]
        return tuple(
            LinkCalls(
                path,
                type(link).__name__,
                whole_or_mean(calls.get(path, 0) / iterations),
                own.get(path, 0),
            )
            for path, link in alive
        )


def own_sizes(params: Iterable[tuple[str, Any]]) -> dict[str, int]:
    """Number of parameters of every link's own; one that several share is the first one's."""
    own: dict[str, int] = {}
    seen: set[int] = set()
    for path, param in params:
        if id(param) not in seen and param.array is not None:
            seen.add(id(param))
            own[path] = own.get(path, 0) + int(param.size)
    return own


def whole_or_mean(value: float) -> int | float:
    """A whole number as one, and else the number as it is."""
    return int(value) if value == int(value) else value
