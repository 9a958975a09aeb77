"""Random training loops, with Chainer's objects on a fake clock."""

from dataclasses import dataclass, replace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from hypothesis import strategies as st

X = np.ones((2, 3), np.float32)
#: Numbers of networks without an optimizer, and of the iterator for validation.
TEACHER, FEATURES, TESTS = 3, 4, 2


@dataclass(frozen=True)
class Op:
    """One operation of a program."""

    name: str
    number: int = 0  #: Index of the network, optimizer or iterator.
    fails: bool = False


@dataclass(frozen=True)
class Times:
    """Times of operations in ns; tuples have times by number of the network."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    load: int
    update: int
    own: int  #: Other code of the program before each operation.
    normaliser: int


@dataclass(frozen=True)
class Plan:
    """A random loop.

    Attributes:
        cycle: The optimizers that update in an iteration.
        step: The operations before an update: ``loss``, ``lossfun``, ``shared`` or ``accumulated``.
        loads: When each iterator loads: in each ``iteration``, in each ``step``, or never.
        clears: When gradients are cleared: before ``forward``, before ``backward``, after
            ``update``, or never.
        teacher: Whether a teacher is called, ``before`` or ``after`` the network.
        between: Operations before successive iterations, as keys of ``BETWEEN``.
        fails: The iteration that an exception leaves, and the operation.
        retries: Whether the program then repeats the step.
        stops: Number of operations in an unfinished last iteration.
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
        """Operations of an iteration, by step."""
        optimizers = self.cycle[:1] if self.step == "shared" else self.cycle
        return [self._step(optimizer, not index) for index, optimizer in enumerate(optimizers)]

    def _step(self, optimizer: int, is_first: bool) -> list[Op]:
        ops = [
            Op("load", index)
            for index, frequency in enumerate(self.loads)
            if frequency == "step" or (frequency == "iteration" and is_first)
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
        """Operations of the program, alternately before an iteration and in the iteration."""
        all_ops = [op for step in self.steps() for op in step]
        attempts: list[list[Op]] = []
        for iteration in range(self.iterations):
            names = self.between[iteration % len(self.between)].split()
            fails = iteration == self.fails[0] and self._can_fail
            if fails:  # calls in training mode might be a part of the iteration that fails
                names = [name for name in names if name != "evaluate"]
            attempts += [[op for name in names for op in BETWEEN[name]], all_ops]
            if fails:
                failed, again = self._failing()
                attempts[-1:] = [again] if self.retries else [failed, [], all_ops]
        return [*attempts, [], all_ops[: self.stops % len(all_ops)]]

    @property
    def _can_fail(self) -> bool:
        # After a failure in C, G, C, nothing shows which C begins a cycle.
        return self.cycle != (0, 1, 0)

    def _failing(self) -> tuple[list[Op], list[Op]]:
        """An iteration that fails, and an iteration that repeats the failed step."""
        steps = self.steps()
        positions = [
            (number, at)
            for number, step in enumerate(steps)
            for at, op in enumerate(step)
            if op.name in ("call", "backward", "lossfun") and (number or not self.retries)
        ]
        if not positions:
            all_ops = [op for step in steps for op in step]
            return all_ops, all_ops
        number, at = positions[self.fails[1] % len(positions)]
        begun = [op for step in steps[:number] for op in step] + steps[number][: at + 1]
        failed = [*begun[:-1], replace(begun[-1], fails=True)]
        again = [op for op in steps[number] if op.name != "load"]
        return failed, [*failed, *again, *(op for step in steps[number + 1 :] for op in step)]


#: Operations between iterations, by name.
BETWEEN = {
    "act": [Op("test", 0)],
    "observe": [Op("normalise"), Op("test", 0)],
    "validate": [Op("load", TESTS), Op("test", 0)],
    "end": [Op("load", TESTS, fails=True)],
    "evaluate": [Op("evaluate", 0), Op("evaluate", 0)],
}
CYCLES = [
    *[(0,), (0,), (0, 0), (0, 1), (1, 0), (0, 0, 1), (0, 0, 0, 1), (1, 0, 0), (0, 1, 0)],
    *[(0, 0, 1, 1), (0, 1, 2), (2, 1, 0), (0, 0, 1, 2), (1, 2, 0, 0), (0, 0, 1, 0, 0, 2)],
]


@st.composite
def plans(draw):
    """Strategy of plans with iterations that can be found."""
    cycle = draw(st.sampled_from(CYCLES))
    loads = draw(st.tuples(*[st.sampled_from(["", "iteration", "step"])] * 2))
    if cycle == (0, 0):  # only loads show the two updates
        loads = ("iteration", draw(st.sampled_from(["", "iteration"])))
    steps = ["loss", "loss", "lossfun", "accumulated"]
    between = st.lists(st.sampled_from(["act", "observe", "validate", "evaluate"]), max_size=3)
    between = between.map(lambda each: " ".join([*each, "end"] if "validate" in each else each))
    return Plan(
        cycle=cycle,
        step=draw(st.sampled_from([*steps, "shared"] if cycle in ((0, 1), (0, 1, 2)) else steps)),
        loads=loads,
        clears=draw(st.sampled_from(["forward", "backward", "update", ""])),
        teacher=draw(st.sampled_from(["", "before", "after"])),
        features=draw(st.booleans()),
        iterations=draw(st.integers(2, 6)),
        between=(draw(between), "") if draw(st.booleans()) else ("", "", draw(between)),
        fails=draw(st.tuples(st.integers(-3, 5), st.integers(0, 20))),
        retries=draw(st.booleans()),
        stops=draw(st.integers(0, 40)),
    )


@st.composite
def times(draw):
    """Strategy of times: short, or so long that the log is read after each operation."""
    ns = st.integers(1, 1000).map(lambda ns: ns * scale)
    scale = draw(st.sampled_from([1, 1, 10**7]))
    five = st.tuples(*[ns] * 5)
    return Times(draw(five), draw(five), *(draw(ns) for _ in range(4)))


# -- the program


class Slow(chainer.FunctionNode):
    """Copies its input, which takes time, or fails."""

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
    """A link that calls no function."""

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
    """Runs the operations of a plan, with other code before each operation."""

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
                self.fails = "backward" if op.name == "backward" else "forward"
                self.fails = self.fails if op.fails else ""
                try:
                    getattr(self, op.name)(op.number)
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

    def evaluate(self, number):
        self.nets[number](X)  # in training mode

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
