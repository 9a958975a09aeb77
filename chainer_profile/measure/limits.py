"""The cache of what machines can do at best, beside the user's other caches."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import replacing
from chainer_profile.record.recording import MachineLimits
from chainer_profile.record.versioned import build

#: Of the cache of limits; to be raised when they are measured in another way.
_LIMITS_VERSION = 2


def limits_file() -> Path | None:
    """Where the limits of machines are kept; None where the user has no folder for such files.

    By the XDG Base Directory Specification, which passes over a relative ``XDG_CACHE_HOME``.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    return Path(cache, "chainer-profile", "machine.json") if os.path.isabs(cache) else None


def load_limits() -> dict[str, MachineLimits]:
    """The limits that are kept, by their keys; what is damaged or foreign is passed over."""
    path = limits_file()
    if path is None:
        return {}
    try:
        content = json.loads(path.read_bytes())
        if content["version"] != _LIMITS_VERSION:
            return {}
        entries = list(content["limits"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return {}
    return {limits.key: limits for entry in entries for limits in _limits(entry)}


def _limits(entry: Any) -> Iterator[MachineLimits]:
    """Limits from JSON, where they can be what was written."""
    try:
        found = build(MachineLimits, entry)
    except ValueError:
        return
    rates = [value for name, value in vars(found).items() if name.endswith("_per_s")]
    if all(rate is None or 0 < rate < math.inf for rate in rates):
        yield found


def save_limits(limits: MachineLimits) -> None:
    """Keep the limits of a machine, beside those of others that are kept.

    Of two programs that do so at the same moment one may go unheard, but the file stays whole.
    """
    path = limits_file()
    if path is None:
        raise ProfileError("there is no home folder; set XDG_CACHE_HOME to a folder")
    kept = load_limits() | {limits.key: limits}
    content = {"version": _LIMITS_VERSION, "limits": [asdict(entry) for entry in kept.values()]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error
    with replacing(path) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")
