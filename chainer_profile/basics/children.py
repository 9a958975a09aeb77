"""Processes that this program starts end when it ends, however that happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

#: Asks Linux to kill the process when its parent ends, then becomes the program of the command.
_BOUND = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(137);os.execv(sys.argv[2],sys.argv[2:])"
)


def killed_with_parent(command: Sequence[str]) -> list[str]:
    """A command whose process Linux kills when the thread that starts it ends, or this process."""
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), *command]
