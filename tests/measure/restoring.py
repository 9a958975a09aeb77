"""Checks that networks, inputs and optimizers are restored."""

import chainer.functions as F
import chainer.links as L
import numpy as np

import chainer_profile
from tests import nets
from tests.measure.describing import describe, differences

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
PHASES = ("forward", "forward-backward", "train")


def profile(model, x=X, phase="forward", **options):
    """Profile a network with few trials."""
    few = {"trials": 2, "warmups": 1, "clean_trials": 1, "memory": False, "counters": False}
    loss = {} if phase == "forward" else {"loss": F.sum}
    return chainer_profile.profile(model, x, phase=phase, **few | loss | options)


def assert_restored(model, x=X, phase="forward", run=profile, **options):
    """Check that a run leaves a network, its input and its optimizer as they were, bit by bit."""
    objects = {"model": model, "x": x, "optimizer": options.get("optimizer")}
    before = describe(**objects)
    run(model, x, phase=phase, **options) if run is profile else run(model, x)
    assert not differences(before, describe(**objects))


def changing(change, **attributes):
    """Make a link with a linear layer, whose forward first calls ``change(link)``."""

    def forward(self, x):
        change(self)
        return self.fc(x)

    link = nets.net(forward, fc=L.Linear(6, 6))
    for name, value in attributes.items():
        setattr(link, name, value)
    return link


class Slotted:
    __slots__ = ("count", "late")

    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        self.late = True
