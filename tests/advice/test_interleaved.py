"""Gains of changes in programs whose iterations take known times."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.advice.changes import UNCHANGED, PlannedChanges
from chainer_profile.advice.interleaved import BLOCK_NS, WARM_UP, InterleavedExperiment
from chainer_profile.analyse.findings import Change

MS = 1_000_000
SINGLE = Change(threads=1)
CONFIG_NAMES = ("type_check", "autotune", "cudnn_fast_batch_normalization")
FAST, USELESS, THIRD = (Change(config=(name,)) for name in CONFIG_NAMES)
BROKEN, KEEPING = Change(kernels="torch"), Change(keep_memory=True)


class Program:
    """A program with iterations of random times, and of random lengths with ``lengths``.

    ``speed(change, number)`` is the speedup of an iteration, and ``loss(change)`` its loss.
    """

    def __init__(self, seed=0, iteration_ms=20, noise=0.1, lengths=False, speed=None, loss=None):
        self.iteration_ms, self.noise, self.lengths = iteration_ms, noise, lengths
        self.speed, self.loss, self.draw = speed, loss, np.random.default_rng(1000 + seed)
        self.rng = np.random.default_rng(seed)
        self.now, self.work, self.switches = UNCHANGED, np.zeros(3), 0
        self.on = []  # active change, by iteration

    @contextmanager
    def switch(self, change, guard):
        assert self.now is UNCHANGED
        self.now = replace(change)
        self.switches += 1
        yield
        self.now = UNCHANGED

    def run(self, iterations, threads=(), others=(), last=(), measured=True, **more):
        """Run iterations; return tried changes, by change and baseline."""
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
            ms = (
                self.iteration_ms
                * length
                * np.exp(drift)
                * self.rng.lognormal(0, self.noise)
                / speed
            )
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


def test_intervals_cover_true_gains_and_useless_changes_rarely_help():
    n_covered = n_wrong = 0
    widths = []
    for seed in range(40):
        tried = Program(seed, speed=gains(FAST, 1.3)).run(400, others=[USELESS, FAST])
        useless, fast = tried[USELESS, UNCHANGED], tried[FAST, UNCHANGED]
        n_wrong += useless.helps
        n_covered += fast.wall.low <= 1.3 <= fast.wall.high
        widths.append(np.log(fast.wall.high / fast.wall.low))
        assert fast.helps
    assert n_wrong <= 2
    assert n_covered >= 36
    # Pairs within a round cancel drift of the machine.
    assert np.median(widths) < 0.1


def test_gain_includes_occasional_slow_iterations():
    def speed(now, number):
        return 0.5 if now == THIRD and number % 3 == 0 else 1.0

    # Every third iteration takes twice as long: 4/3 of the time, with the same median.
    for iteration_ms in (20, 80):
        tried = Program(iteration_ms=iteration_ms, speed=speed).run(600, others=[THIRD])
        slower = tried[THIRD, UNCHANGED].wall
        assert slower.high < 1
        assert slower.factor == pytest.approx(0.75, abs=0.06)


def test_known_work_narrows_intervals_of_varying_iterations():
    widths = []
    for measured in (True, False):
        n_covered, width = 0, []
        for seed in range(20):
            program = Program(seed, 150, lengths=True, speed=gains(FAST, 1.3))
            fast = program.run(150, others=[FAST], measured=measured)[FAST, UNCHANGED].wall
            n_covered += fast.low <= 1.3 <= fast.high
            width.append(np.log(fast.high / fast.low))
        assert n_covered >= 17
        widths.append(np.median(width))
    assert widths[0] < widths[1] / 2


def test_rounds_have_a_block_of_each_variant_in_random_order():
    program = Program(noise=0)
    program.run(2000, others=[USELESS, FAST])
    blocks = [UNCHANGED]
    for change in program.on[WARM_UP:]:
        if change != blocks[-1]:
            blocks.append(change)
    assert set(program.on[:WARM_UP]) == {UNCHANGED}
    rounds = [tuple(blocks[index : index + 3]) for index in range(0, 30, 3)]
    assert len(set(rounds)) > 2
    counts = [program.on.count(change) for change in (UNCHANGED, USELESS, FAST)]
    assert min(counts) > 0.25 * sum(counts)
    # Blocks of a long program are longer.
    assert program.switches < 2000 * 20 * MS / BLOCK_NS / 2


@pytest.mark.parametrize(("is_busy", "expected"), [(False, 3), (True, 25)])
def test_blocks_are_longer_while_other_programs_are_busy(is_busy, expected):
    program = Program(noise=0, iteration_ms=20)
    experiment = InterleavedExperiment(
        PlannedChanges((), (FAST,), ()), program.switch, is_busy=lambda: is_busy
    )
    for _ in range(200):
        experiment.begin()
        experiment.end(20 * MS)
    *complete, _ = experiment.blocks
    assert complete
    assert min(block.count for block in complete) == expected


def test_first_iteration_after_a_switch_does_not_count():
    before = [UNCHANGED]

    def speed(now, number):
        before.append(now)
        return 0.1 if before[-2] != now == FAST else 1.0

    fast = Program(noise=0, speed=speed).run(400, others=[FAST])[FAST, UNCHANGED]
    assert fast.wall.factor == pytest.approx(1, abs=0.02)


def test_rounds_that_selected_a_change_do_not_count():
    def speed(now, number):
        return 2.0 if now == FAST and number < 100 else 1.0

    fast = Program(noise=0.02, speed=speed).run(1500, others=[FAST])[FAST, UNCHANGED]
    assert fast.wall.factor == pytest.approx(1, abs=0.02)


def test_thread_counts_are_tried_first_and_lasting_changes_last():
    def speed(now, number):
        # FAST helps only with the other number of threads.
        return 1 if not now.threads else 6 if FAST.config[0] in now.config else 3

    program = Program(1, speed=speed, iteration_ms=60)
    tried = program.run(1500, threads=[SINGLE], others=[USELESS, FAST], last=[KEEPING])
    combined, both = SINGLE.with_(FAST), SINGLE.with_(FAST).with_(KEEPING)
    for change, against, factor in (
        (SINGLE, UNCHANGED, 3),
        (combined, SINGLE, 2),
        (combined, UNCHANGED, 6),
    ):
        assert tried[change, against].wall.factor == pytest.approx(factor, rel=0.15)
    # KEEPING has no effect, and the combination is not measured with it.
    assert tried[both, combined].wall.factor == pytest.approx(1, rel=0.15)
    assert (both, UNCHANGED) not in tried
    first = {change: program.on.index(change) for change in (SINGLE, SINGLE.with_(USELESS), both)}
    assert list(first) == sorted(first, key=first.get)


def test_all_stages_are_reached_in_a_program_with_known_progress():
    program = Program(speed=gains(FAST, 2))
    known_end = {"progress": lambda: len(program.on) / 300}
    tried = program.run(300, others=[USELESS, FAST], last=[KEEPING], **known_end)
    assert (FAST.with_(KEEPING), FAST) in tried


def test_losses_with_and_without_a_change_are_compared():
    def loss_of(change, seed=0, **losses):
        program = Program(seed, loss=lambda now: losses["changed" if now == change else "plain"])
        return program.run(600, others=[USELESS, FAST])[change, UNCHANGED].loss

    higher = loss_of(FAST, plain=2.0, changed=2.2)
    assert higher.differs
    assert higher.part == pytest.approx(0.1, abs=0.02)
    same = loss_of(USELESS, plain=2.0, changed=2.0, seed=1)
    assert not same.differs
    assert abs(same.part) < 0.02
    assert same.high - same.part < 0.03
    assert loss_of(FAST, plain=2.0, changed=np.nan).differs
    assert Program().run(200, others=[FAST])[FAST, UNCHANGED].loss is None


def test_change_that_cannot_be_applied_is_dropped():
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


def test_original_method_replaces_a_method_that_raises():
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
    assert len(calls) == 2  # the change was dropped after the second failure
    assert results(experiment)[BROKEN, UNCHANGED].error == "MemoryError: too large"
    assert results(experiment)[USELESS, UNCHANGED].pairs > 5


def test_too_few_iterations_give_no_gain_and_start_no_further_change():
    experiment = InterleavedExperiment(
        PlannedChanges([SINGLE], [FAST], [KEEPING]), Program().switch
    )
    for _ in range(1 + WARM_UP):
        experiment.begin()
        experiment.end(60 * MS)
    assert [tried.wall for tried in experiment.tried()] == [None]
    assert experiment.not_begun() == [FAST, KEEPING]
