"""Calibration: a fixed amount of work, whose time shows the speed of the machine."""

import numpy as np

from chainer_profile.measure import calibration
from chainer_profile.measure.calibration import calibrate, calibrated
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Calibration
from tests.conftest import FakeClock
from tests.nets import Chain, image
from tests.queues import asked, run


class Work:
    """A fake NumPy whose products and copies take fixed times on a fake clock."""

    def __init__(self, clock, products, copies):
        self.clock = clock
        self._products, self._copies = iter(products), iter(copies)
        self.sides, self.copied = set(), set()

    def full(self, shape, value, dtype):
        return np.broadcast_to(np.array(value, dtype), shape)

    def matmul(self, a, b, out):
        self.sides |= {a.shape, b.shape, out.shape}
        self.clock.advance(next(self._products))

    def copyto(self, target, source):
        self.copied |= {target.nbytes, source.nbytes}
        self.clock.advance(next(self._copies))


def test_calibrate_returns_medians_without_warm_up():
    rounds = calibration._ROUNDS
    clock = FakeClock()
    # The warm-up is slow, and as many rounds as cannot change the median.
    n_slow = 1 + rounds // 2
    products, copies = ([10**9] * n_slow + [ns] * (rounds + 1 - n_slow) for ns in (4000, 700))
    work = Work(clock, products, copies)
    assert calibrate(clock.now_ns, work) == Calibration(4000 * 1e-9, 700 * 1e-9)
    # Every array module except NumPy gets the sizes for a GPU.
    assert work.sides == {(calibration.GPU_SIDE,) * 2}
    assert work.copied == {calibration.GPU_COPY_NBYTES}


def test_run_calibrates_before_and_after_trials_and_ignores_failures(
    clock, one_thread, monkeypatch
):
    at = []

    def calibration_of():
        at.append(clock.time_ns)
        return Calibration(len(at), 2.0)

    def fail(*_):
        raise MemoryError

    recording = run(Chain(clock), asked(trials=3), calibration=calibration_of)
    assert recording.conditions.calibrations == (Calibration(1, 2.0), Calibration(2, 2.0))
    assert at[0] < recording.start_ns[0]
    assert at[1] >= recording.start_ns[-1] + recording.trial_ns[-1]
    monkeypatch.setattr(calibration, "calibrate", fail)
    monkeypatch.setattr(calibration, "calibrated", calibrated)
    model = Chain(clock)
    failing = calibration.calibration_of(make_step("forward", model, (image(),)), clock)
    recording = run(model, asked(trials=3), calibration=failing)
    assert (recording.conditions.calibrations, recording.n_trials) == ((), 3)
