"""Changes are measured in alternation with the unchanged network, on a fake clock."""

import random
from functools import partial
from types import SimpleNamespace

import pytest

from chainer_profile.advice.changes import CPU, UNCHANGED, WALL, Candidate, combine
from chainer_profile.advice.trying import Experiment
from chainer_profile.advice.worker import BLOCK, CHECK, LAYERS, READY, WorkerError
from chainer_profile.analyse.findings import Change
from tests.refusing import refusal


class FakeProcesses:
    """Fake worker processes, whose blocks take known times."""

    def __init__(self, answers=(), **run_s):
        #: Seconds per input, by engine, kernels and batch size of a change.
        self.run_s = run_s
        #: Other answers, by change and request.
        self.answers = dict(answers)
        self.started = []  #: Changes of all processes, in order of their start.
        self.now_s, self.running, self.max_running, self.stop = 0.0, 0, 0, ""
        self.at_block = lambda: None  #: Called at each block.

    def start(self, change):
        name = f"{change.engine}{'k' if change.kernels else ''}{change.batchsize or ''}"
        self.started.append(name)
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        return SimpleNamespace(ask=partial(self.ask, name), close=self.close)

    def ask(self, name, request, timeout_s):
        answer = self.answers.get((name, request))
        if isinstance(answer, Exception):
            raise answer
        if request != BLOCK:
            self.now_s += 1.0 if request == READY else 0.0
            return answer
        run_s = self.run_s.get(name, 1e-3)
        self.now_s += 0.01
        self.at_block()
        return {"cpu_s": run_s, "wall_s": 2 * run_s}

    def close(self):
        self.running -= 1


def candidate(name, **changes):
    return Candidate(name, "why", "how", Change(engine=name), **changes)


def tried(processes, *candidates, seconds=100.0, at_once=9):
    """Run a trial; return changes by name, and the trial. A string is the name of an engine."""
    trial = Experiment(
        [candidate(each) if isinstance(each, str) else each for each in candidates],
        processes.start,
        seconds=seconds,
        at_once=at_once,
        now=lambda: processes.now_s,
        stop=lambda: processes.stop,
    )
    try:
        changes, trial.undone = trial.run()
    finally:
        assert processes.running == 0
    return {change.candidate.name: change for change in changes}, trial


def test_promising_changes_are_measured_again_in_new_processes():
    processes = FakeProcesses(fast=0.5e-3, slow=2e-3)
    changes, trial = tried(processes, "slow", "fast")
    assert list(changes) == ["fast", "slow"]
    fast, slow = changes.values()
    assert (fast.cpu.factor, slow.wall.factor) == pytest.approx((2.0, 0.5))
    assert (fast.helps, slow.helps) == (True, False)
    assert (fast.confirmed, slow.confirmed) == (True, False)
    assert (fast.before_s, fast.after_s) == pytest.approx((2e-3, 1e-3))
    # Two groups have all changes; later groups have the promising ones.
    assert fast.pairs == 6
    assert processes.started == ["", "slow", "fast"] * 2 + ["", "fast"] * 6
    assert trial.undone == ()


@pytest.mark.parametrize("decides", [CPU, WALL])
def test_ratio_of_times_equals_the_gain_in_wall_time(decides):
    """The gains in CPU time and in wall time differ, and so do rounds."""
    processes, rng = FakeProcesses(), random.Random(1)

    def ask(name, request, timeout_s):
        answer = FakeProcesses.ask(processes, name, request, timeout_s)
        if request != BLOCK:
            return answer
        slow = rng.choice([1, 1, 1.3, 4])
        return {"cpu_s": 0.3e-3 if name else 4e-3, "wall_s": slow * (0.4e-3 if name else 4e-3)}

    processes.ask = ask
    fast = tried(processes, candidate("fast", decides=decides))[0]["fast"]
    assert fast.before_s / fast.after_s == pytest.approx(fast.wall.factor)
    assert fast.cpu.factor == pytest.approx(4 / 0.3)
    assert fast.before_s > 3.9e-3


def test_first_groups_do_not_count_in_the_gain():
    processes = FakeProcesses()

    def lucky():
        # The change seems fast in the first groups only.
        processes.run_s["useless"] = 0.5e-3 if len(processes.started) <= 4 else 1e-3

    processes.at_block = lucky
    useless = tried(processes, "useless")[0]["useless"]
    assert useless.confirmed  # the first groups were promising
    assert useless.gain.factor == pytest.approx(1.0, rel=0.02)
    assert not useless.helps


@pytest.mark.parametrize(("groups", "pairs"), [(6, 3), (12, 4), (0, 0)])
def test_stop_keeps_earlier_measurements(groups, pairs):
    """A single later group counts together with the first ones."""
    processes = FakeProcesses(fast=0.5e-3)

    def stop():
        processes.stop = "interrupted by SIGINT" if len(processes.started) > groups else ""

    processes.at_block = stop
    changes, trial = tried(processes, "fast")
    assert [(change.pairs, change.helps) for change in changes.values()] == [(pairs, True)][:pairs]
    undone = {untried.name: untried.why for untried in trial.undone}
    assert undone == ({} if pairs else {"fast": "no time was left"})


def test_failed_change_does_not_stop_the_others():
    wrong = "its outputs differ by 2.0e-01"
    processes = FakeProcesses({("wrong", CHECK): wrong}, fast=0.5e-3)
    processes.answers["early", READY] = WorkerError("cannot be made ready")
    processes.answers["late", BLOCK] = WorkerError("its process ended")
    changes, _ = tried(processes, "early", "late", "wrong", "fast")
    errors = {"early": "cannot be made ready", "late": "its process ended", "wrong": wrong}
    assert {name: change.error for name, change in changes.items()} == {"fast": "", **errors}
    assert changes["fast"].helps
    assert processes.started.count("early") == 1


def test_failure_of_the_unchanged_network_ends_the_trial():
    processes = FakeProcesses({("", READY): WorkerError("has no such layer")})
    assert "the unchanged network failed: has no such layer" in refusal(tried, processes, "fast")
    # A later failure keeps the measurements.
    processes = FakeProcesses(fast=0.5e-3)

    def late():
        if len(processes.started) > 12:
            processes.answers["", BLOCK] = WorkerError("out of memory")

    processes.at_block = late
    changes, trial = tried(processes, "fast")
    assert trial.ended == "the unchanged network failed: out of memory"
    assert (changes["fast"].helps, changes["fast"].pairs) == (True, 4)


def test_combinations_of_helpful_changes_are_tried():
    batch = Candidate("batch", "why", "more", Change(batchsize=4), alone=False)
    # A larger batch takes less time per input, and processes report times per input.
    changes, _ = tried(FakeProcesses(fast=0.5e-3, fast4=0.4e-3, **{"4": 0.8e-3}), "fast", batch)
    both = changes["fast + batch"]
    assert both.helps
    assert both.gain.factor == pytest.approx(2.5)
    # A combination has one of several exclusive changes, and no change with another baseline.
    other_baseline = Candidate(
        "one thread", "", "", UNCHANGED, against=Change(threads=2), alone=False
    )
    first, second = Candidate("torch", "", "how", Change(kernels="torch")), candidate("second")
    (both,) = combine([other_baseline, first, second, batch])
    assert (both.name, both.keep, both.decides) == ("torch + batch", "how; more", CPU)
    assert both.change == Change(kernels="torch", batchsize=4)
    assert combine([first, second]) == combine([batch]) == []


def test_larger_batch_is_exported_with_an_engine():
    command = "python profile.py export net.onnx --model a --batchsize"
    engine = Candidate("engine", "why", f"{command} 4", Change(engine="onnxruntime"))
    batch = Candidate("batch", "why", "-b 16", Change(batchsize=16), alone=False)
    threads = Candidate("threads", "why", "X=1 before", Change(threads=1), alone=False)
    (both,) = combine([engine, batch, threads])
    assert both.keep == f"{command} 16; X=1 before"
    (both,) = combine([engine, threads])
    assert both.keep == f"{command} 4; X=1 before"


def test_helpful_change_has_gains_by_layer():
    def layers(*times):
        return [["forward", f"{i}_F", f"/{i}", time_s] for i, time_s in enumerate(times)]

    fast = Candidate("fast", "why", "how", Change(kernels="numpy"))
    answers = {
        ("", LAYERS): layers(3e-3, 2e-3, 1e-3),
        ("k", LAYERS): layers(2e-3, 0.5e-3, 1.5e-3),
    }
    changes, _ = tried(FakeProcesses(answers, k=0.5e-3), fast)
    assert [(layer.label, layer.before_s, layer.after_s) for layer in changes["fast"].layers] == [
        ("1_F", 2e-3, 0.5e-3),
        ("0_F", 3e-3, 2e-3),
    ]


def test_other_baselines_have_their_own_processes():
    threads = Change(engine="two")
    single = Candidate("one thread", "why", "how", UNCHANGED, threads, WALL, alone=False)
    processes = FakeProcesses(two=3e-3, fast=0.5e-3)
    changes, _ = tried(processes, "fast", single)
    assert processes.started[:4] == ["", "fast", "two", ""]
    assert changes["one thread"].gain.factor == pytest.approx(3.0)
    assert changes["one thread"].helps


def test_limits_on_processes_and_time_are_respected():
    processes = FakeProcesses()
    tried(processes, *"abcde", at_once=3)
    assert processes.max_running == 3
    processes = FakeProcesses(fast=0.5e-3, also=0.9e-3)

    def noisy():
        processes.run_s["also"] = 0.97e-3 * (1 + 0.05 * (len(processes.started) % 7))

    processes.at_block = noisy
    changes, _ = tried(processes, "fast", "also", seconds=60.0)
    assert processes.now_s < 64
    assert changes["fast"].helps
