"""Which rank died: what the endings of the ranks tell, and what they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.ranks import training
from chainer_profile.ranks.merging import who_died
from chainer_profile.record.budget import RUNNING
from chainer_profile.record.journal import KILLED
from chainer_profile.record.recording import COMPLETE, TIME_LIMIT

RANKS = training(3, iterations=4)
BAD = "ValueError: a batch is bad"


@pytest.mark.parametrize(
    ("ended", "outcomes", "said"),
    [
        ([COMPLETE] * 3, {}, ""),
        ([TIME_LIMIT] * 3, {"rank-0": COMPLETE}, ""),
        ([COMPLETE] * 3, dict.fromkeys(RANKS, "interrupted"), ""),
        # A program's error is not in its recording, and a rank may have none at all.
        (
            [KILLED, COMPLETE, KILLED],
            {"rank-0": RUNNING, "rank-1": BAD},
            f"rank-1 died: {BAD}; rank-0, rank-2 were killed from outside",
        ),
        (
            [KILLED, KILLED, KILLED],
            {"rank-9": "exit code 3"},
            "rank-9 died: exit code 3; rank-0, rank-1, rank-2 were killed from outside",
        ),
        (["failed: full", COMPLETE, COMPLETE], {}, "rank-0 died: failed: full"),
        (
            [COMPLETE, KILLED, COMPLETE],
            {"rank-0": COMPLETE, "rank-1": RUNNING, "rank-2": "exit code 0"},
            "rank-1 was killed; rank-0, rank-2 came to the end",
        ),
        ([COMPLETE, KILLED, COMPLETE], {}, ""),
        ([KILLED] * 3, {}, "all ranks were killed, and nothing tells which one died first"),
    ],
)
def test_what_the_endings_tell(ended: list[str], outcomes: dict[str, str], said: str) -> None:
    recordings = {
        name: replace(one, ended=end) for (name, one), end in zip(RANKS.items(), ended, strict=True)
    }
    assert who_died(recordings, outcomes) == said


def test_of_killed_ranks_the_earliest_last_iteration_tells() -> None:
    recordings = {
        name: replace(one, ended=KILLED, iteration=np.arange(4) + (0 if name == "rank-1" else 1000))
        for name, one in RANKS.items()
    }
    assert who_died(recordings, {}) == (
        "all ranks were killed; rank-1 stopped first, behind iteration 3, the others behind 1,003"
    )
