"""Paths of links, as ``namedlinks()`` gives them: ``/`` for the network, ``/res2/0/conv1``.

A path without a slash (``loss``, ``optimizer``) is outside of the network, and by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def links_to(path: str) -> list[str]:
    """A link and all links above it, outermost first: ``/``, ``/a``, ``/a/b``."""
    if not path.startswith("/") or path == "/":
        return [path]
    places = [at for at, char in enumerate(path) if char == "/"]
    return ["/", *(path[:end] for end in [*places[1:], len(path)])]


def above(path: str) -> str | None:
    """The link above a path; None for the network and for what is outside of it."""
    chain = links_to(path)
    return chain[-2] if len(chain) > 1 else None


def links_below(path: str, holder: str) -> list[str]:
    """The links that lead to a path from a call at another: of ``/a/b`` at ``/a``, ``/a/b``."""
    chain = links_to(path)
    return chain[common_length(chain, links_to(holder)) :]


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The number of items that two lists share at their begin."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def truncate(path: str, depth: int) -> str:
    """A path up to so many names: ``/res2/0`` of ``/res2/0/conv1`` for 2."""
    return links_to(path)[: depth + 1][-1]


def depth_first(paths: Iterable[str]) -> list[str]:
    """Each path once, before the paths below it; siblings in the order of their first path."""
    once = dict.fromkeys(paths)
    # A path sorts by the places of all above it in that order.
    place: dict[str, int] = {}
    for path in once:
        for link in links_to(path):
            place.setdefault(link, len(place))
    return sorted(once, key=lambda path: [place[link] for link in links_to(path)])


def joined(prefix: str, path: str) -> str:
    """Path of a link with something before it: ``/main`` for the network itself."""
    return prefix + path if path != "/" else prefix or "/"


def link_of(param_path: str) -> str:
    """Path of the link that a parameter belongs to: ``/conv1`` for ``/conv1/W``."""
    return above(param_path) or "/"
