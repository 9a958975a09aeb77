"""Messages during a run: progress, and warnings about slow trials."""

import pytest

from chainer_profile import profile
from chainer_profile.basics.words import PROG
from chainer_profile.measure import profile as profile_module
from chainer_profile.measure import trials
from chainer_profile.measure.progress import ProgressBar
from chainer_profile.measure.slow_trials import SlowTrials
from tests.nets import Chain, image

MS = 1_000_000


@pytest.mark.parametrize(
    ("n_trials", "trial_s", "max_seconds", "lines"),
    [
        (1000, 0.03, None, ["334 of 1,000; about 20 s", "668 of 1,000; about 10 s"]),
        (3, 60, None, ["1 of 3; about 2 min", "2 of 3; about 60 s"]),
        # The remaining time is at most the rest of the limit.
        (4, 10, 25, ["1 of 4; about 15 s", "2 of 4; about 5 s", "3 of 4; about 0 s"]),
    ],
)
def test_progress_prints_every_ten_seconds_or_after_a_long_trial(
    capsys, n_trials, trial_s, max_seconds, lines
):
    now_s = 100.0
    with ProgressBar(False, max_seconds, monotonic=lambda: now_s) as progress:
        for done in range(1, n_trials + 1):
            now_s += trial_s
            progress(done, n_trials, trial_s)
    out, err = capsys.readouterr()
    mean = " trials, mean 30.00 ms" if trial_s < 1 else f" trials, mean {trial_s}.00 s"
    assert out == ""
    assert err.replace(mean, "") == "".join(f"{PROG}: {line} left\n" for line in lines)


@pytest.fixture(autouse=True)
def other_cpu(monkeypatch):
    """Number of cores that other programs keep busy."""
    cores = [1.5]
    monkeypatch.setattr(trials.CpuWatch, "other_cpu", lambda self: cores[0])
    return cores


def test_slow_trials_are_reported_once_with_their_cause(other_cpu):
    message = "trials take 12 times as long as the fastest: "
    for group in (1, 7, 1000):
        warned = []
        slow = SlowTrials(warned.append)
        # The trials have their normal time in the first two seconds.
        for walls in ([10 * MS] * 200, [120 * MS] * 200, [500 * MS] * 100):
            for index in range(0, len(walls), group):
                slow.add(walls[index : index + group])
        assert warned == [message + "another program keeps the cores busy"]
    for cores in (0.2, None):
        other_cpu[:] = [cores]
        warned = []
        SlowTrials(warned.append).add([10 * MS, *[120 * MS] * 30])
        assert warned == [message + "something else slows this machine"]


def test_single_slow_trial_is_not_reported():
    SlowTrials(pytest.fail).add([10 * MS] * 4 + [10_000 * MS])


def test_run_warns_about_slow_trials(clock, one_thread, monkeypatch):
    class Slower(Chain):
        def forward(self, x):
            self.clock.advance(10 * MS if self.calls <= 5 else 120 * MS)
            return super().forward(x)

    monkeypatch.setattr(profile_module, "clock_of", lambda device: clock)
    message = "trials take 11 times as long as the fastest: another"
    with pytest.warns(UserWarning, match=message) as caught:
        profile(Slower(clock), image(), trials=100, warmups=1, clean_trials=0, memory=False)
    assert len(caught) == 1
