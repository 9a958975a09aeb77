"""How names of columns are chosen on the command line, the same in all commands."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from chainer_profile.basics.errors import UsageError

_MAX_WRONG = 3
_MAX_NAME = 40


def split_names(text: str) -> list[str]:
    """The names in ``a, b,c``."""
    return [name.strip() for name in text.split(",")]


def choose_names(
    names: Sequence[str], known: Collection[str], table: str, also: Collection[str] = ()
) -> tuple[str, ...]:
    """The columns asked for, each of them once."""
    unknown = [name for name in names if name not in known and name not in also]
    if unknown or not names:
        wrong = ", ".join(with_nearest(name, known) for name in unknown[:_MAX_WRONG])
        raise UsageError(
            f"unknown column of {table}: {wrong or 'none given'}; known are {', '.join(known)}"
        )
    return tuple(dict.fromkeys(names))


def with_nearest(name: str, known: Collection[str]) -> str:
    """A mistyped name in quotes, and the nearest of those that there are, if one is near."""
    shown = ascii(name[:_MAX_NAME]) if not name.isprintable() else repr(name[:_MAX_NAME])
    nearest = difflib.get_close_matches(name.lower()[:_MAX_NAME], known, n=1)
    return f"{shown} (did you mean {nearest[0]}?)" if nearest else shown
