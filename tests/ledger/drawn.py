"""Programs drawn at random, whose every call writes down by itself how long it took.

Links within links and functions within functions, shared links, loops, both styles of links and of
functions, exceptions that are caught, graphs whose gradients are added up, and branches that trials
take in turn: what the tests of measuring share.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer.function import FunctionAdapter
from hypothesis import Phase, settings
from hypothesis import strategies as st

from chainer_profile.basics.paths import joined, link_of
from chainer_profile.measure.steps import make_step
from tests.conftest import FakeClock
from tests.nets import net

# To shrink such a program takes minutes, and hardly helps.
EXAMPLES = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])


class WorkError(Exception):
    """An exception of functions and links, which networks catch."""


# -- drawing


@dataclass(frozen=True)
class Fn:
    """A call of a function: before and behind the functions in it, and its backward.

    Attributes:
        joins: It takes the last value that a parameter went into as well.
        backward_ns: Functions that its backward calls.
    """

    times_ns: tuple[int, int, int]
    nested: tuple[Fn, ...] = ()
    old_style: bool = False
    takes_parameter: bool = False
    joins: bool = False
    backward_ns: tuple[int, ...] = ()
    raises: bool = False
    caught: bool = True


@dataclass(frozen=True)
class Child:
    """Calls of a link."""

    link: int
    times: int = 1
    direct: bool = False
    caught: bool = True


@dataclass(frozen=True)
class Raise:
    """The link raises an exception."""


@dataclass(frozen=True)
class Branch:
    """A trial takes one of these ways."""

    ways: tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class Spec:
    """A link."""

    style: str
    has_parameter: bool
    body: tuple[object, ...]


@dataclass(frozen=True)
class Program:
    """A network: each link calls links behind it only. Trial n goes the way n of the ways."""

    links: tuple[Spec, ...]
    ways: tuple[int, ...]


def programs(raising=True, *more, deep=True, branches=True):
    """Programs that may raise, with more that a link may do; deep ones call functions in backward.

    Without branches all trials are alike.
    """
    times = st.tuples(*[st.integers(0, 20)] * 3)
    caught = st.booleans() if raising else st.just(True)
    raises = st.sampled_from([False] * 4 + [True]) if raising else st.just(False)

    def function(nested):
        return st.builds(
            Fn,
            times,
            nested=nested,
            old_style=st.booleans(),
            takes_parameter=st.booleans(),
            joins=st.booleans(),
            backward_ns=st.lists(st.integers(0, 20), max_size=2 * deep).map(tuple),
            raises=raises,
            caught=caught,
        )

    functions = function(st.lists(function(st.just(())), max_size=2).map(tuple))
    child = st.builds(Child, st.integers(0, 5), st.integers(1, 2), st.booleans(), caught=caught)
    simple = functions | child | (st.just(Raise()) if raising else child)
    way = st.lists(simple, max_size=2).map(tuple)
    branch = st.builds(Branch, st.lists(way, min_size=2, max_size=3).map(tuple))
    # Mostly several, of which one is a child's: few programs would have links in others else.
    body = st.lists(st.one_of(child, functions, branch, simple, *more), min_size=1, max_size=4)
    body = st.builds(lambda first, body: (first, *body), child, body) | body.map(tuple)
    spec = st.builds(Spec, st.sampled_from(list(STYLES)), st.booleans(), body)
    return st.builds(
        Program,
        st.lists(spec, min_size=1, max_size=5).map(tuple),
        st.lists(st.integers(0, 5), min_size=1, max_size=4 if branches else 1).map(tuple),
    )


# -- the ledger


#: Whose time there is beside that of calls: phases, sums of gradients, of whichever variable, and
#: ``cleargrads``; as path, function and phase.
FORWARD, BACKWARD, UPDATE = (("", "", phase) for phase in ("forward", "backward", "update"))
SUMS = ("", "gradient_accumulation", "backward")
CLEARGRADS = ("cleargrads", "cleargrads", "backward")


@dataclass
class Trial:
    """The true times and calls of a call of the network, by owners as in the ledger."""

    way: int = 0
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    spent: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)
    raised: set[str] = field(default_factory=set)
    links: Counter = field(default_factory=Counter)
    last: object = None


@dataclass
class Ledger(FakeClock):
    """A clock that keeps for whom it was advanced.

    An owner is a path, a function and a phase, for every call with a number of its own; or a phase
    alone, whose framework time it is.
    """

    prefix: str = ""
    paths: dict[int, str] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    windows: list[tuple] = field(default_factory=lambda: [FORWARD])
    trials: dict[int, Trial] = field(default_factory=dict)
    trial: Trial = field(default_factory=Trial)
    ended: list[tuple[str, int]] = field(default_factory=list)
    in_loss: bool = False

    def begin(self, ways):
        """The network is called, which is a trial."""
        root = joined(self.prefix, "/")
        self.running[:] = [root]
        way = ways[len(self.trials) % len(ways)]
        self.trial = self.trials[self.time_ns] = Trial(way, links=Counter([root]))

    def spend(self, duration_ns, owner=None):
        if duration_ns:
            duration_ns += len(self.trials) % 5  # no two trials take the same
        self.advance(duration_ns)
        self.trial.spent[owner or self.windows[-1]] += duration_ns

    @contextmanager
    def within(self, owner):
        """A window of an owner."""
        self.trial.calls[owner[:3]] += 1
        self.windows.append(owner)
        try:
            yield
        finally:
            self.windows.pop()

    @contextmanager
    def window(self, phase, function):
        """A window of a function."""
        name = type(function).__name__
        if phase == "forward":
            phase = self.windows[-1][2] or "forward"
            function.path, function.number = self.path_of(function.link), len(self.trial.rows)
            self.trial.rows.append((function.path, name, phase))
        owner, spent = (function.path, name, phase, function.number), self.trial.spent
        before = spent[owner]
        try:
            with self.within(owner):
                yield
            self.ended.append((name, spent[owner] - before))
        except WorkError:
            self.trial.raised.add(name)
            raise

    def path_of(self, link):
        """Path of a call that takes a link's parameter, if it does."""
        if self.in_loss and not self.running:
            return "loss"
        running = self.running[-1] if self.running else "/"
        path = self.paths.get(id(link), "")
        return path if path.startswith(running.rstrip("/") + "/") else running


class Inner(chainer.FunctionNode):
    """Called within another's backward, whose time it is, however deep."""

    def __init__(self, ledger, duration_ns):
        super().__init__()
        self.args = ledger, duration_ns

    def forward(self, inputs):
        ledger, duration_ns = self.args
        if duration_ns % 3 == 2:
            Inner(ledger, 1).apply(inputs)
        ledger.spend(duration_ns)
        return (inputs[0].copy(),)


class Working:
    """Takes its time, before and behind the functions in it."""

    def __init__(self, ledger, fn, link):
        super().__init__()
        self.ledger, self.fn, self.link = ledger, fn, link

    def forward(self, inputs):
        ledger, fn = self.ledger, self.fn
        self.shapes = [x.shape for x in inputs]
        with ledger.window("forward", self):
            ledger.spend(fn.times_ns[0])
            for nested in fn.nested:
                call(ledger, nested, inputs[0])
            ledger.spend(fn.times_ns[1])
            if fn.raises:
                raise WorkError
        return (inputs[0].copy(),)

    def work_back(self, grads):
        """The gradients of all inputs."""
        with self.ledger.window("backward", self):
            for duration_ns in self.fn.backward_ns:
                Inner(self.ledger, duration_ns).apply(grads[:1])
            self.ledger.spend(self.fn.times_ns[2])
        return [np.zeros(shape, np.float32) for shape in self.shapes]


class Work(Working, chainer.FunctionNode):
    def backward(self, indexes, grads):
        gradients = self.work_back(grads)
        return tuple(chainer.Variable(gradients[index]) for index in indexes)


class OldWork(Working, chainer.Function):
    """The same in the style of Chainer 1."""

    def backward(self, inputs, grads):
        return tuple(self.work_back(grads))


def call(ledger, fn, x, link=None):
    kind = OldWork if fn.old_style else Work
    takes = fn.takes_parameter and link is not None and link.spec.has_parameter
    inputs = (x, link.W) if takes else (x,)
    last = ledger.trial.last
    if fn.joins and isinstance(x, chainer.Variable) and last is not None:
        inputs = (*inputs[:1], last, *inputs[1:])
    function = kind(ledger, fn, link if takes else None)
    try:
        y = function(*inputs) if fn.old_style else function.apply(inputs)[0]
    except WorkError:
        if not fn.caught:
            raise
        return x
    if takes:
        ledger.trial.last = y
    return y


class Drawn(chainer.Chain):
    """A link that follows its spec."""

    def __init__(self, ledger, spec, links):
        super().__init__()
        self.ledger, self.spec = ledger, spec
        self.links_behind = links
        with self.init_scope():
            if spec.has_parameter:
                self.W = chainer.Parameter(np.zeros((1, 1), np.float32))
            for number in sorted(set(self.numbers(spec.body))):
                setattr(self, f"link{number}", links[number])

    def numbers(self, body):
        for step in body:
            if isinstance(step, Branch):
                for way in step.ways:
                    yield from self.numbers(way)
            elif isinstance(step, Child) and self.links_behind:
                yield step.link % len(self.links_behind)

    def run(self, x):
        self.ledger.spend(1)
        for step in self.spec.body:
            x = self.do(step, x)
        return x

    def do(self, step, x):
        if isinstance(step, Raise):
            raise WorkError
        if callable(step):
            return step(self.ledger, x)
        if isinstance(step, Fn):
            return call(self.ledger, step, x, self)
        if isinstance(step, Branch):
            for inner in step.ways[self.ledger.trial.way % len(step.ways)]:
                x = self.do(inner, x)
            return x
        if not self.links_behind:
            return x
        link = getattr(self, f"link{step.link % len(self.links_behind)}")
        for _ in range(step.times):
            with suppress(WorkError) if step.caught else ExitStack():
                if step.direct and isinstance(link, NewLink):
                    x = link.forward(x)
                else:
                    self.ledger.running.append(self.ledger.paths[id(link)])
                    self.ledger.trial.links[self.ledger.running[-1]] += 1
                    try:
                        x = link(x)
                    finally:
                        self.ledger.running.pop()
        return x


class NewLink(Drawn):
    def forward(self, x):
        return self.run(x)


class OldLink(Drawn):
    def __call__(self, x):
        return self.run(x)


class Inherits(OldLink):
    pass


class CallsOld(OldLink):
    def __call__(self, x):
        return super().__call__(x)


class CallsNew(NewLink):
    def __call__(self, x):
        return super().__call__(x)


STYLES = {kind.__name__: kind for kind in (NewLink, OldLink, Inherits, CallsOld, CallsNew)}


class RootMixin:
    """The network: it begins a trial, and catches all."""

    def run(self, x):
        ledger, program = self.ledger, self.program
        ledger.begin(program.ways)
        y = chainer.as_variable(np.zeros((1, 1 + ledger.trial.way % 3), np.float32))
        ledger.spend(1)
        for step in self.spec.body:
            with suppress(WorkError):
                y = self.do(step, y)
        ledger.spend(1)
        y = call(ledger, Fn((3, 4, 5), takes_parameter=True), y, self)
        ledger.spend(2)
        ledger.running.clear()
        ledger.trial.last = None
        return y

    def cleargrads(self):
        with self.ledger.within(CLEARGRADS):
            self.ledger.spend(9)
        super().cleargrads()


ROOTS = {name: type(f"{name}Root", (RootMixin, kind), {}) for name, kind in STYLES.items()}
KINDS = (
    *STYLES.values(),
    *ROOTS.values(),
    *(Drawn, Work, OldWork, FunctionAdapter),
    *(chainer.Function, chainer.FunctionNode, chainer.Link, chainer.Chain),
)


def build(program, ledger=None):
    """A network, and its ledger."""
    ledger, links = ledger or Ledger(), []
    for spec in reversed(program.links[1:]):
        links.append(STYLES[spec.style](ledger, spec, tuple(links)))
    spec = replace(program.links[0], has_parameter=True)
    model = ROOTS[spec.style](ledger, spec, tuple(links))
    model.program = program
    for path, link in model.namedlinks():
        ledger.paths.setdefault(id(link), joined(ledger.prefix, path))
    return model, ledger


def loss_of(ledger):
    """A loss with time and a function of its own."""

    def loss(y):
        ledger.spend(8)
        ledger.in_loss = True
        y = call(ledger, Fn((1, 2, 3), (Fn((2, 1, 0)),)), y)
        ledger.in_loss = False
        return F.sum(y)

    return loss


class Busy(chainer.FunctionNode):
    """Takes time, forward and backward, calls functions in its forward, and may raise."""

    def __init__(self, clock, forward_ns=0, backward_ns=0, raises="", inner=()):
        super().__init__()
        self.args = clock, forward_ns, backward_ns, raises, inner

    def forward(self, inputs):
        clock, forward_ns, _, raises, inner = self.args
        clock.advance(forward_ns)
        for function in inner:
            function.apply(inputs)
        if raises == "forward":
            raise WorkError
        return (inputs[0].copy(),)

    def backward(self, indexes, grads):
        clock, _, backward_ns, raises, _ = self.args
        clock.advance(backward_ns)
        if raises == "backward":
            raise WorkError
        return (F.identity(grads[0]),)


def doing(does, **links):
    """A network whose forward is ``does``, with the number of the call."""
    count = itertools.count()
    return net(lambda self, x: does(self, x, next(count)), **links)


# -- Chainer and an optimizer


class Add(chainer.FunctionNode):
    """In place of Chainer's addition of gradients."""

    def __init__(self, ledger):
        super().__init__()
        self.ledger = ledger

    def forward(self, inputs):
        with self.ledger.within(SUMS):
            self.ledger.spend(4 + len(inputs))
        return (np.sum(inputs, axis=0),)


@contextmanager
def slow_chainer(ledger):
    """Chainer's own parts of a backward pass take time as well."""
    check = chainer.variable._check_grad_type

    def checked(function, *args):
        # In a backward pass, after every function; one of the old style checks by itself, too.
        if function is not None and not isinstance(function, FunctionAdapter):
            ledger.spend(2, BACKWARD)
        return check(function, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chainer.functions, "add", lambda *grads: Add(ledger).apply(grads)[0])
        patch.setattr(chainer.variable, "_check_grad_type", checked)
        yield


class Rule(chainer.UpdateRule):
    def __init__(self, parent, optimizer):
        super().__init__(parent)
        self.optimizer = optimizer

    def update_core(self, param):
        self.optimizer.updates(self.optimizer.paths[id(param)])


class Optimizer(chainer.GradientMethod):
    """Its update of a parameter takes 5 ns, looking for gradients 6, and its hook 11."""

    def __init__(self, ledger, model, *hooked):
        super().__init__()
        self.ledger, self.paths, self.in_hook, self.hooked = ledger, {}, False, hooked
        for path, param in model.namedparams():
            self.paths.setdefault(id(param), joined(ledger.prefix, link_of(path)))
        self.setup(model)
        self.add_hook(self.hook, "Hook")

    def create_update_rule(self):
        return Rule(self.hyperparam, self)

    def updates(self, path):
        with self.ledger.within((path, "Optimizer", "update")):
            self.ledger.spend(5)

    def hook(self, optimizer):
        with self.ledger.within(("optimizer", "Hook", "update")):
            self.ledger.spend(11)
            for fn in self.hooked:
                call(self.ledger, fn, np.zeros((1, 1), np.float32))

    def reallocate_cleared_grads(self):
        if not self.in_hook:
            self.ledger.spend(6, UPDATE)
        super().reallocate_cleared_grads()

    def call_hook(self, hook):
        self.in_hook = True
        super().call_hook(hook)
        self.in_hook = False


def step_of(phase, model, ledger):
    """The step of a trial of a phase."""
    x = np.zeros((1, 1), np.float32)
    if phase == "forward":
        return make_step(phase, model, (x,))
    optimizer = Optimizer(ledger, model) if phase == "train" else None
    return make_step(phase, model, (x,), loss=loss_of(ledger), optimizer=optimizer)


# -- checks


@contextmanager
def nothing_left(model, *others):
    """Check that hooks, methods and attributes are as before; of others the methods."""

    def all_there_is():
        links = [*model.links()]
        hooks = {"local_link_hooks", "_local_link_hooks"}
        return [
            *({**vars(kind)} for kind in KINDS),
            *({k: v for k, v in vars(other).items() if callable(v)} for other in others),
            *((set(vars(link)) - hooks, link._n_local_link_hooks) for link in links),
            *(chainer.get_function_hooks(), dict(chainer._get_link_hooks())),
        ]

    before = all_there_is()
    yield
    assert all_there_is() == before


def row_of(layer):
    return SUMS if layer.function == SUMS[1] else (layer.path, layer.function, layer.phase)


def by_row(layers, values):
    """Values of rows by link, of which no two are of one row."""
    assert len({(layer.path, layer.function, layer.phase) for layer in layers}) == len(layers)
    totals = Counter()
    for layer, value in zip(layers, values, strict=True):
        totals[row_of(layer)] += int(value)
    return totals


def of_rows(spent):
    """The time of a trial by rows by link, each with the time of all its calls."""
    totals = Counter()
    for owner, ns in spent.items():
        totals[owner[:3]] += ns
    return totals


def by_call(layers, times_ns):
    """The rows that are calls, and the times of all rows by owner."""
    calls = [row for row in layers if row.forward is None and row.function in ("Work", "OldWork")]
    number = {layer.index: (at,) for at, layer in enumerate(calls)}
    times = Counter()
    for layer, time_ns in zip(layers, times_ns, strict=True):
        called = layer.index if layer.forward is None else layer.forward
        times[row_of(layer) + number.get(called, ())] += int(time_ns)
    return [row_of(layer) for layer in calls], times
