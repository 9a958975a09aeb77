"""Drawn training loops, made with Chainer's own objects on a fake clock."""

from dataclasses import dataclass, replace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from hypothesis import strategies as st

X = np.ones((2, 3), np.float32)
#: Networks that no optimizer has, and an iterator for tests.
TEACHER, FEATURES, TESTS = 3, 4, 2


@dataclass(frozen=True)
class Op:
    """One operation of a program."""

    does: str
    of: int = 0  #: The number of the network, the optimizer or the iterator.
    fails: bool = False


@dataclass(frozen=True)
class Times:
    """Nanoseconds of the operations; a tuple has the times of networks, by their number."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    load: int
    update: int
    own: int  #: The program's own code before each operation.
    normaliser: int


@dataclass(frozen=True)
class Plan:
    """What a drawn loop does.

    Attributes:
        cycle: The optimizers that update in an iteration.
        step: Comes before an update: ``loss``, ``lossfun``, ``shared`` or ``accumulated``.
        loads: By iterator, when it loads: in each ``iteration``, in each ``step``, or never.
        clears: When gradients are cleared: before the ``forward``, before the ``backward``, after
            the ``update``, or never.
        teacher: Whether one is called ``before`` or ``after`` the network.
        between: What the program does before iterations, in turn.
        fails: The iteration that an exception leaves, and the operation.
        retries: Whether the program then repeats the step.
        stops: The operations of a last iteration that the program begins.
    """

    cycle: tuple[int, ...]
    step: str
    loads: tuple[str, str]
    clears: str
    teacher: str
    features: bool
    iterations: int
    between: tuple[str, ...]
    fails: tuple[int, int]
    retries: bool
    stops: int

    def steps(self) -> list[list[Op]]:
        """The operations of an iteration, by step."""
        optimizers = self.cycle[:1] if self.step == "shared" else self.cycle
        return [self._step(optimizer, not at) for at, optimizer in enumerate(optimizers)]

    def _step(self, optimizer: int, is_first: bool) -> list[Op]:
        ops = [
            Op("load", at)
            for at, often in enumerate(self.loads)
            if often == "step" or (often == "iteration" and is_first)
        ]
        ops += [Op("test", TEACHER)] if self.teacher == "before" else []
        if self.step == "lossfun":
            return [*ops, Op("lossfun", optimizer)]
        optimizers = self.cycle if self.step == "shared" else (optimizer,)
        clears = {self.clears: [Op("clear", one) for one in optimizers]}
        for _ in range(2 if self.step == "accumulated" else 1):
            ops += clears.pop("forward", [])
            ops += [Op("features", FEATURES)] if self.features else []
            ops += [Op("call", one) for one in optimizers]
            ops += [Op("test", TEACHER)] if self.teacher == "after" else []
            ops += [*clears.pop("backward", []), Op("backward")]
        return [*ops, *(Op("update", one) for one in optimizers), *clears.pop("update", [])]

    def attempts(self) -> list[list[Op]]:
        """The operations of the program: between two iterations and in one, alternately."""
        whole = [op for step in self.steps() for op in step]
        attempts: list[list[Op]] = []
        for iteration in range(self.iterations):
            words = self.between[iteration % len(self.between)].split()
            attempts += [[op for word in words for op in BETWEEN[word]], whole]
            if iteration == self.fails[0] and self._can_fail:
                failed, again = self._failing()
                attempts[-1:] = [again] if self.retries else [failed, [], whole]
        return [*attempts, [], whole[: self.stops % len(whole)]]

    @property
    def _can_fail(self) -> bool:
        # After a failure nothing shows whether a cycle begins with the first C of C, G, C.
        return self.cycle != (0, 1, 0)

    def _failing(self) -> tuple[list[Op], list[Op]]:
        """An iteration that fails, and one in which the step that fails is repeated."""
        steps = self.steps()
        places = [
            (number, at)
            for number, step in enumerate(steps)
            for at, op in enumerate(step)
            if op.does in ("call", "backward", "lossfun") and (number or not self.retries)
        ]
        if not places:
            whole = [op for step in steps for op in step]
            return whole, whole
        number, at = places[self.fails[1] % len(places)]
        begun = [op for step in steps[:number] for op in step] + steps[number][: at + 1]
        failed = [*begun[:-1], replace(begun[-1], fails=True)]
        again = [op for op in steps[number] if op.does != "load"]
        return failed, [*failed, *again, *(op for step in steps[number + 1 :] for op in step)]


#: What a program does between iterations, by its name.
BETWEEN = {
    "act": [Op("test", 0)],
    "observe": [Op("normalise"), Op("test", 0)],
    "validate": [Op("load", TESTS), Op("test", 0)],
    "end": [Op("load", TESTS, fails=True)],
}
CYCLES = [
    *[(0,), (0,), (0, 0), (0, 1), (1, 0), (0, 0, 1), (0, 0, 0, 1), (1, 0, 0), (0, 1, 0)],
    *[(0, 0, 1, 1), (0, 1, 2), (2, 1, 0), (0, 0, 1, 2), (1, 2, 0, 0), (0, 0, 1, 0, 0, 2)],
]


@st.composite
def plans(draw):
    """A plan whose iterations can be found."""
    cycle = draw(st.sampled_from(CYCLES))
    loads = draw(st.tuples(*[st.sampled_from(["", "iteration", "step"])] * 2))
    if cycle == (0, 0):  # only loads show that there are two updates
        loads = ("iteration", draw(st.sampled_from(["", "iteration"])))
    steps = ["loss", "loss", "lossfun", "accumulated"]
    words = st.lists(st.sampled_from(["act", "observe", "validate"]), max_size=3)
    words = words.map(lambda each: " ".join([*each, "end"] if "validate" in each else each))
    return Plan(
        cycle=cycle,
        step=draw(st.sampled_from([*steps, "shared"] if cycle in ((0, 1), (0, 1, 2)) else steps)),
        loads=loads,
        clears=draw(st.sampled_from(["forward", "backward", "update", ""])),
        teacher=draw(st.sampled_from(["", "before", "after"])),
        features=draw(st.booleans()),
        iterations=draw(st.integers(2, 6)),
        between=(draw(words), "") if draw(st.booleans()) else ("", "", draw(words)),
        fails=draw(st.tuples(st.integers(-3, 5), st.integers(0, 20))),
        retries=draw(st.booleans()),
        stops=draw(st.integers(0, 40)),
    )


@st.composite
def times(draw):
    """Times from nanoseconds on; or so long that the log is read after each operation."""
    ns = st.integers(1, 1000).map(lambda ns: ns * scale)
    scale = draw(st.sampled_from([1, 1, 10**7]))
    five = st.tuples(*[ns] * 5)
    return Times(draw(five), draw(five), *(draw(ns) for _ in range(4)))


# -- the program


class Slow(chainer.FunctionNode):
    """Passes its input on, which takes time; or it fails once."""

    def __init__(self, runner, number):
        super().__init__()
        self.runner, self.number = runner, number

    def forward(self, inputs):
        self.runner.advance(self.runner.times.forward[self.number])
        if self.runner.fails == "forward" and self.number < TEACHER:
            raise ZeroDivisionError
        return (inputs[0].copy(),)

    def backward(self, indexes, grads):
        if self.runner.fails == "backward":
            raise ZeroDivisionError
        self.runner.advance(self.runner.times.backward[self.number])
        return grads


class Net(chainer.Chain):
    def __init__(self, runner, number):
        super().__init__()
        self.runner, self.number = runner, number
        with self.init_scope():
            self.fc = L.Linear(3, 3)

    def forward(self, x):
        return Slow(self.runner, self.number).apply((self.fc(x),))[0]


class Normaliser(chainer.Link):
    """Calls no function."""

    def __init__(self, runner):
        super().__init__()
        self.runner = runner

    def forward(self, x):
        self.runner.advance(self.runner.times.normaliser)
        return x


class SlowUpdate(chainer.optimizers.SGD):
    def __init__(self, runner):
        super().__init__()
        self.runner = runner

    def update(self, lossfun=None, *args, **kwargs):
        super().update(lossfun, *args, **kwargs)
        self.runner.advance(self.runner.times.update)


class Data(chainer.iterators.SerialIterator):
    def __init__(self, runner):
        super().__init__(list(X), 2)
        self.runner = runner

    def __next__(self):
        self.runner.advance(self.runner.times.load)
        if self.runner.fails:
            raise StopIteration
        return super().__next__()

    next = __next__


class Runner:
    """Makes the operations of a program, each after a little code of its own."""

    def __init__(self, times, clock):
        self.times, self.advance = times, clock.advance
        self.fails = ""
        self.nets = [Net(self, number) for number in range(5)]
        self.normaliser = Normaliser(self)
        self.data = [Data(self) for _ in range(3)]

    def run(self, plan):
        trained = sorted({*plan.cycle})
        self.optimizers = {number: SlowUpdate(self).setup(self.nets[number]) for number in trained}
        self.losses, self.x = [], X
        for ops in plan.attempts():
            for op in ops:
                self.advance(self.times.own)
                self.fails = "backward" if op.does == "backward" else "forward"
                self.fails = self.fails if op.fails else ""
                try:
                    getattr(self, op.does)(op.of)
                except (ZeroDivisionError, StopIteration):
                    assert op.fails
                    self.losses, self.x = [], X

    def load(self, number):
        next(self.data[number])

    def test(self, number):
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            self.nets[number](X)

    def features(self, number):
        self.x = self.nets[number](X)

    def call(self, number):
        self.losses.append(F.sum(self.nets[number](self.x)))

    def clear(self, number):
        self.nets[number].cleargrads()

    def backward(self, _):
        sum(self.losses[1:], self.losses[0]).backward()
        self.losses, self.x = [], X

    def update(self, number):
        self.optimizers[number].update()

    def lossfun(self, number):
        self.optimizers[number].update(lambda: F.sum(self.nets[number](X)))

    def normalise(self, _):
        self.normaliser(X)
