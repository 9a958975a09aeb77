"""Which functions of a program samples name, and in which part of its time."""

import os
import signal
import sys
import sysconfig
from pathlib import Path

import chainer
import pytest

import chainer_profile
from chainer_profile.integrations.sampler import Sampler
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record import budget
from chainer_profile.record.budget import EVALUATION, EXTENSIONS, LOADING, NETWORK, OTHER, Sampled
from tests import needs

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
            """A sample behind some time, in functions of such files and names."""
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
        # A signal waits until code in C ends.
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


def test_a_timer_samples_the_main_thread():
    if not sys.platform.startswith("linux"):
        needs.missing("Linux")
    accounts = Accounts(lambda: 0, 0)
    sampler, second = Sampler(accounts, lambda: OTHER), Sampler(accounts, lambda: OTHER)

    def has_spin():
        with accounts.within(budget.PROFILER, ""):  # as when a budget is saved: nothing is sampled
            return any("spin" in sampled.function for sampled in sampler.sampled())

    sampler.start()
    try:
        spin(has_spin)
        second.start()
    finally:
        sampler.stop()
    assert (sampler.problem, second.problem) == ("", "SIGURG has a handler already")
    # A signal that comes late is ignored.
    sampled = sampler.sampled()
    os.kill(os.getpid(), signal.SIGURG)
    assert sampler.sampled() == sampled
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
