"""Whose a call is: the links of the networks, by their paths, and their parameters."""

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

    def alive(self) -> list[Any]:
        found = (one() for one in list(self._links.values()))
        return [link for link in found if link is not None]

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
        arrays = (param.array for of, param in self.params() if of == path)
        return tuple(array for array in arrays if array is not None)

    def links(self, calls: dict[str, int], iterations: int) -> tuple[LinkCalls, ...]:
        """The links that are there, with their mean calls, and parameters of their own.

        A parameter that several share is the first's.
        """
        own: dict[str, int] = {}
        seen: set[int] = set()
        for path, param in self.params():
            if id(param) not in seen and param.array is not None:
                seen.add(id(param))
                own[path] = own.get(path, 0) + int(param.size)
        return tuple(
            LinkCalls(
                path := self.by_link[id(link)],
                type(link).__name__,
                whole_or_mean(calls.get(path, 0) / iterations),
                own.get(path, 0),
            )
            for link in self.alive()
        )


class Owners(Paths):
    """The same with the arrays that they keep, for a pass that looks at all of them."""

    def __init__(self, roots: Sequence[tuple[str, Any]]) -> None:
        super().__init__(roots)
        self.with_paths = list(self.params())
        self._by_array: dict[int, list[tuple[str, Any]]] = {}
        self._by_path: dict[str, list[Any]] = {}
        for path, param in self.with_paths:
            self._by_path.setdefault(path, []).append(param)
        # Arrays that are no parameters, with the link that keeps each and its name there.
        self.persistents = [
            (self.by_link[id(link)], link, name)
            for link in self.alive()
            for name in sorted(link._persistent)
            if hasattr(getattr(link, name, None), "nbytes")
        ]
        self._persistent = {
            id(getattr(link, name)): (path, link, name) for path, link, name in self.persistents
        }
        self._order = {path: at for at, path in enumerate(self._by_path)}
        self._find_arrays(list(self._by_path))

    def _find_arrays(self, paths: Iterable[str]) -> None:
        """Look up the arrays of links' parameters, which may get one while the network runs."""
        for path in paths:
            for param in self._by_path.get(path, ()):
                found = self._by_array.setdefault(id(param.array), [])
                if param.array is not None and not any(known is param for _, known in found):
                    found.append((path, param))

    def _of(self, array: Any) -> list[tuple[str, Any]]:
        """The parameters, with their links' paths, whose array this is."""
        found = () if array is None else self._by_array.get(id(array), ())
        return [(path, param) for path, param in found if param.array is array]

    def kept(self, array: Any) -> tuple[Any, str, str] | None:
        """Where the networks keep an array, if so: parameter or link, attribute, and path."""
        for path, param in self._of(array):
            return param, "array", path
        path, link, name = self._persistent.get(id(array), ("", None, ""))
        return (link, name, path) if link is not None and getattr(link, name) is array else None

    def innermost(self, running: Sequence[Any]) -> str | None:
        """Path of the last of these links that belongs to a network."""
        paths = (self.by_link.get(id(link)) for link in reversed(running))
        return next((path for path in paths if path is not None), None)

    def of_call(self, running: str, arrays: Sequence[Any]) -> str:
        """Path of the link that a call belongs to."""
        # That is the innermost running link, or one below it whose parameters the call takes: link
        # hooks do not fire for link.forward(x) or for functions that are given link.W.
        self._find_arrays([running])
        below = running.rstrip("/") + "/"
        taken = [path for array in arrays for path, _ in self._of(array) if path.startswith(below)]
        return min(taken, key=self._order.__getitem__, default=running)

    def weights(self, arrays: Sequence[Any]) -> set[int]:
        """Which of the arrays are parameters of the networks, by identity."""
        return {id(array) for array in arrays if self._of(array)}


def whole_or_mean(value: float) -> int | float:
    """A whole number as one, and else the number as it is."""
    return int(value) if value == int(value) else value
