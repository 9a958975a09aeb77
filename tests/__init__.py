"""The tests. Their folders mirror the package."""

import os
from pathlib import Path

# Several BLAS threads would wait for one another on busy cores; see also pytest -n.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

#: The repository.
ROOT = Path(__file__).parents[1]
#: Timeout of processes in seconds, long enough for a busy machine.
HANGS_S = 240


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """Names in a folder, sorted."""
    return sorted(os.listdir(folder))
