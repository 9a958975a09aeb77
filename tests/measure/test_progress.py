"""What is said of a run on standard error, where that is no terminal."""

from __future__ import annotations

import re

from chainer_profile.basics.words import PROG
from chainer_profile.measure.progress import ProgressBar
from tests.terminals import on_terminal, plain


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


def test_a_line_every_ten_seconds(capsys):
    clock = Clock()
    with ProgressBar(False, monotonic=clock) as progress:
        for done in range(1, 1001):
            clock.seconds += 0.03
            progress(done, 1000, 0.0285)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"{PROG}: 334 of 1,000 trials, mean 28.50 ms; about 19 s left",
        f"{PROG}: 668 of 1,000 trials, mean 28.50 ms; about 9 s left",
    ]


def test_a_long_trial_has_a_line_of_its_own(capsys):
    clock = Clock()
    with ProgressBar(False, monotonic=clock) as progress:
        for done in range(1, 4):
            clock.seconds += 60
            progress(done, 3, 60.0)
    assert capsys.readouterr().err.splitlines() == [
        f"{PROG}: 1 of 3 trials, mean 60.00 s; about 2 min left",
        f"{PROG}: 2 of 3 trials, mean 60.00 s; about 60 s left",
    ]


def test_a_time_limit_is_what_is_left_at_most(capsys):
    clock = Clock()
    with ProgressBar(False, 30.0, monotonic=clock) as progress:
        for done in range(10, 50, 10):
            clock.seconds += 10
            progress(done, 1000, 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition("about ")[2] for line in lines] == ["20 s left", "10 s left"] + [
        "0 s left"
    ] * 2


def test_quiet_says_nothing(capsys):
    clock = Clock()
    bar = ProgressBar(True, monotonic=clock)
    with bar as progress:
        clock.seconds += 60
        progress(1, 3, 60.0)
        bar.say("something")
    assert capsys.readouterr() == ("", "")


def test_quiet_warns(capsys):
    ProgressBar(True).warn("[12] times")
    assert capsys.readouterr() == ("", f"{PROG}: [12] times\n")


def test_a_line_of_its_own_in_a_pipe(capsys):
    bar = ProgressBar(False, monotonic=Clock())
    with bar:
        bar.say("[12] times")
    assert capsys.readouterr() == ("", f"{PROG}: [12] times\n")


def test_a_terminal_has_a_bar_and_lines_above_it():
    def command():
        clock = Clock()
        bar = ProgressBar(False, monotonic=clock)
        with bar as progress:
            clock.seconds += 60
            progress(1, 3, 60.0)
            bar.say("[12] times")
            clock.seconds += 60
            progress(2, 3, 60.0)

    text = plain(on_terminal(command, 100))
    assert f"{PROG}: [12] times\n" in text
    assert re.search(r"profiling.*2/3.*mean 60.00 s", text)
    assert " left\n" not in text
