"""Paths of links as ``namedlinks()`` names them: ``/`` is the network, ``/res2/0/conv1`` a link.

A path without a slash (``loss``, ``optimizer``) is outside the network, and has no links above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def links_to(path: str) -> list[str]:
    """Paths from the network to a link: ``/``, ``/a`` and ``/a/b`` for ``/a/b``."""
    if not path.startswith("/") or path == "/":
        return [path]
    slashes = [index for index, char in enumerate(path) if char == "/"]
    return ["/", *(path[:end] for end in [*slashes[1:], len(path)])]


def above(path: str) -> str | None:
    """Path of the link above; None for the network and for a path outside it."""
    chain = links_to(path)
    return chain[-2] if len(chain) > 1 else None


def links_below(path: str, holder: str) -> list[str]:
    """Paths of the links from below ``holder`` down to ``path``.

    ``/a/b`` and ``/a/b/c`` for ``/a/b/c`` below ``/a``.
    """
    chain = links_to(path)
    return chain[common_length(chain, links_to(holder)) :]


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common prefix of two lists."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def truncate(path: str, depth: int) -> str:
    """Shorten a path to ``depth`` names: ``/res2/0/conv1`` to ``/res2/0`` for a depth of 2."""
    return links_to(path)[: depth + 1][-1]


def depth_first(paths: Iterable[str]) -> list[str]:
    """Sort paths depth-first, without duplicates; siblings are in the order of their first path."""
    distinct = dict.fromkeys(paths)
    first_seen: dict[str, int] = {}
    for path in distinct:
        for link in links_to(path):
            first_seen.setdefault(link, len(first_seen))
    return sorted(distinct, key=lambda path: [first_seen[link] for link in links_to(path)])


def joined(prefix: str, path: str) -> str:
    """Put a prefix before the path of a link; the prefix alone is the network's path."""
    return prefix + path if path != "/" else prefix or "/"


def link_of(param_path: str) -> str:
    """Path of the link that a parameter belongs to: ``/conv1`` for ``/conv1/W``."""
    return above(param_path) or "/"
