"""Whose a call is: the links of the networks, by their paths, and their parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import ref

from chainer_profile.basics.paths import above, joined, link_of
from chainer_profile.record.recording import LinkCalls

#: Whether none of some arrays, by identity, is a parameter's.
IsForeign = Callable[[Iterable[int]], bool]


class Place(dict[Any, int]):
    """A link in a phase, or what is outside of all links: entries of its calls, by their keys."""

    __slots__ = ("calls", "is_foreign", "of_path", "outside", "path", "phase")
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__

    def __init__(
        self,
        path: str = "/",
        phase: str = "",
        is_foreign: IsForeign | None = None,
        outside: bool = False,
        of_path: dict[Any, int] | None = None,
        calls: Counter[str] | None = None,
    ) -> None:
        super().__init__()
        #: The calls of all links of the networks, by path.
        self.calls: Counter[str] = Counter() if calls is None else calls
        self.path, self.phase, self.outside = path, phase, outside
        #: Where its calls may take parameters of links below it: tells whether they take none.
        self.is_foreign = is_foreign
        #: All entries of the path: of a copy of the link too, and before they are to be found fast.
        self.of_path: dict[Any, int] = {} if of_path is None else of_path


class Paths:
    """The paths of the links of networks, and whose their parameters are."""

    def __init__(self, roots: Sequence[tuple[str, Any]]) -> None:
        self.by_link: dict[int, str] = {}
        #: Calls of links, by path.
        self.calls: Counter[str] = Counter()
        # Links that hold others: calls of theirs may take parameters of those.
        self.holders = {"/", "loss"}
        self._places: dict[str, dict[int, Place]] = {}
        self._by_path: dict[tuple[str, str, bool], Place] = {}
        self._of_paths: dict[tuple[str, str], dict[Any, int]] = {}
        #: The arrays of parameters, with the path of their link: of a shared one the first.
        self.weights: dict[int, tuple[str, Any]] = {}
        self._is_foreign: IsForeign = self.weights.keys().isdisjoint
        self._params: list[tuple[Any, Any]] = []
        self._n_links = 0
        self._links: dict[int, ref[Any]] = {}
        self._roots: dict[str, ref[Any]] = {}
        self.renew(roots)
        #: Where functions are called outside of all links, and the places of links then.
        self.outside = self.place("/", "forward", outside=True)
        self.forward = self.places("forward")

    def renew(self, roots: Sequence[tuple[str, Any]]) -> None:
        """Know the networks that are there now, such as a copy that takes another's place."""
        for prefix, root in roots:
            before = self._roots.get(prefix)
            if before is None or before() is not root:
                self._add(prefix, root)

    def know_parameters(self) -> None:
        """Know the arrays that are there now, where any is another than before."""
        n_links = len(self.by_link)
        if n_links == self._n_links and all(param.array is was for param, was in self._params):
            return
        self._n_links = n_links
        params = list(self.params())
        self._params = [(param, param.array) for _, param in params]
        self.weights.clear()
        self.weights.update(
            (id(param.array), (path, param))
            for path, param in reversed(params)
            if param.array is not None
        )

    def _add(self, prefix: str, root: Any) -> None:
        self._roots[prefix] = ref(root)
        for path, link in root.namedlinks():
            key = id(link)
            if key not in self.by_link:  # a shared link goes by its first path
                self.by_link[key] = full_path = joined(prefix, str(path))
                holder = above(full_path) or "/"
                if holder not in self.holders:
                    self.holders.add(holder)
                    for place in self._all_places():
                        if place.path == holder:
                            place.is_foreign = self._is_foreign
                self._links[key] = ref(link, partial(self._forget, key))
                for phase, places in self._places.items():
                    places[key] = self._place(full_path, phase)

    def _forget(self, key: int, link: ref[Any]) -> None:
        if self._links.get(key) is link:
            del self._links[key], self.by_link[key]
            for places in self._places.values():
                del places[key]

    def places(self, phase: str) -> dict[int, Place]:
        """The links' places in a phase, by identity of the link."""
        places = self._places.get(phase)
        if places is None:
            places = self._places[phase] = {
                key: self._place(path, phase) for key, path in self.by_link.items()
            }
        return places

    def place(self, path: str, phase: str, outside: bool = False) -> Place:
        """The place of a path: on request outside of all links, ``/``, or ``loss`` in a loss."""
        key = path, phase, outside
        place = self._by_path.get(key)
        if place is None:
            place = self._by_path[key] = self._place(path, phase, outside)
        return place

    def _place(self, path: str, phase: str, outside: bool = False) -> Place:
        of_path = self._of_paths.setdefault((path, phase), {})
        is_foreign = self._is_foreign if path in self.holders else None
        return Place(path, phase, is_foreign, outside, of_path, self.calls)

    def link_at(self, place: Place) -> int:
        """Identity of the link at a place; 0 outside of all, -1 if it is not known."""
        places = self.places(place.phase).items()
        return 0 if place.outside else next((key for key, at in places if at is place), -1)

    def _all_places(self) -> Iterator[Place]:
        yield from self._by_path.values()
        for places in self._places.values():
            yield from places.values()

    def alive(self) -> list[Any]:
        links = (reference() for reference in list(self._links.values()))
        return [link for link in links if link is not None]

    def adopt(self, link: Any, holder: str) -> str:
        """Path of a link that is of no network here: below another, by the name of its class."""
        # One that is gone leaves its path to the next one of its class.
        first = prefix = f"{holder.rstrip('/')}/{type(link).__name__}"
        number = 1
        while (other := self._roots.get(prefix)) is not None and other() is not None:
            number += 1
            prefix = f"{first}-{number}"
        self._add(prefix, link)
        return self.by_link[id(link)]

    def owner(self, path: str, arrays: Sequence[Any], outside: bool = False) -> str:
        """Path of the link that a call at a path belongs to, which may be outside of all links."""
        # That is the one there, or one below it whose parameters the call takes: no call of a link
        # tells of link.forward(x), or of functions that are given link.W.
        below = "/" if outside else path.rstrip("/") + "/"
        for array in arrays:
            owner, param = self.weights.get(id(array), ("/", None))
            if owner != "/" and owner.startswith(below) and param.array is array:
                return owner
        return path

    def parameter_id(self, arrays: Sequence[Any]) -> int:
        """Identity of the last array of a call where that is a parameter's, and else 0."""
        identity = id(arrays[-1]) if arrays else 0
        return identity if identity in self.weights else 0

    def params(self) -> Iterator[tuple[str, Any]]:
        """Every parameter, with the path of its link."""
        for prefix, reference in self._roots.items():
            root = reference()
            for path, param in () if root is None else root.namedparams():
                yield joined(prefix, link_of(path)), param

    def parameters(self, path: str) -> tuple[Any, ...]:
        arrays = (param.array for of, param in self.params() if of == path)
        return tuple(array for array in arrays if array is not None)

    def links(self, iterations: int) -> tuple[LinkCalls, ...]:
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
                whole_or_mean(self.calls[path] / iterations),
                own.get(path, 0),
            )
            for link in self.alive()
        )


def whole_or_mean(value: float) -> int | float:
    """A whole number as one, and else the number as it is."""
    return int(value) if value == int(value) else value
