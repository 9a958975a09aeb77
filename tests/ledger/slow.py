"""Losses, optimizers and Chainer's own code that take an exact time of a ledger's clock."""

from __future__ import annotations

from contextlib import contextmanager

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer.function import FunctionAdapter

from chainer_profile.basics.paths import joined, link_of
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.steps import make_step
from tests.ledger.drawn import Fn, X
from tests.ledger.ledger import BACKWARD, SUMS, UPDATE


def loss_of(ledger):
    """A loss with time and a function of its own."""

    def loss(y):
        ledger.spend(8)
        ledger.in_loss = True
        y = Fn((1, 2, 3), (Fn((2, 1, 0)),)).do(ledger, y)
        ledger.in_loss = False
        return F.sum(y)

    return loss


class Add(chainer.FunctionNode):
    """Replaces Chainer's addition of gradients, and takes time."""

    def __init__(self, ledger):
        super().__init__()
        self.ledger = ledger

    def forward(self, inputs):
        with self.ledger.within(SUMS):
            self.ledger.spend(4 + len(inputs))
        return (np.sum(inputs, axis=0),)


@contextmanager
def slow_chainer(ledger, slow_lookup=True):
    """Let Chainer's own parts of a backward pass take time, and the lookup of a new call."""
    check, add_site = chainer.variable._check_grad_type, Recorder.add_site

    def checked(function, *args):
        # In a backward pass, after every function; one of the old style checks by itself, too.
        if function is not None and not isinstance(function, FunctionAdapter):
            ledger.spend(2, BACKWARD)
        return check(function, *args)

    def looked_up(*args, **kwargs):
        ledger.advance(1000 * slow_lookup)  # must be in no row or phase
        return add_site(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chainer.functions, "add", lambda *grads: Add(ledger).apply(grads)[0])
        patch.setattr(chainer.variable, "_check_grad_type", checked)
        patch.setattr(Recorder, "add_site", looked_up)
        yield


class Optimizer(chainer.GradientMethod):
    """Its update of a parameter takes 5 ns, its hook 11, and 6 pass before."""

    def __init__(self, ledger, model, *hooked):
        super().__init__()
        self.ledger, self.hooked = ledger, hooked
        self.paths = {
            id(param): joined(ledger.prefix, link_of(path))
            for path, param in reversed(list(model.namedparams()))
        }
        self.setup(model)
        self.add_hook(self.hook, "Hook")

    def create_update_rule(self):
        rule = chainer.UpdateRule(self.hyperparam)
        rule.update_core = self.update_param
        return rule

    def update_param(self, param):
        with self.ledger.within((self.paths[id(param)], "Optimizer", "update")):
            self.ledger.spend(5)

    def hook(self, optimizer):
        with self.ledger.within(("optimizer", "Hook", "update")):
            self.ledger.spend(11)
            for fn in self.hooked:
                fn.do(self.ledger, X)

    def check_nan_in_grads(self):
        self.ledger.spend(6, UPDATE)
        super().check_nan_in_grads()


def step_of(phase, model, ledger):
    """The step of a trial of a phase."""
    if phase == "forward":
        return make_step(phase, model, (X,))
    optimizer = Optimizer(ledger, model) if phase == "train" else None
    return make_step(phase, model, (X,), loss=loss_of(ledger), optimizer=optimizer)
