"""The list of passes: a new one is an entry in it, and the runner does the rest."""

from dataclasses import replace

import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import runner
from chainer_profile.measure.clock import TimeLimit
from chainer_profile.measure.passes import Pass
from chainer_profile.record.recording import Rank
from tests import queues
from tests.nets import Chain
from tests.queues import LAUNCH_BOUND, PlannedNet, asked, device_clock

TRIAL_NS = 208
FOUND = Rank(3, 5, "made-up")

pytestmark = pytest.mark.usefixtures("one_thread")


class MadeUp:
    """A pass that knows what it was given; it fails where there is an error to raise."""

    def __init__(self, monkeypatch, error=None):
        self.given = []
        self._error = error
        self.entry = Pass("rank", self._measure, "the made-up pass fails: {}", calls=2)
        monkeypatch.setattr(runner, "PASSES", (self.entry, *runner.PASSES))

    def _measure(self, timed):
        self.given.append(timed)
        if self._error is not None:
            raise self._error
        return FOUND


def run(clock, max_seconds=None, **more):
    made = asked(warmups=1, max_seconds=max_seconds)
    return queues.run(Chain(clock), made, memory=True, **more)


def test_a_made_up_pass_runs_and_its_result_is_in_the_recording(clock, monkeypatch):
    made_up, first = MadeUp(monkeypatch), MadeUp(monkeypatch)  # it was put before the other
    with monkeypatch.context() as patch:
        patch.setattr(runner, "PASSES", runner.PASSES[1:])
        recording = run(clock, max_seconds=1.0)
    assert recording.rank == FOUND
    assert recording.memory is not None
    (timed,) = made_up.given
    assert (timed.recording.n_trials, timed.recording.memory) == (20, None)
    assert len(timed.tape.rows.order.layers) == len(recording.layers)
    assert timed.trials_s == pytest.approx(20 * TRIAL_NS * 1e-9)
    # It has what is left of the second, but for the memory pass behind it.
    assert timed.left_s == pytest.approx(1 - (timed.pass_s * 4 + 1e-9 * 40 * TRIAL_NS), abs=1e-5)
    run(clock)  # the passes behind see what one found
    assert [made.given[-1].recording.rank for made in (first, made_up)] == [None, FOUND]


def test_one_that_fails_is_a_line_and_no_more(clock, monkeypatch):
    for error, said in ((ProfileError("no way"), "no way"), (OSError("no"), "OSError: no")):
        lines = []
        with monkeypatch.context() as patch:
            MadeUp(patch, error)
            recording = run(clock, warn=lines.append)
            assert lines == [f"the made-up pass fails: {said}"]
            assert recording.rank is None
            assert recording.memory is not None
            with pytest.warns(UserWarning, match=lines[0]):
                run(clock)


@pytest.mark.parametrize("when", ["trials", "pass"])
def test_a_signal_asks_for_no_more_of_them(clock, monkeypatch, when):
    made_up = MadeUp(monkeypatch)

    def stop():
        return "enough" if when == "trials" or made_up.given else ""

    recording = run(clock, stop=stop)
    assert recording.rank == (FOUND if when == "pass" else None)
    assert recording.memory is None
    assert recording.ended == ("complete" if when == "pass" else "enough")


def test_one_of_the_cpu_is_not_made_on_a_gpu(monkeypatch):
    entry = MadeUp(monkeypatch).entry
    for on_device, found in ((True, FOUND), (False, None)):
        monkeypatch.setattr(runner, "PASSES", (replace(entry, on_device=on_device),))
        assert queues.run(PlannedNet(device_clock(), LAUNCH_BOUND)).rank == found


def test_what_trials_leave_for_a_pass(clock):
    entry = Pass("rank", lambda timed: FOUND, "{}", seconds=5, limit_part=0.05, calls=3)
    assert entry.kept_s(2.0, TimeLimit(clock.now_ns)) == 5 + 3 * 2
    assert entry.kept_s(2.0, TimeLimit(clock.now_ns, 20.0)) == 1 + 3 * 2
