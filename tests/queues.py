"""Networks that launch kernels of exact durations in a fake device queue."""

import chainer
from chainer import FunctionNode

from chainer_profile.measure import runner
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Settings
from tests.conftest import FakeClock
from tests.fake_queue import FakeQueue
from tests.nets import image


def device_clock(read_ns=0):
    """Make a fake clock with a device queue."""
    clock = FakeClock(read_ns=read_ns)
    clock.device = FakeQueue(clock)
    return clock


class Launcher:
    """Replaces the clock of networks in :mod:`tests.nets`, and launches kernels instead of waiting.

    A launch takes ``launch_ns`` on the host.
    """

    def __init__(self, clock, launch_ns):
        self._clock, self._launch_ns = clock, launch_ns

    def advance(self, duration_ns):
        """Launch a kernel of this duration."""
        self._clock.advance(self._launch_ns)
        self._clock.device.launch(duration_ns)


def follow(clock, plan, x):
    """Run a plan, which is a sequence of actions with values.

    ("host", ns) keeps the host busy, ("kernel", ns) launches a kernel, ("wait", 0) waits for the
    device, and ("call", plan) calls a function that runs a plan.
    """
    for kind, value in plan:
        if kind == "host":
            clock.advance(value)
        elif kind == "kernel":
            clock.device.launch(value)
        elif kind == "wait":
            clock.device.synchronize()
        else:
            x = Planned(clock, value).apply((x,))[0]
    return x


class Planned(FunctionNode):
    """A function that runs a plan in forward and backward."""

    def __init__(self, clock, plan):
        super().__init__()
        self._clock, self._plan = clock, plan

    def forward(self, inputs):
        follow(self._clock, self._plan, inputs[0])
        return (inputs[0].copy(),)

    def backward(self, indexes, grads):
        follow(self._clock, self._plan, grads[0])
        return grads


class PlannedNet(chainer.Chain):
    """A network that runs a plan, and a change instead of it from a certain call on.

    Attributes:
        calls: Number of calls.
        first_change: First call that runs the change, counted from 1.
    """

    def __init__(self, clock, plan, first_change=0, change=None):
        super().__init__()
        self.clock, self.plan, self.calls = clock, plan, 0
        self.first_change, self._change = first_change, change

    def forward(self, x):
        self.calls += 1
        if self._change is not None and self.calls >= self.first_change:
            return self._change(self, x)
        return follow(self.clock, self.plan, x)


def kernel(launch_ns, duration_ns):
    """Plan of a function with one kernel."""
    return (("host", launch_ns), ("kernel", duration_ns))


def calls(*plans, between_ns=0):
    """Plan of a network that calls functions with these plans, after ``between_ns`` on the host."""
    plan = ()
    for inner in plans:
        plan += (("host", between_ns), ("call", inner))
    return plan


MS = 1_000_000
N_STRUCTURE = 3  # structure passes before the first trial
N_HELD = 20
BEFORE = N_STRUCTURE + 2  # calls before the first profiled trial

# Launching takes 100, and kernels take less. The host is busy for 50 before each function, and for
# 80 after the last one. Times on the device's clock, from the first event of a trial:
#   0    first event
#   50   enter 0, and launched at 150: kernel until 180, leave 0
#   200  enter 1, and launched at 300: kernel until 320, leave 1
#   350  enter 2, and launched at 450: kernel until 500, leave 2
#   530  last event
LAUNCH_BOUND = (
    *calls(kernel(100, 30), kernel(100, 20), kernel(100, 50), between_ns=50),
    ("host", 80),
)
# Launching takes 10, and kernels take more:
#   0    first event
#   5    enter 0, and launched at 15: kernel until 315, leave 0 (the host at 15)
#   315  enter 1 (the host at 20), and launched at 30: kernel until 515, leave 1
#   515  enter 2 (the host at 35), and launched at 45: kernel until 1015, leave 2
#   1015 last event (the host at 50)
DEVICE_BOUND = (
    *calls(kernel(10, 300), kernel(10, 200), kernel(10, 500), between_ns=5),
    ("host", 5),
)


def asked(**changes):
    return Settings(**({"trials": 20, "clean_trials": 5, "warmups": 2} | changes))


def run(model, settings=None, phase="forward", loss="auto", optimizer=None, **kwargs):
    """Run trials without the memory pass."""
    step = make_step(phase, model, (image(),), loss=loss, optimizer=optimizer)
    return runner.run(
        step, settings or asked(), **({"memory": False, "clock": model.clock} | kwargs)
    )


def check(recording):
    """Check the properties of every trial on a device."""
    n_trials, n_layers = recording.n_trials, len(recording.layers)
    assert recording.on_device
    assert recording.host_ns.shape == recording.gap_ns.shape == (n_trials, n_layers)
    tail = recording.span_ns - recording.self_ns.sum(axis=1) - recording.gap_ns.sum(axis=1)
    for times in (recording.self_ns, recording.gap_ns, recording.host_ns, tail):
        assert (times >= 0).all()
    if recording.framework_ns is not None:
        inside = recording.framework_ns.sum(axis=1)
        assert (inside >= 0).all()
        assert (inside <= recording.gap_ns.sum(axis=1) + tail).all()
    # A trial has launches, and at its end a wait for the device.
    assert (recording.trial_ns >= recording.launch_ns).all()
    assert (recording.host_ns.sum(axis=1) <= recording.launch_ns).all()
    # The device is idle before the first event of a trial.
    assert (recording.trial_ns >= recording.span_ns).all()
    if recording.held_ns is not None:
        assert (recording.held_ns >= 0).all()
        assert (recording.held_ns.sum(axis=1) <= recording.held_span_ns).all()


def fails(error):
    """Make a change that calls the first function, launches a long kernel, and raises."""

    def change(model, x):
        follow(model.clock, (*model.plan[:2], ("kernel", 12345)), x)
        raise error

    return change


def other_calls(*plans):
    """Make a change that calls functions with other plans."""
    return lambda model, x: follow(model.clock, calls(*plans), x)
