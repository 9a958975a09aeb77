"""The tests; their folders are those of the package."""

from pathlib import Path

#: The repository.
ROOT = Path(__file__).parents[1]
#: Seconds after which a process hangs, and is not just slow on a busy machine.
HANGS_S = 600
