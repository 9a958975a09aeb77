"""Changes take turns with the unchanged network, on a clock that the test sets."""

import random
from functools import partial
from types import SimpleNamespace

import pytest

from chainer_profile.advice.changes import CPU, UNCHANGED, WALL, Candidate, combine
from chainer_profile.advice.trying import Experiment
from chainer_profile.advice.worker import BLOCK, CHECK, LAYERS, READY, WorkerError
from chainer_profile.analyse.findings import Change
from tests.refusing import refusal


class World:
    """Processes whose blocks take known times, and what was asked of them."""

    def __init__(self, says=(), **run_s):
        #: Seconds of an input by the name of a change: its engine, kernels and batch.
        self.run_s = run_s
        #: What else a process answers: by change and question.
        self.says = dict(says)
        self.began = []  #: The changes of all processes, in their order.
        self.now_s, self.running, self.most, self.stop = 0.0, 0, 0, ""
        self.at_block = lambda: None  #: What a test changes while all is measured.

    def start(self, change):
        name = f"{change.engine}{'k' if change.kernels else ''}{change.batchsize or ''}"
        self.began.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        return SimpleNamespace(ask=partial(self.ask, name), close=self.close)

    def ask(self, name, question, patience_s):
        answer = self.says.get((name, question))
        if isinstance(answer, Exception):
            raise answer
        if question != BLOCK:
            self.now_s += 1.0 if question == READY else 0.0
            return answer
        run_s = self.run_s.get(name, 1e-3)
        self.now_s += 0.01
        self.at_block()
        return {"cpu_s": run_s, "wall_s": 2 * run_s}

    def close(self):
        self.running -= 1


def candidate(name, **changes):
    return Candidate(name, "why", "how", Change(engine=name), **changes)


def tried(world, *candidates, seconds=100.0, at_once=9):
    """What came of each, by name, and the trial; of a word is a change of that engine."""
    trial = Experiment(
        [candidate(each) if isinstance(each, str) else each for each in candidates],
        world.start,
        seconds=seconds,
        at_once=at_once,
        now=lambda: world.now_s,
        stop=lambda: world.stop,
    )
    try:
        changes, trial.undone = trial.run()
    finally:
        assert world.running == 0
    return {change.candidate.name: change for change in changes}, trial


def test_what_helps_is_measured_again_in_fresh_processes():
    world = World(fast=0.5e-3, slow=2e-3)
    changes, trial = tried(world, "slow", "fast")
    assert list(changes) == ["fast", "slow"]
    fast, slow = changes.values()
    assert (fast.cpu.factor, slow.wall.factor) == pytest.approx((2.0, 0.5))
    assert (fast.helps, slow.helps) == (True, False)
    assert (fast.confirmed, slow.confirmed) == (True, False)
    assert (fast.before_s, fast.after_s) == pytest.approx((2e-3, 1e-3))
    # Two groups of all, then as many as are needed of those that were promising.
    assert fast.pairs == 6
    assert world.began == ["", "slow", "fast"] * 2 + ["", "fast"] * 6
    assert trial.undone == ()


@pytest.mark.parametrize("decides", [CPU, WALL])
def test_times_without_and_with_a_change_have_its_gain_in_wall_time_as_their_ratio(decides):
    """CPU and wall times differ in their ratios, and so do the rounds."""
    world, draw = World(), random.Random(1)

    def ask(name, question, patience_s):
        answer = World.ask(world, name, question, patience_s)
        if question != BLOCK:
            return answer
        slow = draw.choice([1, 1, 1.3, 4])
        return {"cpu_s": 0.3e-3 if name else 4e-3, "wall_s": slow * (0.4e-3 if name else 4e-3)}

    world.ask = ask
    fast = tried(world, candidate("fast", decides=decides))[0]["fast"]
    assert fast.before_s / fast.after_s == pytest.approx(fast.wall.factor)
    assert fast.cpu.factor == pytest.approx(4 / 0.3)
    assert fast.before_s > 3.9e-3


def test_the_first_looks_luck_does_not_count():
    world = World()

    def lucky():
        # In the first groups it seems to be fast; new processes know nothing of that.
        world.run_s["useless"] = 0.5e-3 if len(world.began) <= 4 else 1e-3

    world.at_block = lucky
    useless = tried(world, "useless")[0]["useless"]
    assert useless.confirmed  # so the first look was promising
    assert useless.gain.factor == pytest.approx(1.0, rel=0.02)
    assert not useless.helps


@pytest.mark.parametrize(("groups", "pairs"), [(6, 3), (12, 4), (0, 0)])
def test_what_was_measured_before_the_stop_stays(groups, pairs):
    """A single group after the first look counts with that."""
    world = World(fast=0.5e-3)

    def stop():
        world.stop = "interrupted by SIGINT" if len(world.began) > groups else ""

    world.at_block = stop
    changes, trial = tried(world, "fast")
    assert [(change.pairs, change.helps) for change in changes.values()] == [(pairs, True)][:pairs]
    undone = {untried.name: untried.why for untried in trial.undone}
    assert undone == ({} if pairs else {"fast": "no time was left"})


def test_what_fails_is_out_and_the_others_go_on():
    wrong = "its outputs differ by 2.0e-01"
    world = World({("wrong", CHECK): wrong}, fast=0.5e-3)
    world.says["early", READY] = WorkerError("cannot be made ready")
    world.says["late", BLOCK] = WorkerError("its process ended")
    changes, _ = tried(world, "early", "late", "wrong", "fast")
    errors = {"early": "cannot be made ready", "late": "its process ended", "wrong": wrong}
    assert {name: change.error for name, change in changes.items()} == {"fast": "", **errors}
    assert changes["fast"].helps
    assert world.began.count("early") == 1


def test_the_network_itself_must_run():
    world = World({("", READY): WorkerError("has no such layer")})
    assert "the unchanged network failed: has no such layer" in refusal(tried, world, "fast")
    # Where it fails later, what was measured stays.
    world = World(fast=0.5e-3)

    def late():
        if len(world.began) > 12:
            world.says["", BLOCK] = WorkerError("out of memory")

    world.at_block = late
    changes, trial = tried(world, "fast")
    assert trial.ended == "the unchanged network failed: out of memory"
    assert (changes["fast"].helps, changes["fast"].pairs) == (True, 4)


def test_sums_of_what_helps_alone_are_tried_too():
    batch = Candidate("batch", "why", "more", Change(batchsize=4), alone=False)
    # A larger batch takes less time an input: the process says times of one input.
    changes, _ = tried(World(fast=0.5e-3, fast4=0.4e-3, **{"4": 0.8e-3}), "fast", batch)
    both = changes["fast + batch"]
    assert both.helps
    assert both.gain.factor == pytest.approx(2.5)
    # They are of one that takes others' place and the rest; not of what is held against others.
    held = Candidate("one thread", "", "", UNCHANGED, against=Change(threads=2), alone=False)
    first, second = Candidate("torch", "", "how", Change(kernels="torch")), candidate("second")
    (both,) = combine([held, first, second, batch])
    assert (both.name, both.keep, both.decides) == ("torch + batch", "how; more", CPU)
    assert both.change == Change(kernels="torch", batchsize=4)
    assert combine([first, second]) == combine([batch]) == []


def test_a_larger_batch_is_exported_with_an_engine():
    command = "python profile.py export net.onnx --model a --batchsize"
    engine = Candidate("engine", "why", f"{command} 4", Change(engine="onnxruntime"))
    batch = Candidate("batch", "why", "-b 16", Change(batchsize=16), alone=False)
    threads = Candidate("threads", "why", "X=1 before", Change(threads=1), alone=False)
    (both,) = combine([engine, batch, threads])
    assert both.keep == f"{command} 16; X=1 before"
    (both,) = combine([engine, threads])
    assert both.keep == f"{command} 4; X=1 before"


def test_layers_of_chainers_own_changes():
    def layers(*times):
        return [["forward", f"{at}_F", f"/{at}", time_s] for at, time_s in enumerate(times)]

    fast = Candidate("fast", "why", "how", Change(kernels="numpy"))
    answers = {
        ("", LAYERS): layers(3e-3, 2e-3, 1e-3),
        ("k", LAYERS): layers(2e-3, 0.5e-3, 1.5e-3),
    }
    changes, _ = tried(World(answers, k=0.5e-3), fast)
    assert [(layer.label, layer.before_s, layer.after_s) for layer in changes["fast"].layers] == [
        ("1_F", 2e-3, 0.5e-3),
        ("0_F", 3e-3, 2e-3),
    ]


def test_what_is_held_against_something_else_has_processes_of_its_own():
    threads = Change(engine="two")
    single = Candidate("one thread", "why", "how", UNCHANGED, threads, WALL, alone=False)
    world = World(two=3e-3, fast=0.5e-3)
    changes, _ = tried(world, "fast", single)
    assert world.began[:4] == ["", "fast", "two", ""]
    assert changes["one thread"].gain.factor == pytest.approx(3.0)
    assert changes["one thread"].helps


def test_memory_and_time_are_kept():
    world = World()
    tried(world, *"abcde", at_once=3)
    assert world.most == 3
    world = World(fast=0.5e-3, also=0.9e-3)

    def noisy():
        world.run_s["also"] = 0.97e-3 * (1 + 0.05 * (len(world.began) % 7))

    world.at_block = noisy
    changes, _ = tried(world, "fast", "also", seconds=60.0)
    assert world.now_s < 64
    assert changes["fast"].helps
