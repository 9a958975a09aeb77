"""Paths that show whether a file belongs to the profiler, a library or Chainer."""

from __future__ import annotations

import os
import sysconfig

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LIBRARIES = tuple(
    path + os.sep
    for path in dict.fromkeys(map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
)
#: The paths of Chainer's files begin with these. Other paths may contain its name, too.
CHAINER = tuple(f"{path}chainer{os.sep}" for path in LIBRARIES)
