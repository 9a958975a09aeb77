"""Recordings whose differences are known: what the tests of comparisons share."""

from dataclasses import replace

import numpy as np

from chainer_profile.record.recording import Calibration, Conditions
from tests.conftest import make_recording

CALM = Conditions(
    window_ns=100.0, other_cpu=0.0, calibrations=(Calibration(1e-3, 7e-4), Calibration(1e-3, 7e-4))
)


def conditions(factor=1.0, other_cpu=0.0):
    """Fixed work that took so much longer, and the CPU time of other programs."""
    took = Calibration(1e-3 * factor, 7e-4 * factor)
    return replace(CALM, calibrations=(took, took), other_cpu=other_cpu)


def run(seed=0, n_layers=24, n_trials=200, **changes):
    """A run on a calm machine; runs differ in their seeds."""
    settings = {"n_clean": 40, "conditions": CALM} | changes
    return make_recording(n_layers, n_trials, seed=seed, **settings)


def scaled(recording, factors, whole=1.0):
    """The same run with some layers slower or faster, and the unprofiled trials by a factor."""
    factor = np.ones(len(recording.layers))
    for index, value in factors.items():
        factor[index] = value
    self_ns = np.rint(recording.self_ns * factor).astype(np.int64)
    assert recording.trial_ns is not None
    trial_ns = recording.trial_ns + self_ns.sum(axis=1) - recording.self_ns.sum(axis=1)
    clean_ns = np.rint(recording.clean_ns * whole).astype(np.int64)
    return replace(recording, self_ns=self_ns, trial_ns=trial_ns, clean_ns=clean_ns)


def alike(seed, n_layers=66, spread=0.01, n_trials=300):
    """A run of the same network in another process: each layer is off by some factor, for good."""
    rng = np.random.default_rng(1000 + seed)
    factors = np.exp(rng.normal(0, spread, n_layers))
    return scaled(run(seed, n_layers, n_trials), dict(enumerate(factors)))
