"""The tests; their folders are those of the package."""

from pathlib import Path

#: The repository.
ROOT = Path(__file__).parents[1]
