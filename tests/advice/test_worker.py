"""A worker process runs blocks of a network on request; its client reports failures."""

import io
import json
from contextlib import closing, nullcontext

import pytest

from chainer_profile.advice.worker import BLOCK, CHECK, READY, Worker, WorkerError, serve
from tests.refusing import refusal


class FakeWork:
    """Fake work with a batch of two inputs, which takes ``run_ns`` on the clock."""

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


def serve_questions(clock, runs, *questions, **clocks):
    answers, requests = (
        io.StringIO(),
        io.StringIO("".join(f"{question}\n" for question in questions)),
    )
    clocks = {"cpu": lambda: clock.now_ns() * 0.5e-9, "sleep": lambda seconds: None} | clocks
    serve(
        lambda: nullcontext(runs), requests, answers, wall=lambda: clock.now_ns() * 1e-9, **clocks
    )
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_worker_answers_questions_and_reports_errors(clock):
    # The warm-up is five runs or half a second. An untimed block precedes the block of 10 ms.
    for run_ms, warm, runs in ((1, 5, 11), (5, 5, 3), (20, 5, 2), (100, 5, 1), (600, 1, 1)):
        work = FakeWork(clock, run_ms * 1_000_000)
        ready, block = serve_questions(clock, work, BLOCK)
        assert ready == {"value": None}
        assert work.runs == warm + runs, run_ms
        times = {"wall_s": run_ms * 1e-3 / 2, "cpu_s": run_ms * 1e-3 / 4}
        assert block["value"] == pytest.approx(times), run_ms
    answers = serve_questions(clock, FakeWork(clock), CHECK, "layers", BLOCK)
    failed = {"error": "ValueError: no layers here"}
    assert answers[1:] == [{"value": "its outputs differ"}, failed]


@pytest.mark.parametrize(("busy_ms", "slept_ms"), [(0, 10), (25, 40), (10_000, 200)])
def test_worker_waits_until_its_threads_sleep(clock, busy_ms, slept_ms):
    """Busy threads would take a core from the next process."""
    sleeps = []
    clocks = {"cpu": lambda: min(sum(sleeps), busy_ms * 1e-3), "sleep": sleeps.append}
    _ready, block = serve_questions(clock, FakeWork(clock, 10**6), BLOCK, **clocks)
    # The worker waits before it is ready, and after the block if threads are still busy.
    expected_ms = slept_ms + (200 if busy_ms > slept_ms else 10)
    assert sum(sleeps) * 1e3 == pytest.approx(expected_ms)
    assert block["value"]["wall_s"] == pytest.approx(5e-4)


def worker(code, stop=""):
    return closing(Worker(["-S", "-c", code], lambda: stop))


def test_client_reports_failed_ended_and_hanging_workers():
    with worker('print(\'{"value": null}\')\nprint(\'{"value": \' + input() + "}")') as client:
        assert client.ask(READY, 60) is None
        assert client.ask("[1, 2]", 60) == [1, 2]
        message = refusal(client.ask, BLOCK, 60, error=WorkerError)
        assert message == "its process ended (exit code 0)"
    for code, timeout_s, message in (
        ('print(\'{"error": "MemoryError"}\')', 60, "MemoryError"),
        ("import os; os._exit(3)", 60, "its process ended (exit code 3)"),
        ("import os; os.kill(os.getpid(), 9)", 60, "its process ended (killed by signal 9)"),
        ("input()", 0, "has not answered for 0 s"),
    ):
        with worker(code) as client:
            assert refusal(client.ask, READY, timeout_s, error=WorkerError) == message
    with worker("input()", stop="interrupted") as client:  # the client does not wait after a stop
        assert client.ask(READY, 60) is None
