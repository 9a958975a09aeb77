"""Networks that launch kernels of an exact length in a device's queue on a fake clock."""

import chainer
from chainer import FunctionNode

from chainer_profile.measure import runner
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Settings
from tests.conftest import FakeClock
from tests.fake_queue import FakeQueue
from tests.nets import image


def device_clock(read_ns=0):
    """A clock with a queue."""
    clock = FakeClock(read_ns=read_ns)
    clock.device = FakeQueue(clock)
    return clock


class Launcher:
    """In the place of a clock of the networks in :mod:`tests.nets`: their time is kernels'.

    The host needs so long to launch one of them.
    """

    def __init__(self, clock, launch_ns):
        self._clock, self._launch_ns = clock, launch_ns

    def advance(self, duration_ns):
        """Launch a kernel of that length."""
        self._clock.advance(self._launch_ns)
        self._clock.device.launch(duration_ns)


def follow(clock, plan, x):
    """Follow a plan: pairs of an action and its value, in order.

    ("host", ns) keeps the host busy, ("kernel", ns) launches one, ("wait", 0) waits for the device,
    and ("call", plan) calls a function of that plan.
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
    """A function that follows a plan, also in its backward."""

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
    """A network that follows a plan, and a change in its place from one call on.

    Attributes:
        calls: How often it was called.
        first_change: The first call with the change; these count from 1.
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
    """A function of one kernel, which the host needs so long to launch."""
    return (("host", launch_ns), ("kernel", duration_ns))


def calls(*plans, between_ns=0):
    """A network that calls functions of these plans, with the host busy before each of them."""
    plan = ()
    for inner in plans:
        plan += (("host", between_ns), ("call", inner))
    return plan


MS = 1_000_000
N_STRUCTURE = 3  # structure passes before the first trial
N_HELD = 20
BEFORE = N_STRUCTURE + 2  # calls before the first profiled trial

# Launching takes 100, the kernels less, and the host is busy for 50 between the functions and for
# 80 behind the last one. On the device's clock, from the trial's first event on:
#   0    first event
#   50   enter 0, and launched at 150: kernel until 180, leave 0
#   200  enter 1, and launched at 300: kernel until 320, leave 1
#   350  enter 2, and launched at 450: kernel until 500, leave 2
#   530  last event, and all is done
LAUNCH_BOUND = (
    *calls(kernel(100, 30), kernel(100, 20), kernel(100, 50), between_ns=50),
    ("host", 80),
)
# Launching takes 10, the kernels more:
#   0    first event
#   5    enter 0, and launched at 15: kernel until 315, leave 0; the host is at 15 by then
#   315  enter 1 (the host at 20), and launched at 30: kernel until 515, leave 1
#   515  enter 2 (the host at 35), and launched at 45: kernel until 1015, leave 2
#   1015 last event (the host at 50)
DEVICE_BOUND = (
    *calls(kernel(10, 300), kernel(10, 200), kernel(10, 500), between_ns=5),
    ("host", 5),
)


def asked(**changes):
    return Settings(**({"trials": 20, "clean_trials": 5, "warmups": 2} | changes))


def run(model, made=None, phase="forward", loss="auto", optimizer=None, **kwargs):
    """A run without the memory pass."""
    step = make_step(phase, model, (image(),), loss=loss, optimizer=optimizer)
    return runner.run(step, made or asked(), **({"memory": False, "clock": model.clock} | kwargs))


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
    # The host's wait for the device at the end, and the launches before.
    assert (recording.trial_ns >= recording.launch_ns).all()
    assert (recording.host_ns.sum(axis=1) <= recording.launch_ns).all()
    # The device starts with the trial's first event, and all trials start with an idle device.
    assert (recording.trial_ns >= recording.span_ns).all()
    if recording.held_ns is not None:
        assert (recording.held_ns >= 0).all()
        assert (recording.held_ns.sum(axis=1) <= recording.held_span_ns).all()


def fails(error):
    """After its first function and the launch of a long kernel the network fails."""

    def change(model, x):
        follow(model.clock, (*model.plan[:2], ("kernel", 12345)), x)
        raise error

    return change


def other_calls(*plans):
    """The network calls functions of other plans."""
    return lambda model, x: follow(model.clock, calls(*plans), x)
