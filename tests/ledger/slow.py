"""Losses, optimizers and parts of Chainer that take exact times on a ledger's clock."""

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
from tests.ledger.ledger import BACKWARD, SUMS, UPDATE
from tests.ledger.random_programs import Fn, X


def loss_of(ledger):
    """Make a loss that spends time and calls a function."""

    def loss(y):
        ledger.spend(8)
        ledger.in_loss = True
        y = Fn((1, 2, 3), (Fn((2, 1, 0)),)).do(ledger, y)
        ledger.in_loss = False
        return F.sum(y)

    return loss


class Add(chainer.FunctionNode):
    """A slow replacement for Chainer's addition of gradients."""

    def __init__(self, ledger):
        super().__init__()
        self.ledger = ledger

    def forward(self, inputs):
        with self.ledger.within(SUMS):
            self.ledger.spend(4 + len(inputs))
        return (np.sum(inputs, axis=0),)


@contextmanager
def slow_chainer(ledger, slow_lookup=True):
    """Make Chainer's backward pass, and the lookup of new call sites, take time."""
    check, add_site = chainer.variable._check_grad_type, Recorder.add_site

    def slow_check(function, *args):
        # Chainer checks after each function of a backward pass. An old-style function checks twice.
        if function is not None and not isinstance(function, FunctionAdapter):
            ledger.spend(2, BACKWARD)
        return check(function, *args)

    def slow_add_site(*args, **kwargs):
        ledger.advance(1000 * slow_lookup)  # must not count in any row or phase
        return add_site(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chainer.functions, "add", lambda *grads: Add(ledger).apply(grads)[0])
        patch.setattr(chainer.variable, "_check_grad_type", slow_check)
        patch.setattr(Recorder, "add_site", slow_add_site)
        yield


class Optimizer(chainer.GradientMethod):
    """An update takes 6 ns, plus 11 ns for its hook, plus 5 ns for each parameter."""

    def __init__(self, ledger, model, *hook_functions):
        super().__init__()
        self.ledger, self.hook_functions = ledger, hook_functions
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
            for fn in self.hook_functions:
                fn.do(self.ledger, X)

    def check_nan_in_grads(self):
        self.ledger.spend(6, UPDATE)
        super().check_nan_in_grads()


def step_of(phase, model, ledger):
    """Make the step of a trial."""
    if phase == "forward":
        return make_step(phase, model, (X,))
    optimizer = Optimizer(ledger, model) if phase == "train" else None
    return make_step(phase, model, (X,), loss=loss_of(ledger), optimizer=optimizer)
