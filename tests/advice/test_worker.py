"""A process that runs the network in blocks when it is asked to, from both sides."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chainer_profile.advice.worker import BLOCK, CHECK, READY, Worker, WorkerError, serve
from tests.conftest import FakeClock


class Runs:
    """Each run takes so many nanoseconds on the clock."""

    batchsize = 2

    def __init__(self, clock: FakeClock, run_ns: int) -> None:
        self.clock, self.run_ns, self.runs = clock, run_ns, 0

    def run(self) -> None:
        self.runs += 1
        self.clock.advance(self.run_ns)

    def check(self) -> str:
        return "its outputs differ"

    def layers(self) -> list[tuple[str, str, str, float]]:
        raise ValueError("no layers here")


def served(clock: FakeClock, runs: Runs, *questions: str) -> list[dict[str, Any]]:
    @contextmanager
    def work() -> Iterator[Runs]:
        yield runs

    answers = io.StringIO()
    asked = io.StringIO("".join(f"{question}\n" for question in questions))
    clocks = {"wall": lambda: clock.now_ns() * 1e-9, "cpu": lambda: clock.now_ns() * 0.5e-9}
    serve(work, asked, answers, **clocks)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_a_block(clock: FakeClock) -> None:
    # Five runs to warm up, or half a second; then a block of 10 ms, behind one that is not timed.
    for run_ms, warm, runs in ((1, 5, 11), (5, 5, 3), (20, 5, 2), (100, 5, 1), (600, 1, 1)):
        made = Runs(clock, run_ms * 1_000_000)
        ready, block = served(clock, made, BLOCK)
        assert ready == {"value": None}
        assert made.runs == warm + runs, run_ms
        # Of one input, of which a run has two.
        times = {"wall_s": run_ms * 1e-3 / 2, "cpu_s": run_ms * 1e-3 / 4}
        assert block["value"] == pytest.approx(times), run_ms


def test_answers_and_errors(clock: FakeClock) -> None:
    answers = served(clock, Runs(clock, 1000), CHECK, "layers", BLOCK)
    assert answers[1:] == [
        {"value": "its outputs differ"},
        {"error": "ValueError: no layers here"},
    ]


def worker(code: str, stop: str = "") -> Worker:
    return Worker(["-S", "-c", code], lambda: stop)


def failure(made: Worker, question: str = READY, patience_s: float = 60.0) -> str:
    try:
        with pytest.raises(WorkerError) as caught:
            made.ask(question, patience_s)
        return str(caught.value)
    finally:
        made.close()


def test_a_process_answers() -> None:
    made = worker("print('{\"value\": null}', flush=True); print('{\"value\": ' + input() + '}')")
    try:
        assert made.ask(READY, 60) is None
        assert made.ask("[1, 2]", 60) == [1, 2]
    finally:
        made.close()


def test_a_process_that_fails_has_ended_or_hangs() -> None:
    for code, said in (
        ('print(\'{"error": "MemoryError"}\')', "MemoryError"),
        ("import os; os._exit(3)", "its process ended (exit code 3)"),
        ("import os; os.kill(os.getpid(), 9)", "its process ended (killed by signal 9)"),
    ):
        assert failure(worker(code)) == said
    made = worker("print('{\"value\": null}', flush=True)")
    made.ask(READY, 60)
    assert failure(made, BLOCK) == "its process ended (exit code 0)"
    assert failure(worker("input()"), patience_s=0.0) == "has not answered for 0 s"


def test_nobody_waits_who_is_stopped() -> None:
    made = worker("input()", stop="interrupted")
    try:
        assert made.ask(READY, 60) is None
    finally:
        made.close()
