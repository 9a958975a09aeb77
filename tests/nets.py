"""Small networks whose functions take an exact time on a fake clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import chainer
import numpy as np
import pytest
from chainer import FunctionNode

from tests.conftest import FakeClock


class Wait(FunctionNode):
    """Hands its input on after so many nanoseconds on the clock; its backward takes time, too."""

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
    """The same under another name."""


class Outer(Wait):
    """Waits, calls a Wait of 30 ns within its own forward, and waits again."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        (inner,) = Wait(self._clock, 30).apply(inputs)
        self._clock.advance(self._duration_ns)
        return (inner.array,)


class Sum(Wait):
    """Adds its inputs up."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        return (np.sum(inputs, axis=0),)


class Add(Sum):
    """By its name Chainer's addition of gradients."""


class Nesting(Sum):
    """Adds up, and calls a Wait of 3 ns in its backward."""

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        inner: Any = Wait(self._clock, 3, 4).apply(super().backward((0,), grads))
        return (*(inner * len(indexes)),)


class Total(Wait):
    """A scalar: the sum of all numbers of its input."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        self._shape = inputs[0].shape
        return (np.array(inputs[0].sum()),)

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._backward_ns)
        return (chainer.Variable(np.full(self._shape, grads[0].array)),)


class Step(chainer.Link):
    """A link that waits, with 7 ns of its own before and after the function."""

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
    """The same with a parameter that it adds."""

    def __init__(
        self, clock: FakeClock, forward_ns: int, backward_ns: int, cls: type[Wait] = Sum
    ) -> None:
        super().__init__(clock, forward_ns, cls, backward_ns)
        with self.init_scope():
            self.W = chainer.Parameter(np.zeros((1, 2), np.float32))


class Chain(chainer.Chain):
    """first (100 ns), twice second (40 ns), and 7 ns of its own: 3 calls, 208 ns a trial."""

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
    """first (100 ns, back 200), twice second (40 ns, back 80 with 3 in it); 10 ns of its own."""

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
    """Updates every parameter in 50 ns, and looks for cleared gradients in 1 ns."""

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
    """A hook of an optimizer or of an update rule that does nothing for a while."""

    clock: FakeClock
    duration_ns: int
    name: str = "SlowHook"
    timing: str = "pre"
    call_for_each_param: bool = False

    def __call__(self, *_: object) -> None:
        self.clock.advance(self.duration_ns)


def slow_loss(clock: FakeClock) -> Any:
    """A loss function: 11 ns of its own, and a Total of 20 ns, back 30."""

    def loss(y: Any) -> Any:
        clock.advance(11)
        return Total(clock, 20, 30).apply((y,))[0]

    return loss


def slow_sums(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """Let Chainer add up gradients in 13 ns."""

    def add(*grads: Any) -> Any:
        return Add(clock, 13).apply(grads)[0]

    monkeypatch.setattr(chainer.functions, "add", add)


def image(*shape: int) -> Any:
    return np.zeros(shape or (1, 2), np.float32)


def net(forward: Any, **links: Any) -> Any:
    """A network of these links, by the function that is its forward."""

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
    """Two linear layers, of 3, 4 and 2; ``does`` is done with the output of each call."""

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
