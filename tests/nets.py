"""Small networks with functions that take exact times on a fake clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import chainer
import numpy as np
import pytest
from chainer import FunctionNode

from tests.conftest import FakeClock


class Wait(FunctionNode):
    """Copies its input. Forward and backward take ``duration_ns`` and ``backward_ns``."""

    def __init__(self, clock: FakeClock, duration_ns: int, backward_ns: int = 0) -> None:
        super().__init__()
        self._clock = clock
        self._duration_ns = duration_ns
        self._backward_ns = backward_ns

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        return (inputs[0].copy(),)

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._backward_ns)
        return grads * len(indexes)


class LongWait(Wait):
    """A Wait with another name."""


class Outer(Wait):
    """Waits, calls a nested Wait of 30 ns, and waits again."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        (inner,) = Wait(self._clock, 30).apply(inputs)
        self._clock.advance(self._duration_ns)
        return (inner.array,)


class Sum(Wait):
    """Adds its inputs."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        return (np.sum(inputs, axis=0),)


class Add(Sum):
    """A Sum with the name of Chainer's addition of gradients."""


class Nesting(Sum):
    """A Sum whose backward calls a Wait of 3 ns."""

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        inner: Any = Wait(self._clock, 3, 4).apply(super().backward((0,), grads))
        return (*(inner * len(indexes)),)


class Total(Wait):
    """Sums all elements of its input."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        self._shape = inputs[0].shape
        return (np.array(inputs[0].sum()),)

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._backward_ns)
        return (chainer.Variable(np.full(self._shape, grads[0].array)),)


class Step(chainer.Link):
    """A link that calls a Wait, and spends 7 ns itself."""

    def __init__(
        self, clock: FakeClock, forward_ns: int, cls: type[Wait] = Wait, backward_ns: int = 0
    ) -> None:
        super().__init__()
        self._clock, self._cls = clock, cls
        self._duration_ns, self._backward_ns = forward_ns, backward_ns

    def forward(self, x: Any) -> Any:
        self._clock.advance(5)
        call = self._cls(self._clock, self._duration_ns, self._backward_ns)
        (y,) = call.apply((x, *self.params()))
        self._clock.advance(2)
        return y


class Weighted(Step):
    """A Step that adds a parameter."""

    def __init__(
        self, clock: FakeClock, forward_ns: int, backward_ns: int, cls: type[Wait] = Sum
    ) -> None:
        super().__init__(clock, forward_ns, cls, backward_ns)
        with self.init_scope():
            self.W = chainer.Parameter(np.zeros((1, 2), np.float32))


class Chain(chainer.Chain):
    """Calls first (100 ns) and twice second (40 ns): 3 calls in 208 ns, 7 ns of them itself."""

    own_ns = 7

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.calls = 0
        with self.init_scope():
            self.first, self.second = self.steps(clock)

    def steps(self, clock: FakeClock) -> tuple[Step, Step]:
        return Step(clock, 100), Step(clock, 40, LongWait)

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.clock.advance(self.own_ns)
        return self.second(self.second(self.first(x)))


class Trained(Chain):
    """A Chain with parameters. Backward takes 200 ns in first, and 80 ns per call of second."""

    own_ns = 10

    def steps(self, clock: FakeClock) -> tuple[Step, Step]:
        return Weighted(clock, 100, 200), Weighted(clock, 40, 80, Nesting)

    def cleargrads(self) -> None:
        self.clock.advance(9)
        super().cleargrads()


class SlowRule(chainer.UpdateRule):
    """Subtracts the gradient, which takes 50 ns."""

    clock: FakeClock

    def update_core(self, param: Any) -> None:
        self.clock.advance(50)
        param.array -= param.grad


class SlowOptimizer(chainer.GradientMethod):
    """Updates each parameter in 50 ns, and checks for cleared gradients in 1 ns."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def create_update_rule(self) -> SlowRule:
        rule = SlowRule(self.hyperparam)
        rule.clock = self.clock
        return rule

    def reallocate_cleared_grads(self) -> None:
        self.clock.advance(1)
        super().reallocate_cleared_grads()


@dataclass
class SlowHook:
    """A hook of an optimizer or update rule that only takes time."""

    clock: FakeClock
    duration_ns: int
    name: str = "SlowHook"
    timing: str = "pre"
    call_for_each_param: bool = False

    def __call__(self, *_: object) -> None:
        self.clock.advance(self.duration_ns)


def slow_loss(clock: FakeClock) -> Any:
    """Make a loss that spends 11 ns, and calls a Total of 20 ns, and 30 ns in backward."""

    def loss(y: Any) -> Any:
        clock.advance(11)
        return Total(clock, 20, 30).apply((y,))[0]

    return loss


def slow_sums(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """Make each addition of gradients take 13 ns."""

    def add(*grads: Any) -> Any:
        return Add(clock, 13).apply(grads)[0]

    monkeypatch.setattr(chainer.functions, "add", add)


def image(*shape: int) -> Any:
    return np.zeros(shape or (1, 2), np.float32)


def net(forward: Any, **links: Any) -> Any:
    """Make a network with these links and this forward."""

    class Net(chainer.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                for name, link in links.items():
                    setattr(self, name, link)

        def forward(self, *inputs: Any) -> Any:
            return forward(self, *inputs)

    return Net()


class MLP(chainer.Chain):
    """Two linear layers. ``does(y, number)`` may replace the output of a call."""

    def __init__(self, does: Any = None) -> None:
        super().__init__()
        self.calls, self.does = 0, does
        with self.init_scope():
            self.fc1 = chainer.links.Linear(3, 4)
            self.fc2 = chainer.links.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        self.calls += 1
        y = self.fc2(chainer.functions.relu(self.fc1(x)))
        return y if self.does is None else self.does(y, self.calls)
