"""Our warnings never become exceptions in the user's code, at any entry point."""

import errno
import os
import warnings

import chainer
import chainer.links as L
import numpy as np
import pytest
from chainer import training
from chainer.functions.activation.relu import ReLU
from chainer.training.updaters import StandardUpdater

import chainer_profile
from chainer_profile import LayerProfile, LayerTimerHook, profile, profiling
from chainer_profile.basics import warning
from chainer_profile.measure import inside, memory
from tests.command import (
    folder,  # noqa: F401  (plots and limits cost nothing)
    raising,
)
from tests.nets import net

X = np.ones((4, 3), np.float32)


class Broken(ReLU):
    """A function with a cost formula that fails."""


chainer_profile.register_cost(Broken)(raising(ValueError("a formula with a bug")))


def make_model():
    return net(lambda self, x: Broken().apply((self.fc(x),))[0], fc=L.Linear(3, 2))


def by_hook():
    with LayerTimerHook():
        make_model()(X)


def by_block():
    measured, model = profiling(memory=True), make_model()
    for _ in range(4):
        with measured:
            model(X)
    measured.recording()


def by_decorator():
    step = profiling(memory=True)(lambda model: model(X))
    model = make_model()
    for _ in range(4):
        step(model)
    step.profiling.recording()


def by_call():
    recording = profile(make_model(), X, trials=3, warmups=1, clean_trials=1, why=True)
    assert recording.n_trials == 3


def by_trainer():
    optimizer = chainer.optimizers.SGD().setup(L.Classifier(make_model()))
    data = chainer.datasets.TupleDataset(X, np.zeros(4, np.int32))
    iterator = chainer.iterators.SerialIterator(data, 2)
    updater = StandardUpdater(iterator, optimizer)
    trainer = training.Trainer(updater, (6, "iteration"), out="result")
    trainer.extend(LayerProfile(memory=True))
    trainer.run()
    assert updater.iteration == 6


ENTRY_POINTS = {
    "LayerTimerHook": by_hook,
    "profiling()": by_block,
    "@profiling()": by_decorator,
    "profile()": by_call,
    "LayerProfile": by_trainer,
}


@pytest.fixture
def failing(monkeypatch, folder):  # noqa: F811
    """Cause all our warnings: cost formula, memory pass, ``--why``, and a full disk."""
    monkeypatch.setattr(warning, "_printed", set())
    monkeypatch.setattr(memory, "memory_use", raising(OSError("no memory")))
    monkeypatch.setattr(inside, "look_inside", raising(OSError("no sampler")))
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "lseek", raising(full))


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_warning_is_printed_if_it_would_be_an_exception(name, failing, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ENTRY_POINTS[name]()
    lines = capsys.readouterr().err.splitlines()
    assert any("the cost formula of Broken failed" in line for line in lines)
    ours = [line for line in lines if line.startswith("chainer-profile: ")]
    assert len(ours) == len(set(ours))
