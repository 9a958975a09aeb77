"""Child processes that end when this process ends, even if it is killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

#: Asks Linux to send SIGKILL when the parent ends, checks that it has not ended yet, and then
#: executes the command.
_LAUNCHER = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(137);os.execv(sys.argv[2],sys.argv[2:])"
)


def killed_with_parent(command: Sequence[str]) -> list[str]:
    """Wrap a command so that Linux kills its process when the thread that starts it ends.

    Other systems get the command unchanged.
    """
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
