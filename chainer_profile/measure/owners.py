"""Whose a call is: the links of the networks, by their paths, and their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chainer_profile.basics.paths import joined, link_of
from chainer_profile.record.recording import LinkCalls


class Owners:
    """The links and parameters that calls may belong to.

    Args:
        roots: The networks, each with what is put before the paths of its links.
    """

    def __init__(self, roots: Sequence[tuple[str, Any]]) -> None:
        self._paths: dict[int, tuple[str, Any]] = {}
        self._params: list[tuple[str, Any]] = []
        for prefix, root in roots:
            for path, link in root.namedlinks():
                # A shared link goes by its first path.
                self._paths.setdefault(id(link), (joined(prefix, path), link))
            # Those without an array may get one while the network runs.
            self._params += [
                (joined(prefix, link_of(path)), param) for path, param in root.namedparams()
            ]

    def innermost(self, running: Sequence[Any]) -> str | None:
        """Path of the last of these links that belongs to a network."""
        for link in reversed(running):
            found = self._paths.get(id(link))
            if found is not None:
                return found[0]
        return None

    def of_call(self, running: str, arrays: Sequence[Any]) -> str:
        """Path of the link that a call belongs to.

        That is the innermost running link, or one below it whose parameters the call takes: link
        hooks do not fire for ``link.forward(x)`` or for functions that are given ``link.W``.

        Args:
            running: Path of the innermost running link.
            arrays: What the call takes.
        """
        below = running.rstrip("/") + "/"
        taken = {id(array) for array in arrays if array is not None}
        for path, param in self._params:
            if path.startswith(below) and id(param.array) in taken:
                return path
        return running

    def parameters(self, path: str) -> tuple[Any, ...]:
        """The arrays of the parameters of the link at a path."""
        arrays = tuple(param.array for of, param in self._params if of == path)
        return tuple(array for array in arrays if array is not None)

    def split(self, arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Arrays that are no parameters of the networks, and those that are; each array once."""
        known = {id(param.array) for _, param in self._params}
        once = {id(array): array for array in arrays if array is not None}
        return (
            [array for identity, array in once.items() if identity not in known],
            [array for identity, array in once.items() if identity in known],
        )

    def link_calls(self, calls: dict[int, int]) -> list[LinkCalls]:
        """The links, with how often each was called.

        Args:
            calls: Number of calls by the links' identities.
        """
        own = dict.fromkeys(self._paths, 0)
        seen = set[int]()
        for identity, (_, link) in self._paths.items():
            for name, param in link.namedparams(include_uninit=False):
                # One of its own: a child's are named /child/W. A shared one is the first link's.
                if name.count("/") == 1 and id(param) not in seen:
                    seen.add(id(param))
                    own[identity] += int(param.size)
        return [
            LinkCalls(path, type(link).__name__, calls.get(identity, 0), own[identity])
            for identity, (path, link) in self._paths.items()
        ]
