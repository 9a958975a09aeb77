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

MAIN = "/home/me/train.py", "<module>"
ACCURACY = "/home/me/train.py", "accuracy"
ARGMAX = CHAINER / "links/loss/crf1d.py", "argmax"
APPLY = CHAINER / "function_node.py", "apply"
TRAINER = CHAINER / "training/trainer.py", "run"
PLOT = CHAINER / "training/extensions/plot_report.py", "__call__"
SAVEFIG = SITE / "matplotlib/figure.py", "savefig"
DRAW = SITE / "matplotlib/artist.py", "draw"
ACCOUNT, PASSED_ON = (PROGRAM, "in_own_account"), (PROGRAM, "in_account")
SAVE = CHAINER / "serializers/hdf5.py", "save_hdf5"
WITH = STDLIB / "contextlib.py", "__enter__"
RUNPY = "<frozen runpy>", "run_path"


@pytest.fixture
def sampler(clock):
    """It says that :attr:`runs` runs."""

    class Sampling(Sampler):
        runs = OTHER

        def take(self, *frames, ns=1):
            """A sample behind some time, from functions of such files and names."""
            clock.advance(ns)
            call = lambda: self.sample(sys._getframe(1))  # noqa: E731
            for file, name in reversed([ACCOUNT, *frames]):
                functions = {"inner": call}
                exec(compile("def call():\n    return inner()", str(file), "exec"), functions)
                call = functions["call"]
                names = {"co_name": name, "co_qualname": name}
                names = names if sys.version_info >= (3, 11) else {"co_name": name}
                call.__code__ = call.__code__.replace(**names)
            call()

    accounts = Accounts(clock.now_ns, clock.time_ns)
    made = Sampling(accounts, lambda: made.runs, clock.now_ns)
    return made


@pytest.mark.parametrize(
    ("frames", "function"),
    [
        ([MAIN], "train.py <module>"),
        ([MAIN, ACCURACY], "train.py:1 accuracy"),
        # The program's innermost function, and the library function that it calls.
        ([MAIN, ACCURACY, ARGMAX, DRAW], "train.py:1 accuracy > argmax"),
        ([MAIN, ACCURACY, ("/home/me/train.py", "<listcomp>")], "train.py:1 accuracy"),
        ([("<string>", "<module>")], "<string> <module>"),
        ([RUNPY, MAIN, ("<__array_function__ internals>", "dot")], "train.py <module>"),
        # Within an account, functions outside of it are not named, nor the function of the account.
        ([MAIN, TRAINER, ACCOUNT, PLOT, SAVEFIG, DRAW], "figure.py:1 savefig"),
        ([MAIN, TRAINER, ACCOUNT, PLOT], ""),
        ([MAIN, TRAINER, ACCOUNT, PLOT, ACCURACY], "train.py:1 accuracy"),
        # Calls in the account of an iteration are passed on.
        ([MAIN, ACCURACY, PASSED_ON, SAVE, WITH], "train.py:1 accuracy > save_hdf5"),
        # The profiler itself, and functions that it calls.
        ([MAIN, ACCOUNT], ""),
        ([MAIN, ACCOUNT, WITH], "contextlib.py:1 __enter__"),
        ([RUNPY], ""),
    ],
)
def test_the_name_of_a_sample(sampler, frames, function):
    sampler.take(*frames)
    assert [(sampled.function, sampled.ns) for sampled in sampler.sampled()] == [(function, 1)]


def test_the_time_of_samples_by_account_and_kind_of_code(sampler):
    accounts = sampler._accounts
    sampler.take(MAIN, ns=10)
    with accounts.within(EXTENSIONS, "Bleu"):
        sampler.take(MAIN, ACCURACY, ns=20)
        # A signal waits until code in C ends.
        sampler.take(MAIN, ACCURACY, ns=300)
        sampler.take(MAIN, ACCURACY, APPLY, ns=5)
    with accounts.within(budget.IMPORTS, "nltk"):  # whose time has names already
        sampler.take(MAIN, ns=1000)
    with accounts.within(EVALUATION, "validation"):
        sampler.runs = LOADING
        sampler.take(MAIN, ACCURACY, ns=7)
        sampler.runs = NETWORK
        sampler.take(MAIN, ACCURACY, ns=8)
    assert sampler.sampled() == (
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
