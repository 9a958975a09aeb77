"""NaN, infinity and denormal numbers in networks are found and reported."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import Sequential

from chainer_profile import LayerTimerHook, profile, profiling, summarise
from chainer_profile.integrations.program import Program
from chainer_profile.measure import values
from chainer_profile.measure.accounts import Accounts
from chainer_profile.measure.clock import Clock
from chainer_profile.record.journal import Journal
from tests.nets import net


def network(log=False):
    """Make a network whose output is NaN with ``log``: the logarithm of a negative number."""
    links = {"first": L.Linear(3, 4, initialW=-1), "second": L.Linear(4, 2)}
    return net(lambda self, x: self.second((F.log if log else F.identity)(self.first(x))), **links)


def profile_phase(phase, log, weight):
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
        assert profile_phase(phase, log, weight).conditions.not_finite == names
    # A training step has NaN in parameters and gradients.
    for phase in ("forward-backward", "train"):
        names = profile_phase(phase, True, 1).conditions.not_finite
        assert any(name.endswith("/first/W") for name in names)
    summary = summarise(profile_phase("forward", False, np.nan))
    assert "not-finite" in [finding.code for finding in summary.findings]


TINY = 1e-40


@pytest.fixture
def measured_shares(monkeypatch):
    """List of the shares of denormal numbers whose slowdown was measured: 150 times the share."""
    shares = []

    def cost(part, dtype, now_ns):
        shares.append(part)
        return 150 * part

    monkeypatch.setattr(values, "slowdown", cost)
    return shares


def names(recording):
    return {each.name: round(each.part, 2) for each in recording.conditions.denormals}


def two_layers(first=1.0, second=1.0):
    layers = L.Linear(4, 4, initialW=first), L.Linear(4, 2, initialW=second)
    return Sequential(layers[0], layers[1])


X = np.ones((2, 4), "f")


def test_denormal_parameters_and_arrays_of_calls_are_named(measured_shares):
    by_weights = names(profile(two_layers(TINY), X, trials=4, memory=False))
    assert by_weights == {
        "/0/W": 1.0,
        "the inputs or outputs of /0 LinearFunction": 1.0,
        "the inputs or outputs of /1 LinearFunction": 1.0,
    }
    # Weights of zero give outputs of zero.
    assert not names(profile(two_layers(0), X, trials=4, memory=False))
    assert not names(profile(two_layers(), X, trials=4, memory=False))
    # A tiny loss gives the second layer's outputs tiny gradients.
    trained = names(
        profile(
            two_layers(), X, trials=4, memory=False, phase="forward-backward",
            loss=lambda y: F.sum(y * np.float32(TINY)),
        )
    )  # fmt: skip
    assert trained.keys() >= {"the gradients of /1 LinearFunction"}


def test_small_parts_and_small_costs_are_omitted(measured_shares):
    weight = np.ones((100, 100), "f")
    net = net_of(weight)
    for n_rows, is_named in ((0, False), (4, False), (25, False), (50, True)):
        weight[:n_rows, :2] = TINY
        assert names(profile(net, np.ones((1, 100), "f"), trials=2)).keys() == (
            {"/0/W"} if is_named else set()
        )
    assert measured_shares == [0.005, 0.01]  # 8 of 10,000 are too few


def net_of(weight):
    net = Sequential(L.Linear(*weight.shape[::-1], nobias=True))
    net[0].W.array = weight
    return net


def test_denormal_optimizer_state_is_named(measured_shares):
    net = two_layers()
    optimizer = chainer.optimizers.Adam().setup(net)
    net.cleargrads()
    F.sum(net(X)).backward()
    optimizer.update()
    net[1].W.update_rule.state["v"][:] = TINY
    (found,) = (each for each in values.find_denormals([("/a", net)]) if each.part)
    assert (found.name, found.path) == ("the optimizer's v of /a/1/W", "/a/1")
    assert (found.phase, found.function, found.part) == ("update", "", 1.0)


def with_hook(net):
    with LayerTimerHook() as hook:
        net(X)
    return hook.recording()


def with_block(net):
    block = profiling()
    with block:
        net(X)
    return block.recording()


def with_program(net):
    clock = Clock(lambda: 0)
    program = Program(Accounts(clock.now_ns, 0), lambda name: Journal())
    with program:
        net(X)
    return program.recordings()["test"]


@pytest.mark.parametrize("profiled", [with_hook, with_block, with_program])
def test_every_entry_point_finds_denormal_numbers(measured_shares, profiled):
    found = names(profiled(two_layers(TINY)))
    assert any(name.endswith("0/W") for name in found)
    assert any(name.startswith("the inputs or outputs of") for name in found)
