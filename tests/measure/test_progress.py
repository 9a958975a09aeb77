"""Messages during a run: its progress, and that its trials became slow."""

import pytest

from chainer_profile import profile
from chainer_profile.basics.words import PROG
from chainer_profile.measure import runner, trials
from chainer_profile.measure.progress import ProgressBar
from chainer_profile.measure.trials import SlowTrials
from tests.nets import Chain, image


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
    # With a time limit, no more than its rest is left.
    lines = said(capsys, range(10, 50, 10), 1000, 1.0, 30.0, every_s=10)
    assert [int(line.split()[-3]) for line in lines] == [20, 10, 0, 0]


# -- that trials take many times the fastest


MS = 1_000_000


class Busy:
    """In place of CpuWatch: others keep so many cores busy."""

    cores: float | None = 1.5

    def other_cpu(self):
        return self.cores


@pytest.fixture(autouse=True)
def busy(monkeypatch):
    monkeypatch.setattr(trials, "CpuWatch", Busy)


SAYS = "trials take 12 times as long as the fastest: "


def test_it_is_said_once_by_the_fastest_trial_of_all_and_who_is_to_blame(monkeypatch):
    for group in (1, 7, 1000):
        said = []
        slow = SlowTrials(said.append)
        # In the first two seconds the trials are as they should be.
        for walls in ([10 * MS] * 200, [120 * MS] * 200, [500 * MS] * 100):
            for at in range(0, len(walls), group):
                slow.add(walls[at : at + group])
        assert said == [SAYS + "another program keeps the cores busy"]
    for cores in (0.0, 0.2, None):
        monkeypatch.setattr(Busy, "cores", cores)
        said = []
        SlowTrials(said.append).add([10 * MS, *[120 * MS] * 30])
        assert said == [SAYS + "something else slows this machine"]


def test_a_run_says_it(clock, one_thread, monkeypatch):
    class Slower(Chain):
        def forward(self, x):
            y = super().forward(x)
            self.clock.advance(10 * MS if self.calls <= 5 else 120 * MS)
            return y

    monkeypatch.setattr(runner, "clock_of", lambda device: clock)
    says = "trials take 11 times as long as the fastest: another"
    with pytest.warns(UserWarning, match=says) as caught:
        profile(Slower(clock), image(), trials=100, warmups=1, clean_trials=0, memory=False)
    assert len(caught) == 1
