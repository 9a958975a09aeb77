"""How much memory this process takes, and took at its most; known on Linux."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

from chainer_profile.basics.free_memory import status_nbytes

_REFERENCES = Path("/proc/self/clear_refs")


class Growth:
    """By how much the process grows from here on, at its most after :meth:`settle`."""

    def __init__(self) -> None:
        _give_back()
        self._before = status_nbytes("VmRSS")

    def settle(self) -> None:
        """Let what was needed for a while only count for nothing."""
        _give_back()
        try:
            _REFERENCES.write_text("5")  # the most is what there is now
        except OSError:
            self._before = None  # the most would be that of what went before

    def nbytes(self) -> int | None:
        """Bytes; None where the system does not tell."""
        most = status_nbytes("VmHWM")
        return None if self._before is None or most is None else max(0, most - self._before)


def _give_back() -> None:
    """Give memory that nobody uses any more back to the system, where the C library can."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
