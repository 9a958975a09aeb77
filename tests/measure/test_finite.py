"""NaN and infinities in a network are found once, beside the trials, and are a finding."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

import chainer_profile
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


def test_what_is_not_finite_is_named_and_a_finding():
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
    found = summarise(profiled("forward", False, np.nan))
    assert "not-finite" in [one.code for one in found.findings]


def test_of_a_program_that_runs_anyway_its_parameters_tell_at_the_end():
    model = L.Classifier(network())
    optimizer = chainer.optimizers.SGD(lr=1e30).setup(model)
    x, t = np.ones((2, 3), np.float32), np.zeros(2, np.int32)
    profiling = chainer_profile.profiling()
    for _ in range(6):
        with np.errstate(all="ignore"), profiling:
            optimizer.update(model, x, t)
    assert "/model/predictor/second/W" in profiling.recording().conditions.not_finite
