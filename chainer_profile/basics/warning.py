"""Warnings to the user, which never become exceptions in the user's code."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable

#: Files between our code and the code that called it.
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PASSED = (_OURS, contextlib.__file__)
#: Lines that were printed in place of warnings.
_printed: set[str] = set()


def warn_user(message: str) -> None:
    """Issue a UserWarning where our code was called from.

    If the warnings filters make it an exception (``python -W error``), print a line on the standard
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
    """A function for one session that warns with a prefix, of each problem once."""
    said: set[str] = set()

    def warn(problem: str) -> None:
        if problem not in said:
            said.add(problem)
            warn_user(f"{prefix}{problem}")

    return warn


def _levels() -> int:
    """The ``stacklevel`` for :func:`warn_user` of the innermost frame that is not ours."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PASSED):
        level, frame = level + 1, frame.f_back
    return level
