"""How much memory this process takes, and took at its most; known on Linux."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

_STATUS, _REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Growth:
    """By how much the process grows from here on, at its most after :meth:`settle`."""

    def __init__(self) -> None:
        _give_back()
        self._before = _nbytes("VmRSS")

    def settle(self) -> None:
        """Let what was needed for a while only count for nothing."""
        _give_back()
        try:
            _REFERENCES.write_text("5")  # the most is what there is now
        except OSError:
            self._before = None  # the most would be that of what went before

    def nbytes(self) -> int | None:
        """Bytes; None where the system does not tell."""
        most = _nbytes("VmHWM")
        return None if self._before is None or most is None else max(0, most - self._before)


def _nbytes(name: str) -> int | None:
    with suppress(OSError, ValueError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _give_back() -> None:
    """Give memory that nobody uses any more back to the system, where the C library can."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
