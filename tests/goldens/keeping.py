"""What the goldens keep."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

#: Contents of files by the end of their names.
Kept = dict[str, str]
#: What makes the files of a name.
KEPT: dict[str, Callable[[], Kept]] = {}


def of_files(make: Callable[[], Kept]) -> Callable[[], Kept]:
    """Keep what a function of this name makes."""
    KEPT[make.__name__] = make
    return make


def listed(said: Callable[[Any], Iterable[str]] = iter) -> Callable[..., Any]:
    """Keep the cases that a function of this name makes, and below each what is said of it."""

    def keep(cases: Callable[[], Mapping[str, Any]]) -> Callable[[], Mapping[str, Any]]:
        def written() -> Kept:
            lines = {name: list(said(case)) or ["nothing"] for name, case in cases().items()}
            return {"txt": "".join("\n".join([f"-- {name}", *lines[name], ""]) for name in lines)}

        KEPT[cases.__name__] = written
        return cases

    return keep
