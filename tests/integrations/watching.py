"""Programs with exact times, and their profile by a fake clock."""

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
    """A linear layer that takes 100 ns, or ``takes_ns``."""

    def __init__(self, clock, takes_ns=100):
        super().__init__()
        self.clock, self.takes_ns, self.fails = clock, takes_ns, False
        with self.init_scope():
            self.fc = L.Linear(3, 3)

    def forward(self, x):
        self.clock.advance(self.takes_ns)
        if self.fails:
            raise ZeroDivisionError
        return self.fc(x)


class Optimizer(chainer.optimizers.SGD):
    """Its update takes 1,000 ns."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def update(self, lossfun=None, *args, **kwargs):
        super().update(lossfun, *args, **kwargs)
        self.clock.advance(1000)


class Data(chainer.iterators.SerialIterator):
    """A batch takes 10 ns; the end of the data 7."""

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
    """Watches a program by a fake clock that only the program advances: measuring is free."""

    def __init__(self, clock, **options):
        self.clock, self.began_ns, self.problems = clock, clock.time_ns, []
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
        assert sum(part.ns for part in self.accounts.spent()) == self.clock.time_ns - self.began_ns

    @property
    def spent(self):
        """Times and counts by account, the profiler's left out."""
        spent = [part for part in self.accounts.spent() if part.part != budget.PROFILER]
        return {(part.part, part.name): (part.ns, part.count) for part in spent}


def set_up(clock, takes_ns=100):
    model = Net(clock, takes_ns)
    optimizer = Optimizer(clock)
    optimizer.setup(model)
    return model, optimizer


def learn(model, optimizer, cleared=None):
    """Forward, backward and update of one iteration."""
    loss = F.sum(model(X))
    (cleared or model).cleargrads()
    loss.backward()
    optimizer.update()


@contextmanager
def in_test_mode():
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        yield
