"""The functions of a program that samples name, and the parts of its time."""

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
#: Functions of ours around what has an account, and around what is passed on.
ACCOUNT, PASSED_ON = f"{PROGRAM} in_own_account", f"{PROGRAM} in_account"

#: Functions within each other, and the name of a sample in the last of them.
NAMES = [
    ([MAIN], "train.py <module>"),
    ([MAIN, ACCURACY], "train.py:1 accuracy"),
    # The program's innermost function, and the library function that it calls.
    ([MAIN, ACCURACY, ARGMAX, DRAW], "train.py:1 accuracy > argmax"),
    ([MAIN, ACCURACY, "/home/me/train.py <listcomp>"], "train.py:1 accuracy"),
    (["<string> <module>"], "<string> <module>"),
    (["<frozen runpy> run_path", MAIN, "<__array_function__> dot"], "train.py <module>"),
    # Within an account, functions outside of it are not named, nor the function of the account.
    ([MAIN, TRAINER, ACCOUNT, PLOT, DRAW, WITH], "artist.py:1 draw"),
    ([MAIN, TRAINER, ACCOUNT, PLOT], ""),
    ([MAIN, TRAINER, ACCOUNT, PLOT, ACCURACY], "train.py:1 accuracy"),
    # Calls in the account of an iteration are passed on.
    ([MAIN, ACCURACY, PASSED_ON, ARGMAX, WITH], "train.py:1 accuracy > argmax"),
    # The profiler itself, and functions that it calls.
    ([MAIN, ACCOUNT], ""),
    ([MAIN, ACCOUNT, WITH], "contextlib.py:1 __enter__"),
]


@pytest.fixture
def sampling(clock):
    """A sampler with :meth:`take`; it says that :attr:`runs` runs."""

    class Sampling(Sampler):
        runs = OTHER

        def take(self, *frames, ns=1):
            """A sample after some time, in functions of such files and names."""
            clock.advance(ns)
            call = lambda: self.sample(sys._getframe(1))  # noqa: E731
            for file, name in (frame.rsplit(" ", 1) for frame in reversed([ACCOUNT, *frames])):
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
def test_the_name_of_a_sample(sampling, frames, function):
    sampling.take(*frames)
    assert [(sampled.function, sampled.ns) for sampled in sampling.sampled()] == [(function, 1)]


def test_the_time_of_samples_by_account_and_kind_of_code(sampling):
    accounts = sampling._accounts
    sampling.take(MAIN, ns=10)
    with accounts.within(EXTENSIONS, "Bleu"):
        sampling.take(MAIN, ACCURACY, ns=20)
        # A sample waits until code in C ends.
        sampling.take(MAIN, ACCURACY, ns=300)
        sampling.take(MAIN, ACCURACY, APPLY, ns=5)
    with accounts.within(budget.IMPORTS, "nltk"):  # whose time has names already
        sampling.take(MAIN, ns=1000)
    with accounts.within(EVALUATION, "validation"):
        for sampling.runs, ns in ((LOADING, 7), (NETWORK, 8)):
            sampling.take(MAIN, ACCURACY, ns=ns)
    assert sampling.sampled() == (
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


def test_a_thread_that_nothing_lists_samples_until_it_is_stopped():
    accounts = Accounts(lambda: 0, 0)
    sampler = Sampler(accounts, lambda: OTHER)
    threads, handlers = threading.enumerate(), [*map(signal.getsignal, signal.valid_signals())]

    def has_spin():
        with accounts.within(budget.PROFILER, ""):  # as when a budget is saved: nothing is sampled
            return any("spin" in sampled.function for sampled in sampler.sampled())

    sampler.start()
    try:
        spin(has_spin)
        assert threading.enumerate() == threads
        assert [*map(signal.getsignal, signal.valid_signals())] == handlers
    finally:
        sampler.stop()
    assert not sampler.problem


def test_a_fork_pauses_the_thread_and_a_child_has_none():
    sampler = Sampler(Accounts(lambda: 0, 0), lambda: OTHER)
    sampler._before_fork()
    sampler._after_fork()
    assert sampler._running is None  # it was never started
    sampler.start()
    running = sampler._running
    sampler._before_fork()
    assert sampler._running is None
    sampler.stop()  # as a child may, without waiting for what it has not
    sampler._after_fork()
    assert sampler._running not in (None, running)
    sampler.stop()


def test_no_frame_is_kept(sampling):
    class Network:
        pass

    def call():
        network = Network()
        sampling.sample(sys._getframe())
        return weakref.ref(network)

    assert call()() is None


def test_a_failure_ends_the_sampling_alone(sampling, monkeypatch):
    stops, ended = _thread.allocate_lock(), _thread.allocate_lock()
    stops.acquire()
    ended.acquire()
    monkeypatch.setattr(sampling, "sample", lambda frame: 1 / 0)
    sampling._now_ns = iter(range(0, 10**10, 10**9)).__next__
    sampling._sample_until(stops, ended)
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
