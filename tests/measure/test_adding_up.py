"""Any network, any graph: every nanosecond of a step is found where it was spent, and once.

Networks are drawn at random. Whatever takes time on the fake clock also writes down for whom, by
itself; the profiler's rows and phases must then say the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import chainer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.steps import BackwardStep, ForwardStep, Loss, TrainStep
from tests.conftest import FakeClock

times = st.integers(0, 50)


@dataclass
class Ledger(FakeClock):
    """A clock that keeps for whom it was advanced."""

    spent: Counter = field(default_factory=Counter)
    calls: int = 0

    def spend(self, duration_ns, *owner):
        self.advance(duration_ns)
        self.spent[owner] += duration_ns

    def begin(self):
        self.spent.clear()
        self.calls = 0


@dataclass(frozen=True)
class Call:
    """A function call that is to be made, by a link (its number) or outside of any."""

    link: int | None
    own_ns: tuple[int, int]
    forward_ns: tuple[int, int]
    backward_ns: tuple[int, int]
    nested: tuple[int, ...]
    backward_nested: tuple[int, ...]
    inputs: tuple[int, ...]
    repeat: int


class Inner(chainer.FunctionNode):
    """Called within another's forward, for which it has a row of its own, or backward."""

    def __init__(self, ledger, duration_ns, owner):
        super().__init__()
        self.args = ledger, duration_ns, owner

    def forward(self, inputs):
        ledger, duration_ns, owner = self.args
        if owner is None:
            owner = "forward", ledger.calls
            ledger.calls += 1
        elif duration_ns % 3 == 2:  # within a backward all is its own, however deep
            Inner(ledger, 1, owner).apply(inputs)
        ledger.spend(duration_ns, *owner)
        return (inputs[0].copy(),)


class Work(chainer.FunctionNode):
    """Adds up its inputs; time and nested calls as the call says."""

    def __init__(self, ledger, call):
        super().__init__()
        self.ledger, self.call = ledger, call

    def forward(self, inputs):
        self.number = self.ledger.calls
        self.ledger.calls += 1
        self.ledger.spend(self.call.forward_ns[0], "forward", self.number)
        for duration_ns in self.call.nested:
            Inner(self.ledger, duration_ns, None).apply(inputs[:1])
        self.ledger.spend(self.call.forward_ns[1], "forward", self.number)
        return (np.sum(inputs, axis=0),)

    def backward(self, indexes, grads):
        owner = "backward", self.number
        self.ledger.spend(self.call.backward_ns[0], *owner)
        for duration_ns in self.call.backward_nested:
            grads = Inner(self.ledger, duration_ns, owner).apply(grads)
        self.ledger.spend(self.call.backward_ns[1], *owner)
        return grads * len(indexes)


class Total(Work):
    """A scalar."""

    def forward(self, inputs):
        (y,) = super().forward(inputs)
        self.shape = y.shape
        return (np.array(y.sum()),)

    def backward(self, indexes, grads):
        super().backward(indexes, grads)
        return (chainer.Variable(np.full(self.shape, grads[0].array)),)


class Sum(chainer.FunctionNode):
    """What Chainer adds gradients up with."""

    def __init__(self, ledger, duration_ns):
        super().__init__()
        self.args = ledger, duration_ns

    def forward(self, inputs):
        ledger, duration_ns = self.args
        ledger.spend(duration_ns, "accumulation")
        return (np.sum(inputs, axis=0),)


class Leaf(chainer.Link):
    def __init__(self, ledger):
        super().__init__()
        self.ledger = ledger
        with self.init_scope():
            self.W = chainer.Parameter(np.zeros((1, 2), np.float32))

    def forward(self, call, *xs):
        self.ledger.spend(call.own_ns[0], "framework", "forward")
        (y,) = Work(self.ledger, call).apply((*xs, self.W))
        self.ledger.spend(call.own_ns[1], "framework", "forward")
        return y


class Drawn(chainer.Chain):
    """A network that makes these calls; links may be shared by several names."""

    def __init__(self, ledger, calls, aliases):
        super().__init__()
        self.ledger, self.program = ledger, calls
        links = [Leaf(ledger) for _ in range(max(aliases) + 1)]
        with self.init_scope():
            self.inner = chainer.ChainList(*(links[alias] for alias in aliases))

    def forward(self, x):
        pool = [chainer.as_variable(x)]
        for call in self.program:
            xs = [pool[i % len(pool)] for i in call.inputs]
            for _ in range(call.repeat):
                if call.link is None:
                    self.ledger.spend(call.own_ns[0], "framework", "forward")
                    (y,) = Work(self.ledger, call).apply(tuple(xs))
                else:
                    y = self.inner[call.link % len(self.inner)](call, *xs)
                xs[0] = y
            pool.append(y)
        return Work(self.ledger, self.program[0]).apply(tuple(pool[1:]))[0]

    def cleargrads(self):
        self.ledger.spend(9, "cleargrads")
        super().cleargrads()


class Rule(chainer.UpdateRule):
    def update_core(self, param):
        self.ledger.spend(int(param.size) + 3, "update", self.path)


class Optimizer(chainer.GradientMethod):
    def __init__(self, ledger):
        super().__init__()
        self.ledger = ledger
        self.in_hook = False

    def create_update_rule(self):
        rule = Rule(self.hyperparam)
        rule.ledger = self.ledger
        return rule

    def reallocate_cleared_grads(self):
        if not self.in_hook:
            self.ledger.spend(6, "framework", "update")
        super().reallocate_cleared_grads()

    def call_hook(self, hook):
        self.in_hook = True
        super().call_hook(hook)
        self.in_hook = False


class Hook:
    def __init__(self, ledger, name, timing, duration_ns):
        self.ledger, self.name, self.timing = ledger, name, timing
        self.duration_ns = duration_ns

    def __call__(self, optimizer):
        self.ledger.spend(self.duration_ns, "hook", self.name)


calls = st.builds(
    Call,
    link=st.none() | st.integers(0, 3),
    own_ns=st.tuples(times, times),
    forward_ns=st.tuples(times, times),
    backward_ns=st.tuples(times, times),
    nested=st.lists(times, max_size=2).map(tuple),
    backward_nested=st.lists(times, max_size=2).map(tuple),
    inputs=st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple),
    repeat=st.integers(1, 3),
)


@pytest.fixture(scope="module")
def ledger():
    """One ledger, for which Chainer's own parts of a backward pass take time as well."""
    ledger = Ledger()
    check = chainer.variable._check_grad_type

    def checked(function, *args):
        if function is not None:  # in a backward pass, after every function
            ledger.spend(2, "framework", "backward")
        return check(function, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            chainer.functions, "add", lambda *grads: Sum(ledger, 4 + len(grads)).apply(grads)[0]
        )
        patch.setattr(chainer.variable, "_check_grad_type", checked)
        yield ledger


def make_step(phase, ledger, model, outside_ns):
    x = np.ones((1, 2), np.float32)

    def loss(y):
        ledger.spend(8, "framework", "forward")
        return Total(ledger, model.program[-1]).apply((y,))[0]

    kind = {"forward": ForwardStep, "forward-backward": BackwardStep, "train": TrainStep}[phase]

    class Loose(kind):
        def __call__(self):
            ledger.begin()
            ledger.spend(outside_ns[0], "outside")
            super().__call__()
            ledger.spend(outside_ns[1], "outside")

    if phase == "forward":
        return Loose(model, (x,))
    if phase == "forward-backward":
        return Loose(model, (x,), Loss("drawn", loss))
    optimizer = Optimizer(ledger).setup(model)
    for path, param in model.namedparams():
        # A shared parameter is met several times, and goes by its first path.
        rule = param.update_rule
        rule.path = getattr(rule, "path", path.rpartition("/")[0])
    optimizer.add_hook(Hook(ledger, "before", "pre", 11))
    optimizer.add_hook(Hook(ledger, "after", "post", 13))
    return Loose(model, (x,), Loss("drawn", loss), optimizer)


def found(structure, times_ns):
    """The same as a ledger's from rows and phases."""
    spent = Counter()
    n_layers = len(structure.layers)
    forward = [layer.index for layer in structure.layers if layer.phase == "forward"]
    for layer, time_ns in zip(structure.layers, times_ns[:n_layers].tolist(), strict=True):
        if layer.phase == "forward":
            owner = "forward", forward.index(layer.index)
        elif layer.function == "gradient_accumulation":
            owner = ("accumulation",)
        elif layer.path == "cleargrads":
            owner = ("cleargrads",)
        elif layer.phase == "backward":
            owner = "backward", forward.index(layer.forward)
        elif layer.path == "optimizer":
            owner = "hook", layer.function
        else:
            owner = "update", layer.path
        spent[owner] += time_ns
    for phase, time_ns in zip(structure.phases, times_ns[n_layers:].tolist(), strict=True):
        spent["framework", phase] += time_ns
    return spent


@pytest.mark.parametrize("phase", ["forward", "forward-backward", "train"])
@given(
    program=st.lists(calls, min_size=1, max_size=5),
    aliases=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    outside_ns=st.tuples(times, times),
    lazy=st.booleans(),
)
def test_every_nanosecond_is_found_once(phase, ledger, program, aliases, outside_ns, lazy):
    model = Drawn(ledger, program, aliases)
    step = make_step(phase, ledger, model, outside_ns)
    with step.configured(), chainer.using_config("lazy_grad_sum", lazy):
        structure = learn_structure(step)
        recorder = Recorder(ledger.now_ns, step)
        for _ in range(2):
            recorder.clear()
            with recorder:
                start_ns = ledger.time_ns
                step()
                trial_ns = ledger.time_ns - start_ns
            stamps = structure.stamps(recorder.log)
            assert not structure.difference(recorder.log)
            spent = ledger.spent
            times_ns = structure.times_ns(stamps)
            if phase == "forward":  # which has no phase for what is between its functions
                spent["outside",] += spent.pop(("framework", "forward"), 0)
            outside = spent.pop(("outside",))
            assert +found(structure, times_ns) == +spent
            assert times_ns.sum() + outside == trial_ns
    # Paths are those of the links that made the calls.
    expected = []
    by_link = {}
    for path, link in model.namedlinks():
        by_link.setdefault(id(link), path)
    for call in program:
        path = "/" if call.link is None else by_link[id(model.inner[call.link % len(aliases)])]
        expected += [path] * (1 + len(call.nested)) * call.repeat
    expected += ["/"] * (1 + len(program[0].nested))
    expected += [] if phase == "forward" else ["loss"] * (1 + len(program[-1].nested))
    assert [a.path for a in structure.layers if a.phase == "forward"] == expected
    for layer in structure.layers:
        if layer.forward is not None:
            assert layer.path == structure.layers[layer.forward].path
            assert layer.function == structure.layers[layer.forward].function
