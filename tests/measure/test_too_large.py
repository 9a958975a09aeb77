"""Trials and batches that do not fit into memory are refused before anything is timed."""

from itertools import islice

import numpy as np
import pytest

from chainer_profile import profile
from chainer_profile.basics import free_memory
from chainer_profile.basics.errors import ProfileError
from chainer_profile.engines.measuring import measure
from chainer_profile.engines.race import Contestant
from chainer_profile.measure import too_large
from chainer_profile.measure.too_large import check_samples
from chainer_profile.measure.trials import cycles
from chainer_profile.record.recording import Settings
from tests.command import Net
from tests.conftest import FakeClock
from tests.engines.fake_engines import FakeEngine

FREE = 300 << 20
X = np.ones((1, 3), np.float32)
MANY = 10**12


@pytest.fixture(autouse=True)
def free(monkeypatch):
    """Make 300 MiB of memory free."""
    for module in (free_memory, too_large):
        monkeypatch.setattr(module, "free_nbytes", lambda: FREE)


def race_of_many():
    settings = Settings(model="net", trials=MANY, clean_trials=MANY)
    contestants = [Contestant(name="chainer", engine=FakeEngine(FakeClock()))]
    return measure(Net(), (X,), settings, contestants, layer_trials=1)


def test_too_many_trials_are_refused():
    message = r"^1,000,000,000,000 trials need [\d.]+ TiB of memory .* 300\.0 MiB are free: use"
    for run in (lambda: profile(Net(), X, trials=MANY), race_of_many):
        with pytest.raises(ProfileError, match=message):
            run()
    # Their cycles are an iterator, which needs no memory.
    assert len(list(islice(cycles(MANY, MANY // 10), 3))) == 3


def test_samples_larger_than_memory_are_refused():
    # A trial has 96 rows and 4 more numbers of 8 bytes. Each tenth trial is followed by an
    # unprofiled one, with 3 numbers.
    check_samples(Settings(trials=390_000, clean_trials=39_000), rows=96)
    with pytest.raises(ProfileError):
        check_samples(Settings(trials=393_000, clean_trials=39_300), rows=96)
    # The time limit limits the number of trials.
    check_samples(Settings(trials=MANY, clean_trials=MANY, max_seconds=60), rows=96)
    with pytest.raises(ProfileError):
        check_samples(Settings(trials=MANY, clean_trials=MANY, max_seconds=10_000), rows=96)
