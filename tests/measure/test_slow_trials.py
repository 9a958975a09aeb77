"""The line that says, during a run, that trials take many times the fastest."""

import pytest

from chainer_profile import profile
from chainer_profile.measure import runner, trials
from chainer_profile.measure.trials import SlowTrials
from tests.nets import Chain, image

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


@pytest.mark.parametrize("group", [1, 7, 1000])
def test_it_is_said_once_by_the_fastest_trial_of_all(group):
    said = []
    slow = SlowTrials(said.append)
    # In the first two seconds the trials are as they should be.
    for walls in ([10 * MS] * 200, [120 * MS] * 200, [500 * MS] * 100):
        for at in range(0, len(walls), group):
            slow.add(walls[at : at + group])
    assert said == [SAYS + "another program keeps the cores busy"]


def test_it_is_not_said():
    for walls in (
        [],
        [0] * 1000,
        [10 * MS] * 10_000,
        [10 * MS] * 1000 + [45 * MS] * 1000,  # not many times
        [10 * MS, *[120 * MS] * 10],  # not for long
        [10 * MS] * 10 + [30_000 * MS] + [10 * MS] * 1000,  # one
    ):
        said = []
        slow = SlowTrials(said.append)
        for wall in walls:
            slow.add([wall])
        assert said == []


def test_another_program_is_blamed_only_where_there_is_one(monkeypatch):
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
