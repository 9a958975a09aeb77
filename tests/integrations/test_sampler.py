"""Samples name functions of a program, with times by account."""

import _thread
import signal
import sys
import sysconfig
import threading
import weakref
from pathlib import Path

import chainer
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainer_profile
from chainer_profile.integrations import sampler as samplers
from chainer_profile.integrations.sampler import RATE_PER_S, Sampler, next_due
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record import budget
from chainer_profile.record.budget import EVALUATION, EXTENSIONS, LOADING, NETWORK, OTHER, Sampled

CHAINER = Path(chainer.__file__).parent
PROGRAM = Path(chainer_profile.__file__).parent / "integrations/program.py"
SITE = Path(sysconfig.get_path("purelib"))
STDLIB = Path(sysconfig.get_path("stdlib"))

MAIN, ACCURACY = "/home/me/train.py <module>", "/home/me/train.py accuracy"
ARGMAX = f"{CHAINER}/links/loss/crf1d.py argmax"
APPLY = f"{CHAINER}/function_node.py apply"
TRAINER = f"{CHAINER}/training/trainer.py run"
PLOT = f"{CHAINER}/training/extensions/plot_report.py __call__"
DRAW = f"{SITE}/matplotlib/artist.py draw"
WITH = f"{STDLIB}/contextlib.py __enter__"
#: Our wrappers around code with its own account, and around calls in the current account.
ACCOUNT_WRAPPER, CALL_WRAPPER = f"{PROGRAM} in_own_account", f"{PROGRAM} in_account"

#: Nested functions, and the name of a sample in the last one.
NAMES = [
    ([MAIN], "train.py <module>"),
    ([MAIN, ACCURACY], "train.py:1 accuracy"),
    # The program's innermost function, and the library function that it calls.
    ([MAIN, ACCURACY, ARGMAX, DRAW], "train.py:1 accuracy > argmax"),
    ([MAIN, ACCURACY, "/home/me/train.py <listcomp>"], "train.py:1 accuracy"),
    (["<string> <module>"], "<string> <module>"),
    (["<frozen runpy> run_path", MAIN, "<__array_function__> dot"], "train.py <module>"),
    # In an account, neither outer functions nor the function of the account are named.
    ([MAIN, TRAINER, ACCOUNT_WRAPPER, PLOT, DRAW, WITH], "artist.py:1 draw"),
    ([MAIN, TRAINER, ACCOUNT_WRAPPER, PLOT], ""),
    ([MAIN, TRAINER, ACCOUNT_WRAPPER, PLOT, ACCURACY], "train.py:1 accuracy"),
    # Calls in an iteration stay in its account.
    ([MAIN, ACCURACY, CALL_WRAPPER, ARGMAX, WITH], "train.py:1 accuracy > argmax"),
    # Functions of the profiler, and functions that it calls.
    ([MAIN, ACCOUNT_WRAPPER], ""),
    ([MAIN, ACCOUNT_WRAPPER, WITH], "contextlib.py:1 __enter__"),
]


@pytest.fixture
def sampling(clock):
    """A sampler with :meth:`take`. :attr:`runs` is the kind of code that runs."""

    class Sampling(Sampler):
        runs = OTHER

        def take(self, *frames, ns=1):
            """Advance the clock, and take a sample in nested functions of these files and names."""
            clock.advance(ns)
            call = lambda: self.sample(sys._getframe(1))  # noqa: E731
            for file, name in (
                frame.rsplit(" ", 1) for frame in reversed([ACCOUNT_WRAPPER, *frames])
            ):
                functions = {"inner": call}
                exec(compile("def call():\n    return inner()", file, "exec"), functions)
                call = functions["call"]
                call.__code__ = call.__code__.replace(co_name=name)
                if sys.version_info >= (3, 11):
                    call.__code__ = call.__code__.replace(co_qualname=name)
            call()

    sampler = Sampling(Accounts(clock.now_ns, clock.time_ns), lambda: sampler.runs, clock.now_ns)
    return sampler


@pytest.mark.parametrize(("frames", "function"), NAMES)
def test_function_name_of_a_sample(sampling, frames, function):
    sampling.take(*frames)
    assert [(sampled.function, sampled.ns) for sampled in sampling.sampled_functions()] == [
        (function, 1)
    ]


def test_library_in_a_folder_named_chainer_has_names(sampling, monkeypatch):
    """An environment in a clone of Chainer used to have none."""
    monkeypatch.setattr(samplers, "LIBRARIES", ("/home/me/chainer/.venv/lib/",))
    sampling.take(MAIN, ACCOUNT_WRAPPER, "/home/me/chainer/.venv/lib/matplotlib/artist.py draw")
    assert [sampled.function for sampled in sampling.sampled_functions()] == ["artist.py:1 draw"]


def test_samples_have_times_by_account_and_kind_of_code(sampling):
    accounts = sampling._accounts
    sampling.take(MAIN, ns=10)
    with accounts.within(EXTENSIONS, "Bleu"):
        sampling.take(MAIN, ACCURACY, ns=20)
        # A sample waits until code in C ends.
        sampling.take(MAIN, ACCURACY, ns=300)
        sampling.take(MAIN, ACCURACY, APPLY, ns=5)
    with accounts.within(budget.IMPORTS, "nltk"):  # time of imports already has names
        sampling.take(MAIN, ns=1000)
    with accounts.within(EVALUATION, "validation"):
        for sampling.runs, ns in ((LOADING, 7), (NETWORK, 8)):
            sampling.take(MAIN, ACCURACY, ns=ns)
    assert sampling.sampled_functions() == (
        Sampled(budget.REST, "", OTHER, "train.py <module>", 10, 1),
        Sampled(EXTENSIONS, "Bleu", OTHER, "train.py:1 accuracy", 320, 2),
        Sampled(EXTENSIONS, "Bleu", NETWORK, "", 5, 1),
        Sampled(EVALUATION, "validation", LOADING, "train.py:1 accuracy", 7, 1),
        Sampled(EVALUATION, "validation", NETWORK, "", 8, 1),
    )


def spin(until):
    while not until():
        for _ in range(10_000):
            pass


def test_sampler_runs_in_a_hidden_thread_until_it_is_stopped():
    accounts = Accounts(lambda: 0, 0)
    sampler = Sampler(accounts, lambda: OTHER)
    threads, handlers = threading.enumerate(), [*map(signal.getsignal, signal.valid_signals())]

    def has_spin():
        with accounts.within(budget.PROFILER, ""):  # nothing is sampled while the profiler runs
            return any("spin" in sampled.function for sampled in sampler.sampled_functions())

    sampler.start()
    try:
        spin(has_spin)
        assert threading.enumerate() == threads
        assert [*map(signal.getsignal, signal.valid_signals())] == handlers
    finally:
        sampler.stop()
    assert not sampler.problem


def test_fork_pauses_the_sampler_and_the_child_has_none():
    sampler = Sampler(Accounts(lambda: 0, 0), lambda: OTHER)
    sampler._before_fork()
    sampler._after_fork()
    assert sampler._running is None  # the sampler was not started
    sampler.start()
    running = sampler._running
    sampler._before_fork()
    assert sampler._running is None
    sampler.stop()  # a child may stop a sampler that it does not have
    sampler._after_fork()
    assert sampler._running not in (None, running)
    sampler.stop()


def test_sampler_keeps_no_frame_alive(sampling):
    class Network:
        pass

    def call():
        network = Network()
        sampling.sample(sys._getframe())
        return weakref.ref(network)

    assert call()() is None


def test_failed_sample_ends_only_the_sampler(sampling, monkeypatch):
    stops, ended = _thread.allocate_lock(), _thread.allocate_lock()
    stops.acquire()
    ended.acquire()
    monkeypatch.setattr(sampling, "sample", lambda frame: 1 / 0)
    sampling._now_ns = iter(range(0, 10**10, 10**9)).__next__
    sampling._sample_until_released(stops, ended)
    assert not ended.locked()
    assert sampling.problem == "ZeroDivisionError: division by zero"


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_samples_are_due_at_multiples_of_a_period(due_ns, now_ns):
    period_ns = 10**9 // RATE_PER_S
    following = next_due(due_ns, now_ns)
    assert (following - due_ns) % period_ns == 0
    assert following > due_ns
    assert following > now_ns
    assert now_ns < due_ns or following - now_ns <= period_ns


@given(st.lists(st.integers(0, 10**8), min_size=2, max_size=20))
def test_samples_use_at_most_a_fiftieth_of_the_time(costs_ns):
    now_ns = cpu_ns = 0
    taken_ns, left = [], [*costs_ns]

    class Stop:
        """A lock that is released after all samples."""

        def acquire(self, timeout):
            nonlocal now_ns
            now_ns += round(timeout * 1e9)
            return not left

    def sample(frame):
        nonlocal now_ns, cpu_ns
        taken_ns.append(now_ns)
        cost_ns = left.pop(0)
        now_ns, cpu_ns = now_ns + cost_ns, cpu_ns + cost_ns

    sampler = Sampler(Accounts(lambda: 0, 0), lambda: OTHER, lambda: now_ns, lambda: cpu_ns)
    sampler.sample = sample
    ended = _thread.allocate_lock()
    ended.acquire()
    sampler._sample_until_released(Stop(), ended)
    assert not sampler.problem
    period_ns = 10**9 // RATE_PER_S
    for cost_ns, begin_ns, end_ns in zip(costs_ns, taken_ns, taken_ns[1:], strict=False):
        interval_ns = end_ns - begin_ns
        assert interval_ns >= 50 * cost_ns
        assert interval_ns <= 51 * cost_ns + period_ns
