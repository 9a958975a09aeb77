"""The folders of a training's ranks: ``rank-0``, ``rank-1``, ... below that of the profile."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.record.budget import read_budget
from chainer_profile.runs.folder import load_run

if TYPE_CHECKING:
    from pathlib import Path

    from chainer_profile.record.recording import Recording

_PREFIX = "rank-"


def read_ranks(folder: Path) -> tuple[dict[str, Recording], list[str], dict[str, str]]:
    """The recordings of all ranks by the names of their folders, and what cannot be read.

    Behind the recordings comes a line for each that is missing or damaged, and how the ranks'
    programs ended, as far as their budgets tell.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    places = {
        int(number): place
        for place in folder.iterdir()
        if (number := place.name.removeprefix(_PREFIX)).isdecimal()
        and place.name == f"{_PREFIX}{int(number)}"
    }
    if not places:
        below = sorted(folder.glob(f"*/{_PREFIX}0"))
        hint = f"; {below[0].parent} does" if below else ""
        raise UsageError(f"{folder}: holds no folders {_PREFIX}0, {_PREFIX}1, ... of ranks{hint}")
    found, problems, outcomes = {}, [], {}
    for _, place in sorted(places.items()):
        try:
            found[place.name] = load_run(place)
        except ProfileError as error:
            said = str(error).removeprefix(f"{place}: ").replace(f"{place}/", "")
            problems.append(f"{place.name}: {said}")
        with suppress(ProfileError):  # the report of the rank itself says it
            if budget := read_budget(place):
                outcomes[place.name] = budget.outcome
    return found, problems, outcomes
