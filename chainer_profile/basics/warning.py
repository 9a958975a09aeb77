"""Warnings to the user, which never become exceptions in the user's code."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Beginnings of the paths of files that are not the user's code.
_SKIPPED = (_OURS, contextlib.__file__)
#: Messages that were printed instead of warnings.
_printed: set[str] = set()


def warn_user(message: str) -> None:
    """Issue a UserWarning at the line that called our code.

    If the warnings filters make it an exception (``python -W error``), print it on the standard
    error instead, each message once.
    """
    try:
        warnings.warn(message, stacklevel=_levels())
    except Exception:
        if message not in _printed:
            _printed.add(message)
            with contextlib.suppress(Exception):
                print("chainer-profile:", *message.split(), file=sys.stderr, flush=True)


def warner(prefix: str = "") -> Callable[[str], None]:
    """Make a function that issues each warning once, with a prefix."""
    issued: set[str] = set()

    def warn(problem: str) -> None:
        if problem not in issued:
            issued.add(problem)
            warn_user(f"{prefix}{problem}")

    return warn


def _levels() -> int:
    """Find the ``stacklevel`` for :func:`warn_user`: the innermost frame of the user's code."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        level, frame = level + 1, frame.f_back
    return level
