"""What is said of a run on standard error, where that is no terminal."""

import re

from chainer_profile.basics.words import PROG
from chainer_profile.measure.progress import ProgressBar
from tests.terminals import on_terminal, plain


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


def said(capsys, steps, total, mean_s, *limit, every_s):
    """The lines of a run, of which a step's trials take so long."""
    clock = Clock()
    with ProgressBar(False, *limit, monotonic=clock) as progress:
        for done in steps:
            clock.seconds += every_s
            progress(done, total, mean_s)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_a_line_every_ten_seconds_or_behind_a_long_trial(capsys):
    assert said(capsys, range(1, 1001), 1000, 0.0285, every_s=0.03) == [
        f"{PROG}: 334 of 1,000 trials, mean 28.50 ms; about 19 s left",
        f"{PROG}: 668 of 1,000 trials, mean 28.50 ms; about 9 s left",
    ]
    assert said(capsys, range(1, 4), 3, 60.0, every_s=60) == [
        f"{PROG}: 1 of 3 trials, mean 60.00 s; about 2 min left",
        f"{PROG}: 2 of 3 trials, mean 60.00 s; about 60 s left",
    ]
    # A time limit is what is left at most.
    lines = said(capsys, range(10, 50, 10), 1000, 1.0, 30.0, every_s=10)
    assert [int(line.split()[-3]) for line in lines] == [20, 10, 0, 0]


def test_what_is_said_and_warned_of_in_a_pipe(capsys):
    for quiet, line, warning in ((True, "", "[1] time\n"), (False, "[12] times\n", "[1] time\n")):
        clock = Clock()
        bar = ProgressBar(quiet, monotonic=clock)
        with bar as progress:
            clock.seconds += 60 * quiet
            progress(1, 3, 60.0)
            bar.say("[12] times")
        bar.warn("[1] time")
        text = "".join(f"{PROG}: {one}" for one in (line, warning) if one)
        assert capsys.readouterr() == ("", text)


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
