"""Recordings with known differences, for tests of comparisons."""

from dataclasses import replace

import numpy as np

from chainer_profile.record.recording import Calibration, Conditions
from tests.conftest import make_recording

CALM = Conditions(
    window_ns=100.0, other_cpu=0.0, calibrations=(Calibration(1e-3, 7e-4), Calibration(1e-3, 7e-4))
)


def conditions(factor=1.0, other_cpu=0.0):
    """Conditions with slower calibrations, and CPU time of other programs."""
    calibration = Calibration(1e-3 * factor, 7e-4 * factor)
    return replace(CALM, calibrations=(calibration, calibration), other_cpu=other_cpu)


def run(seed=0, n_layers=24, n_trials=200, **changes):
    """Make a run on a quiet machine. Seeds give different times."""
    settings = {"n_clean": 40, "conditions": CALM} | changes
    return make_recording(n_layers, n_trials, seed=seed, **settings)


def scaled(recording, factors, whole=1.0):
    """Multiply times of some layers by factors, and times of unprofiled trials by ``whole``."""
    factor = np.ones(len(recording.layers))
    for index, value in factors.items():
        factor[index] = value
    self_ns = np.rint(recording.self_ns * factor).astype(np.int64)
    assert recording.trial_ns is not None
    trial_ns = recording.trial_ns + self_ns.sum(axis=1) - recording.self_ns.sum(axis=1)
    clean_ns = np.rint(recording.clean_ns * whole).astype(np.int64)
    return replace(recording, self_ns=self_ns, trial_ns=trial_ns, clean_ns=clean_ns)


def alike(seed, n_layers=66, spread=0.01, n_trials=300):
    """Make a run of the same network in another process, with a constant factor per layer."""
    rng = np.random.default_rng(1000 + seed)
    factors = np.exp(rng.normal(0, spread, n_layers))
    return scaled(run(seed, n_layers, n_trials), dict(enumerate(factors)))
