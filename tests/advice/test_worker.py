"""A process that runs the network in blocks when it is asked to, from both sides."""

import io
import json
from contextlib import closing, nullcontext

import pytest

from chainer_profile.advice.worker import BLOCK, CHECK, READY, Worker, WorkerError, serve
from tests.refusing import refusal


class Runs:
    """Each run is of two inputs, and takes so many nanoseconds on the clock."""

    batchsize = 2

    def __init__(self, clock, run_ns=1000):
        self.clock, self.run_ns, self.runs = clock, run_ns, 0

    def run(self):
        self.runs += 1
        self.clock.advance(self.run_ns)

    def check(self):
        return "its outputs differ"

    def layers(self):
        raise ValueError("no layers here")


def served(clock, runs, *questions, **clocks):
    answers, asked = io.StringIO(), io.StringIO("".join(f"{question}\n" for question in questions))
    clocks = {"cpu": lambda: clock.now_ns() * 0.5e-9, "sleep": lambda seconds: None} | clocks
    serve(lambda: nullcontext(runs), asked, answers, wall=lambda: clock.now_ns() * 1e-9, **clocks)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_answers_and_errors(clock):
    # Five runs to warm up, or half a second; then a block of 10 ms, behind one that is not timed.
    for run_ms, warm, runs in ((1, 5, 11), (5, 5, 3), (20, 5, 2), (100, 5, 1), (600, 1, 1)):
        made = Runs(clock, run_ms * 1_000_000)
        ready, block = served(clock, made, BLOCK)
        assert ready == {"value": None}
        assert made.runs == warm + runs, run_ms
        times = {"wall_s": run_ms * 1e-3 / 2, "cpu_s": run_ms * 1e-3 / 4}
        assert block["value"] == pytest.approx(times), run_ms
    answers = served(clock, Runs(clock), CHECK, "layers", BLOCK)
    failed = {"error": "ValueError: no layers here"}
    assert answers[1:] == [{"value": "its outputs differ"}, failed]


@pytest.mark.parametrize(("busy_ms", "slept_ms"), [(0, 10), (25, 40), (10_000, 200)])
def test_a_process_answers_when_its_threads_have_gone_to_sleep(clock, busy_ms, slept_ms):
    """Until then they take a core from the process whose turn is next."""
    sleeps = []
    clocks = {"cpu": lambda: min(sum(sleeps), busy_ms * 1e-3), "sleep": sleeps.append}
    _ready, block = served(clock, Runs(clock, 10**6), BLOCK, **clocks)
    # Once before it says that it is ready, and after the block if they were busy still.
    expected_ms = slept_ms + (200 if busy_ms > slept_ms else 10)
    assert sum(sleeps) * 1e3 == pytest.approx(expected_ms)
    assert block["value"]["wall_s"] == pytest.approx(5e-4)


def worker(code, stop=""):
    return closing(Worker(["-S", "-c", code], lambda: stop))


def test_a_process_answers_fails_has_ended_or_hangs():
    with worker('print(\'{"value": null}\')\nprint(\'{"value": \' + input() + "}")') as made:
        assert made.ask(READY, 60) is None
        assert made.ask("[1, 2]", 60) == [1, 2]
        said = refusal(made.ask, BLOCK, 60, error=WorkerError)
        assert said == "its process ended (exit code 0)"
    for code, patience_s, said in (
        ('print(\'{"error": "MemoryError"}\')', 60, "MemoryError"),
        ("import os; os._exit(3)", 60, "its process ended (exit code 3)"),
        ("import os; os.kill(os.getpid(), 9)", 60, "its process ended (killed by signal 9)"),
        ("input()", 0, "has not answered for 0 s"),
    ):
        with worker(code) as made:
            assert refusal(made.ask, READY, patience_s, error=WorkerError) == said
    with worker("input()", stop="interrupted") as made:  # nobody waits who is stopped
        assert made.ask(READY, 60) is None
