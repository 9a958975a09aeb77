"""Trials with the layers as named ranges for the device's own tools."""

from __future__ import annotations

import chainer
import chainer.links as L
import pytest

from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.ranges import mark_ranges, range_names
from chainer_profile.measure.runner import RunError
from chainer_profile.measure.steps import make_step
from tests.nets import image
from tests.queues import (
    LAUNCH_BOUND,
    PlannedNet,
    asked,
    calls,
    device_clock,
    fails,
    kernel,
    run,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def clock():
    return device_clock()


def log_of(model, phase, trials, clock):
    """What the device was told in marked trials."""
    step = make_step(phase, model, (image(),), loss="mean_squared_error")
    with step.configured():
        structure = learn_structure(step)
        clock.device.log.clear()
        mark_ranges(step, structure, clock.device, trials)
    return structure, clock.device.log


def test_every_window_is_a_range_with_its_path(clock):
    nested = (("host", 5), ("call", kernel(1, 1)))
    model = PlannedNet(clock, calls(kernel(1, 2), nested))
    _, log = log_of(model, "forward", 2, clock)
    layers = ["push / Planned", "pop", "push / Planned", "push / Planned", "pop", "pop"]
    one = [*layers, "pop", "synchronize"]
    assert log == ["start", "push trial 0", *one, "push trial 1", *one, "stop"]


def test_phases_are_ranges_around_their_layers(clock):
    model = chainer.Sequential(L.Linear(2, 4))
    structure, log = log_of(model, "train", 1, clock)
    loss, linear = "push backward loss MeanSquaredError", "push backward /0 LinearFunction"
    assert log == [
        *("start", "push trial 0", "push update"),
        *("push forward", "push /0 LinearFunction", "pop"),
        *("push loss MeanSquaredError", "pop", "pop"),
        *("push backward cleargrads cleargrads", "pop"),
        # A backward runs functions of its own, which count for it.
        *("push backward", loss, *(loss, "pop") * 4, "pop"),
        *(linear, *(linear, "pop") * 2, "pop", "pop"),
        *("push update optimizer WeightDecay", "pop"),
        *("push update /0 MomentumSGD", "pop", "push update /0 MomentumSGD", "pop"),
        *("pop", "pop", "synchronize", "stop"),
    ]
    assert len(range_names(structure)) == len(structure.owners)


def test_on_the_host_there_are_none(clock):
    model = PlannedNet(clock, LAUNCH_BOUND)
    step = make_step("forward", model, (image(),))
    mark_ranges(step, learn_structure(step), None)
    assert model.calls == 1


def test_an_exception_closes_all_ranges(clock):
    model = PlannedNet(clock, LAUNCH_BOUND, 2, fails(ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        log_of(model, "forward", 1, clock)
    log = clock.device.log
    assert log[-1] == "stop"
    assert sum(entry.startswith("push") for entry in log) == log.count("pop") > 1


def test_a_run_makes_them_after_its_trials(clock):
    recording = run(PlannedNet(clock, LAUNCH_BOUND), clock=clock, ranges=True)
    log = clock.device.log
    assert [log.count(f"push trial {n}") for n in range(11)] == [1] * 10 + [0]
    assert log.index("start") > len(log) - 10 * 9 - 10
    without = run(PlannedNet(device := device_clock(), LAUNCH_BOUND), clock=device)
    assert "start" not in device.device.log
    assert without.self_ns.tolist() == recording.self_ns.tolist()


def test_a_failure_in_them_keeps_the_trials(clock):
    model = PlannedNet(clock, LAUNCH_BOUND, 3 + 2 + 25 + 20 + 1, fails(ValueError("no")))
    with pytest.raises(RunError, match="the network fails after 20 trials") as caught:
        run(model, asked(), clock=clock, ranges=True)
    assert caught.value.recording.n_trials == 20
