"""Registry of the golden files."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

#: Contents of files by file extension.
Kept = dict[str, str]
#: Functions that make the golden files, by name.
KEPT: dict[str, Callable[[], Kept]] = {}


def kept_files(make: Callable[[], Kept]) -> Callable[[], Kept]:
    """Register a function; its name is the name of its files."""
    KEPT[make.__name__] = make
    return make


def listed(describe: Callable[[Any], Iterable[str]] = iter) -> Callable[..., Any]:
    """Register a function that makes cases; its file lists each case and the lines about it."""

    def keep(cases: Callable[[], Mapping[str, Any]]) -> Callable[[], Mapping[str, Any]]:
        def written() -> Kept:
            lines = {name: list(describe(case)) or ["nothing"] for name, case in cases().items()}
            return {"txt": "".join("\n".join([f"-- {name}", *lines[name], ""]) for name in lines)}

        KEPT[cases.__name__] = written
        return cases

    return keep
