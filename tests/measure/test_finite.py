"""NaN and infinity in a network are found and reported."""

import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile import profile, summarise
from tests.nets import net


def network(log=False):
    """A network that may take the logarithm of a negative output, which is NaN."""
    links = {"first": L.Linear(3, 4, initialW=-1), "second": L.Linear(4, 2)}
    return net(lambda self, x: self.second((F.log if log else F.identity)(self.first(x))), **links)


def profiled(phase, log, weight):
    model = network(log)
    model.second.W.array[0, 0] = weight
    with np.errstate(all="ignore"):
        return profile(model, np.ones((2, 3), "f"), phase=phase, trials=4, memory=False)


def test_nan_and_infinity_are_named_in_conditions_and_findings():
    for phase, log, weight, names in (
        ("forward", False, 1, ()),
        ("forward", True, 1, ("the output",)),
        ("forward", False, np.inf, ("the output", "/second/W")),
        ("forward-backward", False, 1, ()),
        ("train", False, 1, ()),
    ):
        assert profiled(phase, log, weight).conditions.not_finite == names
    # A training step shows NaN in parameters and gradients.
    for phase in ("forward-backward", "train"):
        names = profiled(phase, True, 1).conditions.not_finite
        assert any(name.endswith("/first/W") for name in names)
    summary = summarise(profiled("forward", False, np.nan))
    assert "not-finite" in [finding.code for finding in summary.findings]
