"""Find the cycle of optimizers in the sequence of all updates."""

import pytest

from chainer_profile.measure.cycles import Limit, find_cycle

#: Cycles by sequence of optimizers. A space is an iteration that an exception left.
CYCLES = {
    "DDDG": (Limit.LAST, "DDDG"),
    "DDDGDDDG": (Limit.LAST, "DDDG"),
    "DGDGD": (Limit.LAST, "DG"),
    "DDGGDDGG": (Limit.LAST, "DDGG"),
    "DDDGDDGDDDGDDG": (Limit.LAST, "DDG"),
    "DGGDGG": (Limit.FIRST, "DGG"),
    "DGG": (Limit.FIRST, "DGG"),
    "DGGDG": (Limit.FIRST, "DGG"),
    "DGEEDGEE": (Limit.FIRST, "DGEE"),
    "DGDDGD": (Limit.COUNT, "DGD"),
    "DD": (Limit.EACH, "D"),
    # An exception has left an iteration.
    "D DGDG": (Limit.LAST, "DG"),
    "D DG": (Limit.LAST, "DG"),
    "DGGD DGGDGG": (Limit.FIRST, "DGG"),
    "D DGEEDGEE": (Limit.FIRST, "DGEE"),
    "D DGEE": (Limit.FIRST, "DGEE"),
    "DD DGDDDGDDDG": (Limit.LAST, "DDDG"),  # the program repeats a failed update
    # Irregular for other reasons.
    "DDGDG": (Limit.LAST, "DG"),
    "DGDGGDGGDGG": (Limit.FIRST, "DGG"),
    # Two trainings, in succession and in alternating epochs.
    "DDDGG": (Limit.EACH, "D"),
    ("D" * 20 + "G" * 20) * 2: (Limit.EACH, "D"),
}


@pytest.mark.parametrize("optimizers", CYCLES)
def test_cycle_of_a_sequence_of_updates(optimizers):
    cycle = find_cycle([tuple(part) for part in optimizers.split()])
    assert (cycle.limit, "".join(cycle.optimizers)) == CYCLES[optimizers]


def test_cycle_is_unknown_until_it_has_repeated():
    assert find_cycle([("D", "G")], must=False) is None
    assert find_cycle([("D", "G") * 2], must=False) == find_cycle([("D", "G")])


def test_cycle_after_an_irregular_start_is_known_after_three_repeats():
    assert find_cycle([tuple("DDGDG")], must=False) is None
    assert find_cycle([tuple("DDGDGDG")], must=False) == find_cycle([("D", "G")])
