"""Which rank of a training died, where what the ranks left tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.record.budget import RUNNING
from chainer_profile.record.journal import KILLED
from chainer_profile.record.recording import COMPLETE, INTERVAL, TIME_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chainer_profile.record.recording import Recording

#: How programs and recordings end in good order.
_IN_ORDER = frozenset({COMPLETE, "exit code 0", "interrupted", INTERVAL, TIME_LIMIT})


def who_died(recordings: Mapping[str, Recording], outcomes: Mapping[str, str]) -> str:
    """Which rank died, as a sentence; empty where none did.

    A rank that fails leaves its error; those that the launcher kills then leave none. Of ranks that
    all were killed, the one whose last iteration is the earliest stopped first.
    """
    ends = {**{name: one.ended for name, one in recordings.items()}, **outcomes}
    killed = [name for name, end in ends.items() if end in (KILLED, RUNNING)]
    failed = {
        name: end for name, end in ends.items() if name not in killed and end not in _IN_ORDER
    }
    # Where an exception ended the program, its recording alone may be complete all the same.
    whole = [name for name in ends if name not in killed and outcomes.get(name) in _IN_ORDER]
    if failed:
        said = "; ".join(f"{name} died: {end}" for name, end in failed.items())
        return f"{said}; {_were(killed)} killed from outside" if killed else said
    if killed and len(killed) + len(whole) == len(ends) and whole:
        return f"{_were(killed)} killed; {', '.join(whole)} came to the end"
    if len(killed) < max(len(ends), 1):
        return ""
    last = {
        name: int(one.iteration.max())
        for name, one in recordings.items()
        if one.iteration is not None and len(one.iteration)
    }
    earliest = min(last.values(), default=0)
    first = [name for name, iteration in last.items() if iteration == earliest]
    if len(last) < len(ends) or len(first) == len(last):
        return "all ranks were killed, and nothing tells which one died first"
    return (
        f"all ranks were killed; {', '.join(first)} stopped first, behind iteration "
        f"{earliest:,d}, the others behind {max(last.values()):,d}"
    )


def _were(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'was' if len(names) == 1 else 'were'}"
