"""Programs whose iterations take known times, and what their changes are told to bring."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.advice.changes import UNCHANGED, PlannedChanges
from chainer_profile.advice.interleaved import BLOCK_NS, WARM_UP, InterleavedExperiment
from chainer_profile.analyse.findings import Change

MS = 1_000_000
SINGLE = Change(threads=1)
ENTRIES = ("type_check", "autotune", "cudnn_fast_batch_normalization")
FAST, USELESS, THIRD = (Change(config=(name,)) for name in ENTRIES)
BROKEN, KEEPING = Change(kernels="torch"), Change(keep_memory=True)


class Program:
    """Iterations of random times, and of random lengths where these are asked for.

    ``speed`` gives how many times as fast an iteration is by the change that is on and its number,
    ``loss`` its loss by that change.
    """

    def __init__(self, seed=0, takes_ms=20, noise=0.1, lengths=False, speed=None, loss=None):
        self.takes_ms, self.noise, self.lengths = takes_ms, noise, lengths
        self.speed, self.loss, self.draw = speed, loss, np.random.default_rng(1000 + seed)
        self.rng = np.random.default_rng(seed)
        self.now, self.work, self.switches = UNCHANGED, np.zeros(3), 0
        self.on = []  # the change of each iteration

    @contextmanager
    def switch(self, change, guard):
        assert self.now is UNCHANGED
        self.now = replace(change)
        self.switches += 1
        yield
        self.now = UNCHANGED

    def run(self, iterations, threads=(), others=(), last=(), measured=True, **more):
        """What came of each change, by that and by what it is held against."""
        work = {"work": self.work.copy} if measured else {}
        experiment = InterleavedExperiment(
            PlannedChanges(threads, others, last), self.switch, draw=self.draw, **work, **more
        )
        drift = 0.0
        for number in range(1, iterations + 1):
            drift = 0.99 * drift + self.rng.normal(0, 0.04)
            length = self.rng.integers(1, 40) / 20 if self.lengths else 1.0
            experiment.begin()
            self.on.append(self.now)
            speed = self.speed(self.now, number) if self.speed else 1.0
            ms = self.takes_ms * length * np.exp(drift) * self.rng.lognormal(0, self.noise) / speed
            if self.loss:
                experiment.note_loss(np.array(self.loss(self.now) + self.rng.normal(0, 0.1)))
            self.work += (30 * length, 1e6 * length, 5e5)
            experiment.end(int(ms * MS))
        experiment.close()
        assert self.now is UNCHANGED
        return results(experiment)


def results(experiment):
    return {
        (tried.candidate.change, tried.candidate.against): tried for tried in experiment.tried()
    }


def gains(change, factor):
    return lambda now, number: factor if set(change.config) <= set(now.config) else 1.0


def test_a_useless_change_is_seldom_told_as_a_gain_and_one_that_helps_within_its_interval():
    held = wrong = 0
    widths = []
    for seed in range(40):
        tried = Program(seed, speed=gains(FAST, 1.3)).run(400, others=[USELESS, FAST])
        useless, fast = tried[USELESS, UNCHANGED], tried[FAST, UNCHANGED]
        wrong += useless.helps
        held += fast.wall.low <= 1.3 <= fast.wall.high
        widths.append(np.log(fast.wall.high / fast.wall.low))
        assert fast.helps
    assert wrong <= 2
    assert held >= 36
    # Pairs in rounds cancel the machine's drift.
    assert np.median(widths) < 0.1


def test_slow_iterations_among_others_count():
    def speed(now, number):
        return 0.5 if now == THIRD and number % 3 == 0 else 1.0

    # Every third iteration takes twice as long: 4/3 of the time, whose median is as it was.
    for takes_ms in (20, 80):
        tried = Program(takes_ms=takes_ms, speed=speed).run(600, others=[THIRD])
        slower = tried[THIRD, UNCHANGED].wall
        assert slower.high < 1
        assert slower.factor == pytest.approx(0.75, abs=0.06)


def test_lengths_that_differ_are_within_the_interval_which_their_work_narrows():
    widths = []
    for measured in (True, False):
        held, width = 0, []
        for seed in range(20):
            program = Program(seed, 150, lengths=True, speed=gains(FAST, 1.3))
            fast = program.run(150, others=[FAST], measured=measured)[FAST, UNCHANGED].wall
            held += fast.low <= 1.3 <= fast.high
            width.append(np.log(fast.high / fast.low))
        assert held >= 17
        widths.append(np.median(width))
    assert widths[0] < widths[1] / 2


def test_rounds_have_a_block_of_each_variant_in_an_order_that_is_drawn():
    program = Program(noise=0)
    program.run(2000, others=[USELESS, FAST])
    blocks = [UNCHANGED]
    for change in program.on[WARM_UP:]:
        if change != blocks[-1]:
            blocks.append(change)
    assert set(program.on[:WARM_UP]) == {UNCHANGED}
    rounds = [tuple(blocks[at : at + 3]) for at in range(0, 30, 3)]
    assert len(set(rounds)) > 2
    counts = [program.on.count(change) for change in (UNCHANGED, USELESS, FAST)]
    assert min(counts) > 0.25 * sum(counts)
    # A block is longer in a long program.
    assert program.switches < 2000 * 20 * MS / BLOCK_NS / 2


def test_the_first_short_iteration_behind_a_switch_does_not_count():
    before = [UNCHANGED]

    def speed(now, number):
        before.append(now)
        return 0.1 if before[-2] != now == FAST else 1.0

    fast = Program(noise=0, speed=speed).run(400, others=[FAST])[FAST, UNCHANGED]
    assert fast.wall.factor == pytest.approx(1, abs=0.02)


def test_the_luck_of_the_rounds_that_chose_a_change_does_not_count():
    def speed(now, number):
        return 2.0 if now == FAST and number < 100 else 1.0

    fast = Program(noise=0.02, speed=speed).run(1500, others=[FAST])[FAST, UNCHANGED]
    assert fast.wall.factor == pytest.approx(1, abs=0.02)


def test_threads_come_first_the_others_beside_them_and_what_lasts_at_the_end():
    def speed(now, number):
        # With the threads as they are it is no faster.
        return 1 if not now.threads else 6 if FAST.config[0] in now.config else 3

    program = Program(1, speed=speed, takes_ms=60)
    tried = program.run(1500, threads=[SINGLE], others=[USELESS, FAST], last=[KEEPING])
    beside, both = SINGLE.with_(FAST), SINGLE.with_(FAST).with_(KEEPING)
    for change, against, factor in (
        (SINGLE, UNCHANGED, 3),
        (beside, SINGLE, 2),
        (beside, UNCHANGED, 6),
    ):
        assert tried[change, against].wall.factor == pytest.approx(factor, rel=0.15)
    # Memory that is kept changes nothing, and the whole is not told with it.
    assert tried[both, beside].wall.factor == pytest.approx(1, rel=0.15)
    assert (both, UNCHANGED) not in tried
    first = {change: program.on.index(change) for change in (SINGLE, SINGLE.with_(USELESS), both)}
    assert list(first) == sorted(first, key=first.get)


def test_a_program_whose_end_is_known_comes_to_all_stages():
    program = Program(speed=gains(FAST, 2))
    known_end = {"progress": lambda: len(program.on) / 300}
    tried = program.run(300, others=[USELESS, FAST], last=[KEEPING], **known_end)
    assert (FAST.with_(KEEPING), FAST) in tried


def test_losses_of_both_are_compared():
    def loss_of(change, seed=0, **losses):
        program = Program(seed, loss=lambda now: losses["other" if now == change else "own"])
        return program.run(600, others=[USELESS, FAST])[change, UNCHANGED].loss

    higher = loss_of(FAST, own=2.0, other=2.2)
    assert higher.differs
    assert higher.part == pytest.approx(0.1, abs=0.02)
    same = loss_of(USELESS, own=2.0, other=2.0, seed=1)
    assert not same.differs
    assert abs(same.part) < 0.02
    assert same.high - same.part < 0.03
    assert loss_of(FAST, own=2.0, other=np.nan).differs
    assert Program().run(200, others=[FAST])[FAST, UNCHANGED].loss is None


def test_a_change_that_cannot_be_switched_on_is_out():
    program = Program()
    switch = program.switch

    def fails(change, guard):
        if change == BROKEN:
            raise ImportError("no such kernels")
        return switch(change, guard)

    program.switch = fails
    tried = program.run(400, others=[BROKEN, USELESS])
    broken, useless = tried[BROKEN, UNCHANGED], tried[USELESS, UNCHANGED]
    assert (broken.error, broken.wall) == ("ImportError: no such kernels", None)
    assert useless.pairs > 5


def test_a_method_that_raises_gives_way_to_the_one_it_replaces():
    calls, methods = [], [abs]

    def fails(x):
        calls.append(x)
        raise MemoryError("too large")

    @contextmanager
    def switch(change, guard):
        methods.append(guard(lambda stock: fails)(abs) if change == BROKEN else abs)
        yield
        methods.pop()

    experiment = InterleavedExperiment(PlannedChanges(others=[BROKEN, USELESS]), switch)
    for _ in range(100):
        experiment.begin()
        with pytest.raises(TypeError, match="bad operand") as raised:
            methods[-1]("as the program's own method does")
        assert raised.value.__context__ is None
        assert [methods[-1](-1), methods[-1](2)] == [1, 2]
        experiment.end(60 * MS)
    assert len(calls) == 2  # it is out from then on
    assert results(experiment)[BROKEN, UNCHANGED].error == "MemoryError: too large"
    assert results(experiment)[USELESS, UNCHANGED].pairs > 5


def test_too_few_iterations_tell_nothing_and_the_rest_is_not_begun():
    experiment = InterleavedExperiment(
        PlannedChanges([SINGLE], [FAST], [KEEPING]), Program().switch
    )
    for _ in range(1 + WARM_UP):
        experiment.begin()
        experiment.end(60 * MS)
    assert [tried.wall for tried in experiment.tried()] == [None]
    assert experiment.not_begun() == [FAST, KEEPING]
