"""Changes take turns with the network as it is, on a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from chainer_profile.advice.changes import AS_IT_IS, Candidate
from chainer_profile.advice.results import Tried
from chainer_profile.advice.trying import Trial
from chainer_profile.advice.worker import BLOCK, CHECK, LAYERS, READY, WorkerError
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.errors import ProfileError


@dataclass
class World:
    """Processes whose blocks take known times, and what was asked of them."""

    #: Seconds of an input by the name of a change: its engine, kernels and batch.
    run_s: dict[str, float] = field(default_factory=dict)
    #: What else a process answers: by change and question.
    says: dict[tuple[str, str], Any] = field(default_factory=dict)
    began: list[str] = field(default_factory=list)  #: The changes of all processes, in their order.
    asked: list[tuple[str, str]] = field(default_factory=list)
    now_s: float = 0.0
    running: int = 0
    most: int = 0
    stop: str = ""
    at_block: Callable[[str], None] = lambda name: None
    stop_after: float = float("inf")

    def start(self, change: Change) -> Process:
        name = f"{change.engine}{'k' if change.kernels else ''}{change.batchsize or ''}"
        self.began.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        return Process(self, name)


@dataclass
class Process:
    world: World
    name: str

    def ask(self, question: str, patience_s: float) -> Any:
        world, name = self.world, self.name
        world.asked.append((name, question))
        said = world.says.get((name, question))
        if isinstance(said, Exception):
            raise said
        if question != BLOCK:
            world.now_s += 1.0 if question == READY else 0.0
            return said
        run_s = world.run_s.get(name, 1e-3)
        world.now_s += 0.01
        world.at_block(name)
        if len(world.began) > world.stop_after:
            world.stop = "interrupted by SIGINT"
        return {"cpu_s": run_s, "wall_s": 2 * run_s}

    def close(self) -> None:
        self.world.running -= 1


def candidate(name: str, **changes: Any) -> Candidate:
    return Candidate(name, "why", "how", Change(engine=name), **changes)


def tried(
    world: World, candidates: list[Candidate], seconds: float = 100.0, at_once: int = 9
) -> tuple[dict[str, Tried], dict[str, str]]:
    trial = Trial(
        candidates,
        world.start,
        seconds=seconds,
        at_once=at_once,
        now=lambda: world.now_s,
        stop=lambda: world.stop,
    )
    found, undone = trial.run()
    assert world.running == 0
    return {one.candidate.name: one for one in found}, {one.name: one.why for one in undone}


def test_what_helps_is_measured_again_in_fresh_processes() -> None:
    world = World({"fast": 0.5e-3, "slow": 2e-3})
    found, undone = tried(world, [candidate("slow"), candidate("fast")])
    assert list(found) == ["fast", "slow"]
    fast, slow = found["fast"], found["slow"]
    assert fast.cpu is not None
    assert slow.wall is not None
    assert (fast.cpu.factor, slow.wall.factor) == pytest.approx((2.0, 0.5))
    assert (fast.helps, slow.helps) == (True, False)
    assert (fast.confirmed, slow.confirmed) == (True, False)
    assert (fast.before_s, fast.after_s) == pytest.approx((2e-3, 1e-3))
    # Two groups of all, then as many as are needed of those that were promising.
    assert fast.pairs == 6
    assert world.began == ["", "slow", "fast"] * 2 + ["", "fast"] * 6
    assert not undone


def test_the_first_looks_luck_does_not_count() -> None:
    world = World()

    def lucky(name: str) -> None:
        # In the first groups it seems to be fast; new processes know nothing of that.
        world.run_s["useless"] = 0.5e-3 if len(world.began) <= 4 else 1e-3

    world.at_block = lucky
    found, _ = tried(world, [candidate("useless")])
    useless = found["useless"]
    assert useless.first is not None
    assert useless.gain is not None
    assert (useless.first.factor, useless.gain.factor) == pytest.approx((2.0, 1.0), rel=0.02)
    assert not useless.helps


@pytest.mark.parametrize(("groups", "pairs"), [(6, 3), (12, 4)])
def test_what_was_measured_before_the_stop_stays(groups: int, pairs: int) -> None:
    """A single group after the first look counts with it."""
    found, _ = tried(World({"fast": 0.5e-3}, stop_after=groups), [candidate("fast")])
    assert found["fast"].pairs == pairs
    assert found["fast"].helps


def test_what_fails_is_out_and_the_others_go_on() -> None:
    world = World({"fast": 0.5e-3})
    world.says = {
        ("early", READY): WorkerError("cannot be made ready"),
        ("late", BLOCK): WorkerError("its process ended (killed by signal 9)"),
        ("wrong", CHECK): "its outputs differ by 2.0e-01",
    }
    names = ["early", "late", "wrong", "fast"]
    found, _ = tried(world, [candidate(name) for name in names])
    assert {name: one.error for name, one in found.items()} == {
        "fast": "",
        "early": "cannot be made ready",
        "late": "its process ended (killed by signal 9)",
        "wrong": "its outputs differ by 2.0e-01",
    }
    assert found["fast"].helps
    assert world.began.count("early") == 1


def test_the_network_itself_must_run() -> None:
    world = World(says={("", READY): WorkerError("has no such layer")})
    with pytest.raises(ProfileError, match="as it is: has no such layer"):
        tried(world, [candidate("fast")])
    assert world.running == 0


def test_what_was_measured_stays_where_the_network_fails_later() -> None:
    world = World({"fast": 0.5e-3})

    def late(name: str) -> None:
        if len(world.began) > 12:
            world.says["", BLOCK] = WorkerError("out of memory")

    world.at_block = late
    trial = Trial([candidate("fast")], world.start, seconds=100.0, now=lambda: world.now_s)
    (fast,), _ = trial.run()
    assert trial.ended == "the network as it is: out of memory"
    assert fast.helps
    assert fast.pairs == 4


def test_sums_of_what_helps_alone_are_tried_too() -> None:
    batch = Candidate("batch", "why", "more", Change(batchsize=4), alone=False)
    # A larger batch takes less time an input: the process says times of one input.
    world = World({"fast": 0.5e-3, "4": 0.8e-3, "fast4": 0.4e-3})
    found, _ = tried(world, [candidate("fast"), batch])
    both = found["fast + batch"]
    assert both.helps
    assert both.gain is not None
    assert both.gain.factor == pytest.approx(2.5)
    assert both.candidate.keep == "how; more"


def test_layers_of_chainers_own_changes() -> None:
    def layers(*times: float) -> list[list[Any]]:
        return [["forward", f"{at}_F", f"/{at}", one] for at, one in enumerate(times)]

    fast = Candidate("fast", "why", "how", Change(kernels="numpy"))
    told = {"": layers(3e-3, 2e-3, 1e-3), "k": layers(2e-3, 0.5e-3, 1.5e-3)}
    world = World({"k": 0.5e-3}, {(name, LAYERS): rows for name, rows in told.items()})
    found, _ = tried(world, [fast])
    assert [(one.label, one.before_s, one.after_s) for one in found["fast"].layers] == [
        ("1_F", 2e-3, 0.5e-3),
        ("0_F", 3e-3, 2e-3),
    ]


def test_what_is_held_against_something_else_has_processes_of_its_own() -> None:
    threads = Change(engine="two")
    one = Candidate("one thread", "why", "how", AS_IT_IS, against=threads, alone=False)
    world = World({"two": 3e-3, "fast": 0.5e-3})
    found, _ = tried(world, [candidate("fast"), one])
    assert world.began[:4] == ["", "fast", "two", ""]
    assert found["one thread"].gain is not None
    assert found["one thread"].gain.factor == pytest.approx(3.0)
    assert found["one thread"].helps


def test_no_more_processes_than_memory_holds() -> None:
    world = World()
    tried(world, [candidate(name) for name in "abcde"], at_once=3)
    assert world.most == 3


def test_the_time_is_kept() -> None:
    world = World({"fast": 0.5e-3, "also": 0.9e-3})

    def noisy(name: str) -> None:
        world.run_s["also"] = 0.97e-3 * (1 + 0.05 * (len(world.began) % 7))

    world.at_block = noisy
    found, _ = tried(world, [candidate("fast"), candidate("also")], seconds=60.0)
    assert world.now_s < 64
    assert found["fast"].helps


def test_what_there_was_no_time_for_is_said() -> None:
    world = World({"fast": 0.5e-3}, stop_after=0)
    found, undone = tried(world, [candidate("fast"), candidate("other")])
    assert not found
    assert undone == dict.fromkeys(["fast", "other"], "no time was left")
