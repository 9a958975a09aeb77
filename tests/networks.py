"""Small networks whose functions take an exact time on a fake clock."""

from __future__ import annotations

from typing import Any

import chainer
import numpy as np
from chainer import FunctionNode

from tests.conftest import FakeClock


class Wait(FunctionNode):
    """Hands its input on after so many nanoseconds on the clock."""

    def __init__(self, clock: FakeClock, duration_ns: int) -> None:
        super().__init__()
        self._clock = clock
        self._duration_ns = duration_ns

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        return (inputs[0].copy(),)


class LongWait(Wait):
    """The same under another name."""


class Outer(Wait):
    """Waits, calls a Wait of 30 ns within its own forward, and waits again."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._clock.advance(self._duration_ns)
        (inner,) = Wait(self._clock, 30).apply(inputs)
        self._clock.advance(self._duration_ns)
        return (inner.array,)


class Step(chainer.Link):
    """A link that waits, with time of its own before and after the function."""

    def __init__(self, clock: FakeClock, duration_ns: int, cls: type[Wait] = Wait) -> None:
        super().__init__()
        self._clock = clock
        self._duration_ns = duration_ns
        self._cls = cls

    def forward(self, x: Any) -> Any:
        self._clock.advance(5)
        (y,) = self._cls(self._clock, self._duration_ns).apply((x,))
        self._clock.advance(2)
        return y


class Chain(chainer.Chain):
    """first (100 ns), twice second (40 ns), and 7 ns of its own: 3 calls, 208 ns a trial."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.calls = 0
        with self.init_scope():
            self.first = Step(clock, 100)
            self.second = Step(clock, 40, LongWait)

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.clock.advance(7)
        return self.second(self.second(self.first(x)))


def image(*shape: int) -> Any:
    return np.zeros(shape or (1, 2), np.float32)
