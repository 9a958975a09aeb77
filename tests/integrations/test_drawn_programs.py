"""Drawn training loops on a fake clock: their iterations, rows and parts are exact."""

from dataclasses import dataclass

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.integrations.program import Program
from chainer_profile.measure import iteration_writer
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.budget import INTERRUPTED, ITERATIONS, TEST_CALLS
from chainer_profile.record.journal import Journal
from tests.conftest import FakeClock

X = np.ones((2, 3), np.float32)
#: Nanoseconds of a load, a teacher's call, own code in an iteration, an update and own code after.
LOAD_NS, TEACHER_NS, OWN_NS, UPDATE_NS, PLOT_NS = 10, 70, 5, 1000, 100_000
#: The same of the forward and the backward of a network, by the number of the network.
FORWARD_NS, BACKWARD_NS = (100, 200, 400), (1, 2, 4)


class Slow(chainer.FunctionNode):
    """Passes its input on, which takes time."""

    def __init__(self, clock, forward_ns, backward_ns):
        super().__init__()
        self.clock, self.times_ns = clock, (forward_ns, backward_ns)

    def forward(self, inputs):
        self.clock.advance(self.times_ns[0])
        return (inputs[0].copy(),)

    def backward(self, indexes, grads):
        self.clock.advance(self.times_ns[1])
        return grads


class Net(chainer.Chain):
    def __init__(self, clock, *times_ns):
        super().__init__()
        self.clock, self.times_ns = clock, times_ns
        with self.init_scope():
            self.fc = L.Linear(3, 3)

    def forward(self, x):
        return Slow(self.clock, *self.times_ns).apply((self.fc(x),))[0]


class SlowUpdate(chainer.optimizers.SGD):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def update(self, lossfun=None, *args, **kwargs):
        super().update(lossfun, *args, **kwargs)
        self.clock.advance(UPDATE_NS)


class Data(chainer.iterators.SerialIterator):
    def __init__(self, clock):
        super().__init__(list(X), 2)
        self.clock = clock

    def __next__(self):
        self.clock.advance(LOAD_NS)
        return super().__next__()

    next = __next__


@dataclass(frozen=True)
class Plan:
    """The operations of a drawn program."""

    n_optimizers: int
    critic_steps: int
    iterations: int
    loads: bool
    teacher: bool
    lossfun: bool
    tests: tuple[int, ...]  #: Calls in test mode after each iteration.
    stops: bool  #: After the last iteration another one begins, and does not end.

    @property
    def cycle(self):
        several = self.n_optimizers > 1
        return [0] * (self.critic_steps if several else 1) + [*range(1, self.n_optimizers)]

    @property
    def step_ns(self):
        own_ns = 0 if self.lossfun else OWN_NS
        return [
            FORWARD_NS[n] + BACKWARD_NS[n] + UPDATE_NS + own_ns + self.teacher * TEACHER_NS
            for n in self.cycle
        ]

    @property
    def iteration_ns(self):
        between_ns = (len(self.cycle) - 1) * OWN_NS
        return self.loads * LOAD_NS + sum(self.step_ns) + between_ns


PLANS = st.builds(
    Plan,
    n_optimizers=st.integers(1, 3),
    critic_steps=st.integers(1, 3),
    iterations=st.integers(2, 5),
    loads=st.booleans(),
    teacher=st.booleans(),
    lossfun=st.booleans(),
    tests=st.lists(st.integers(0, 3), min_size=5, max_size=5).map(tuple),
    stops=st.booleans(),
)


def run(plan, clock):
    """The program."""
    nets = [Net(clock, FORWARD_NS[n], BACKWARD_NS[n]) for n in range(plan.n_optimizers)]
    teacher = Net(clock, TEACHER_NS, 0)
    optimizers = [SlowUpdate(clock).setup(net) for net in nets]
    data = Data(clock)

    def loss_of(number):
        loss = F.sum(nets[number](X))
        if plan.teacher:
            with chainer.using_config("train", False), chainer.no_backprop_mode():
                teacher(X)
        return loss

    def step(number):
        if plan.lossfun:
            optimizers[number].update(loss_of, number)
            return
        loss = loss_of(number)
        clock.advance(OWN_NS)
        nets[number].cleargrads()
        loss.backward()
        optimizers[number].update()

    for iteration in range(plan.iterations):
        if plan.loads:
            next(data)
        for at, number in enumerate(plan.cycle):
            if at:
                clock.advance(OWN_NS)
            step(number)
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            for _ in range(plan.tests[iteration]):
                nets[0](X)
        clock.advance(PLOT_NS)
    if plan.stops:
        if plan.loads:
            next(data)
        loss_of(0)  # outside of an update: the call of a network alone


@pytest.fixture(autouse=True, scope="module")
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iteration_writer, "cost_of_a_call", lambda now_ns: 0.0)
        patch.setattr(iteration_writer, "window_ns", lambda now_ns, device: 0.0)
        yield


@given(PLANS)
def test_iterations_rows_and_parts_of_a_drawn_program_are_exact(plan):
    clock = FakeClock()
    accounts = Accounts(clock.now_ns, began_ns := clock.time_ns)
    problems = []
    program = Program(accounts, lambda name: Journal(), warn=lambda *words: problems.append(words))
    with program:
        run(plan, clock)
    assert problems == []
    spent = {(part.part, part.name): (part.ns, part.count) for part in accounts.spent()}
    assert sum(ns for ns, _ in spent.values()) == clock.time_ns - began_ns
    assert spent[ITERATIONS, ""] == (plan.iterations * plan.iteration_ns, plan.iterations)
    tests = sum(plan.tests[: plan.iterations])
    # The teacher's call that ends the program is after the last training unit.
    last = int(plan.stops and plan.teacher)
    tests_ns = tests * FORWARD_NS[0] + last * TEACHER_NS
    assert spent.get((TEST_CALLS, ""), (0, 0)) == (tests_ns, tests + last)
    began_ns = plan.loads * LOAD_NS + FORWARD_NS[0]
    assert spent.get((INTERRUPTED, ""), (0, 0)) == ((began_ns, 1) if plan.stops else (0, 0))
    recording = program.recordings()["train"]
    assert recording.trial_ns.tolist() == [plan.iteration_ns] * plan.iterations
    by_row = {
        (layer.path, layer.function, layer.phase): ns
        for layer, ns in zip(recording.layers, recording.self_ns.sum(axis=0).tolist(), strict=True)
    }
    for number in range(plan.n_optimizers):
        path = "/" if plan.n_optimizers == 1 else f"/Net-{number + 1}"
        n = plan.iterations * plan.cycle.count(number)
        assert by_row[path, "Slow", "forward"] == n * FORWARD_NS[number]
        assert by_row[path, "Slow", "backward"] == n * BACKWARD_NS[number]
    framework_ns = recording.framework_ns.sum()
    assert recording.self_ns.sum() + framework_ns <= recording.trial_ns.sum()
