"""NaN and infinities in a network are looked for once, beside the trials, and are a finding."""

import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile import profile, summarise
from tests.nets import net


def network(log=False):
    """The logarithm of the first layer's output is no number where that is negative."""
    links = {"first": L.Linear(3, 4, initialW=-1), "second": L.Linear(4, 2)}
    return net(lambda self, x: self.second((F.log if log else F.identity)(self.first(x))), **links)


def profiled(phase, log, weight):
    model = network(log)
    model.second.W.array[0, 0] = weight
    with np.errstate(all="ignore"):
        return profile(model, np.ones((2, 3), "f"), phase=phase, trials=4, memory=False)


def test_values_that_are_not_finite_are_named_and_a_finding():
    for phase, log, weight, names in (
        ("forward", False, 1, ()),
        ("forward", True, 1, ("the output",)),
        ("forward", False, np.inf, ("the output", "/second/W")),
        ("forward-backward", False, 1, ()),
        ("train", False, 1, ()),
    ):
        assert profiled(phase, log, weight).conditions.not_finite == names
    # Of a training step parameters and gradients tell.
    for phase in ("forward-backward", "train"):
        names = profiled(phase, True, 1).conditions.not_finite
        assert any(name.endswith("/first/W") for name in names)
    summary = summarise(profiled("forward", False, np.nan))
    assert "not-finite" in [finding.code for finding in summary.findings]
