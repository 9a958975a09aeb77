"""Programs that take exact times on a fake clock, and their profile."""

from contextlib import contextmanager

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.integrations.program import Program
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record import budget
from chainer_profile.record.journal import Journal

X, T = np.ones((4, 3), np.float32), np.zeros(4, np.int32)
MS = 1_000_000


class Net(chainer.Chain):
    """A linear layer that takes 100 ns, or ``duration_ns``."""

    def __init__(self, clock, duration_ns=100):
        super().__init__()
        self.clock, self.duration_ns, self.fails = clock, duration_ns, False
        with self.init_scope():
            self.fc = L.Linear(3, 3)

    def forward(self, x):
        self.clock.advance(self.duration_ns)
        if self.fails:
            raise ZeroDivisionError
        return self.fc(x)


class Optimizer(chainer.optimizers.SGD):
    """An optimizer whose update takes 1,000 ns."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def update(self, lossfun=None, *args, **kwargs):
        super().update(lossfun, *args, **kwargs)
        self.clock.advance(1000)


class Data(chainer.iterators.SerialIterator):
    """An iterator that takes 10 ns per batch, and 7 ns at the end of the data."""

    def __init__(self, clock, **more):
        super().__init__(list(zip(X, T, strict=True)), 2, **more)
        self.clock = clock

    def __next__(self):
        self.clock.advance(7)
        batch = super().__next__()
        self.clock.advance(3)
        return batch

    next = __next__


class Watching:
    """Watches a program on a fake clock that only the program advances."""

    def __init__(self, clock, **options):
        self.clock, self.start_ns, self.problems = clock, clock.time_ns, []
        self.accounts = Accounts(clock.now_ns, clock.time_ns)
        self.program = Program(
            self.accounts,
            lambda name: Journal(),
            warn=lambda name, problem: self.problems.append(f"{name}: {problem}"),
            **options,
        )

    @contextmanager
    def within(self):
        with self.program:
            yield
        assert (
            sum(account.ns for account in self.accounts.spent())
            == self.clock.time_ns - self.start_ns
        )

    @property
    def spent(self):
        """Times and counts by account, without the profiler's account."""
        spent = [each for each in self.accounts.spent() if each.part != budget.PROFILER]
        return {(each.part, each.name): (each.ns, each.count) for each in spent}


def set_up(clock, duration_ns=100):
    model = Net(clock, duration_ns)
    optimizer = Optimizer(clock)
    optimizer.setup(model)
    return model, optimizer


def learn(model, optimizer, cleared=None):
    """Run forward, backward and update of one iteration."""
    loss = F.sum(model(X))
    (cleared or model).cleargrads()
    loss.backward()
    optimizer.update()


@contextmanager
def in_test_mode():
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        yield
