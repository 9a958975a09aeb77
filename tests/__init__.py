"""The tests; their folders are those of the package."""

import os
from pathlib import Path

# Threads of BLAS that wait for one another on busy cores take most of the time; see also pytest -n.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

#: The repository.
ROOT = Path(__file__).parents[1]
#: Seconds after which a process hangs, and is not just slow on a busy machine.
HANGS_S = 240


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """The names in a folder, in order."""
    return sorted(os.listdir(folder))
