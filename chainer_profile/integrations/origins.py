"""Where code comes from: the profiler, a library, Chainer, or else the program."""

from __future__ import annotations

import os
import sysconfig

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LIBRARIES = tuple(
    path + os.sep
    for path in dict.fromkeys(map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
)
#: A part of the paths of Chainer's files.
CHAINER = f"{os.sep}chainer{os.sep}"
