"""Kinds of trials: what is known, what waits, and that nothing is lost between."""

from __future__ import annotations

from itertools import count

import chainer
import pytest

from chainer_profile.measure import variants as module
from chainer_profile.measure.events import TimedTrial
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.measure.variants import Variants
from tests.nets import LongWait, Wait, image


def structure_of(clock, *durations, kind=Wait):
    """The structure of a network that waits so often."""

    def forward(x):
        for duration in durations:
            (x,) = kind(clock, duration).apply((x,))
        return x

    step = ForwardStep(chainer.Sequential(forward), (image(),))
    with step.configured():
        return learn_structure(step)


@pytest.fixture
def trial():
    numbers = count()
    return lambda: TimedTrial(next(numbers), 9, 0, 0, None)


class TestVariants:
    def test_a_trial_is_of_its_kind(self, clock, trial):
        one, two = structure_of(clock, 3), structure_of(clock, 3, 4)
        variants = Variants([one, two])
        for structure, number in ((two, 1), (one, 0), (two, 1)):
            known = variants.add(trial(), structure.log)
            assert known is not None
            assert known.variant == number
            assert len(known.times_ns) == len(structure.layers)
        assert variants.difference == ""

    def test_what_is_known_is_not_learned_again(self, clock):
        variants = Variants([structure_of(clock, 3)])
        assert variants.learn(structure_of(clock, 3)) == []
        assert len(variants.structures) == 1

    def test_a_trial_waits_for_its_kind(self, clock, trial):
        one, other = structure_of(clock, 3), structure_of(clock, 3, kind=LongWait)
        variants, waits = Variants([one]), trial()
        assert variants.add(waits, other.log) is None
        assert variants.waits(waits)
        assert variants.difference == "call 0 was LongWait, and Wait in the first trial"
        (known,) = variants.learn(other)
        assert (known.variant, known.trial) == (1, waits)
        assert not variants.waiting

    def test_a_kind_that_is_not_that_of_those_that_wait(self, clock, trial):
        variants, waits = Variants([structure_of(clock, 3)]), trial()
        variants.add(waits, structure_of(clock, 3, kind=LongWait).log)
        assert variants.learn(structure_of(clock, 3, 4)) == []
        assert [one for one, _ in variants.waiting] == [waits]

    def test_without_any_structure_every_trial_waits(self, clock, trial):
        variants, waits = Variants(), trial()
        assert variants.add(waits, structure_of(clock, 3).log) is None
        assert variants.waits(waits)
        assert variants.difference == ""

    def test_there_are_limits(self, clock, trial, monkeypatch):
        monkeypatch.setattr(module, "MOST_VARIANTS", 2)
        monkeypatch.setattr(module, "MOST_WAITING", 1)
        variants = Variants([structure_of(clock, 3)])
        first, second = trial(), trial()
        log = structure_of(clock, 3, 3, 3).log
        variants.add(first, log)
        variants.add(second, log)
        assert not variants.waits(second)
        variants.learn(structure_of(clock, 3, 3))
        assert variants.full
        assert variants.learn(structure_of(clock, 3, 3, 3)) == []
        third = trial()
        variants.add(third, log)
        assert not variants.waits(third)
