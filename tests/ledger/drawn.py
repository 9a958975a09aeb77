"""Programs drawn at random, whose every call writes down by itself how long it took.

Links within links and functions within functions, shared links, both styles of links and of
functions, exceptions that are caught, graphs whose gradients are added up, and branches that trials
take in turn: what the tests of measuring share.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer.function import FunctionAdapter
from hypothesis import Phase, settings
from hypothesis import strategies as st

from chainer_profile.basics.paths import joined, link_of
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.steps import make_step
from tests.conftest import FakeClock

# To shrink such a program takes minutes, and hardly helps.
EXAMPLES = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])


def framework_of(phase):
    return "", "", phase


#: Whose time there is beside that of calls: phases, sums of gradients, of whichever variable, and
#: ``cleargrads``; as path, function and phase.
FORWARD, BACKWARD, UPDATE = map(framework_of, ("forward", "backward", "update"))
SUMS = ("", "gradient_accumulation", "backward")
CLEARGRADS = ("cleargrads", "cleargrads", "backward")
X = np.zeros((1, 1), np.float32)


class WorkError(Exception):
    """An exception of functions, which networks catch."""


# -- the ledger


@dataclass
class Trial:
    """The true times and calls of a call of the network, by owners as in the ledger."""

    way: int = 0
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    spent: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)
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
    trials: dict[int, Trial] = field(default_factory=dict)  # by when they began
    trial: Trial = field(default_factory=Trial)
    ended: list[tuple[tuple, int]] = field(default_factory=list)
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
        self.ended.append((owner, self.trial.spent[owner]))

    def path_of(self, link):
        """Path of a call that takes a link's parameter, if it does."""
        if self.in_loss and not self.running:
            return "loss"
        running = self.running[-1] if self.running else "/"
        path = self.paths.get(id(link), "")
        return path if path.startswith(running.rstrip("/") + "/") else running


# -- what programs do, each with a link that it is done in


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
    backward_raises: bool = False

    def do(self, ledger, x, link=None):
        takes = self.takes_parameter and link is not None and link.spec.has_parameter
        inputs, last = ((x, link.W) if takes else (x,)), ledger.trial.last
        if self.joins and isinstance(x, chainer.Variable) and last is not None:
            inputs = (x, last, *inputs[1:])
        function = (OldWork if self.old_style else Work)(ledger, self, link if takes else None)
        try:
            y = function(*inputs) if self.old_style else function.apply(inputs)[0]
        except WorkError:
            if not self.caught:
                raise
            return x
        if takes:
            ledger.trial.last = y
        return y


@dataclass(frozen=True)
class Child:
    """A call of a link of the link."""

    number: int
    direct: bool = False
    caught: bool = True

    def do(self, ledger, x, link):
        if not link.held:
            return x
        child = link.held[self.number % len(link.held)]
        ledger.spend(1)
        with suppress(WorkError) if self.caught else ExitStack():
            if self.direct and isinstance(child, NewLink):
                return child.forward(x)
            ledger.running.append(ledger.paths[id(child)])
            ledger.trial.links[ledger.running[-1]] += 1
            try:
                return child(x)
            finally:
                ledger.running.pop()
        return x


@dataclass(frozen=True)
class Branch:
    """A trial takes one of these ways."""

    ways: tuple[tuple[object, ...], ...]

    def do(self, ledger, x, link):
        for step in self.ways[ledger.trial.way % len(self.ways)]:
            x = step.do(ledger, x, link)
        return x


@dataclass(frozen=True)
class Whole:
    """A trial: it catches all. Trial n goes the way n of the ways."""

    ways: tuple[int, ...]
    body: tuple[object, ...]

    def do(self, ledger, x, link):
        ledger.begin(self.ways)
        x = chainer.Variable(np.zeros((1, 1 + ledger.trial.way % 3), np.float32))
        for step in self.body:
            with suppress(WorkError):
                x = step.do(ledger, x, link)
        ledger.spend(1)
        x = Fn((3, 4, 5), takes_parameter=True).do(ledger, x, link)
        ledger.spend(2)
        ledger.running.clear()
        ledger.trial.last = None
        return x


@dataclass(frozen=True)
class Spec:
    """A link, with the numbers of those behind it that it has."""

    style: str
    has_parameter: bool
    children: tuple[int, ...]
    body: tuple[object, ...]


def programs(*more, raising=True, backward_raises=False, deep=True, branches=True):
    """Links that may raise, with more that they may do; deep ones call functions in backward.

    The first one is the network. Without branches all trials are alike.
    """
    caught = st.booleans() if raising else st.just(True)

    def function(nested):
        return st.builds(
            Fn,
            st.tuples(*[st.integers(0, 20)] * 3),
            nested=nested,
            old_style=st.booleans(),
            takes_parameter=st.booleans(),
            joins=st.booleans(),
            backward_ns=st.lists(st.integers(0, 20), max_size=2 * deep).map(tuple),
            raises=st.sampled_from([False] * 4 + [raising]),
            caught=caught,
            backward_raises=st.sampled_from([False, False, backward_raises]),
        )

    functions = function(st.lists(function(st.just(())), max_size=2).map(tuple))
    child = st.builds(Child, st.integers(0, 5), st.booleans(), caught)
    way = st.lists(functions | child, max_size=2).map(tuple)
    branch = st.builds(Branch, st.lists(way, min_size=2, max_size=3).map(tuple))
    # Mostly several, of which one is a child's: few programs would have links in others else.
    body = st.lists(st.one_of(child, functions, branch, *more), min_size=1, max_size=4)
    body = st.builds(lambda first, body: (first, *body), child, body) | body.map(tuple)
    children = st.lists(st.integers(0, 5), max_size=3).map(tuple)
    spec = st.builds(Spec, st.sampled_from(list(STYLES)), st.booleans(), children, body)

    def whole(links, ways):
        first, *others = links
        return (Spec(first.style, True, first.children, (Whole(ways, first.body),)), *others)

    ways = st.lists(st.integers(0, 5), min_size=1, max_size=4 if branches else 1).map(tuple)
    return st.builds(whole, st.lists(spec, min_size=1, max_size=5), ways)


# -- their functions and links


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
        ledger, fn, rows = self.ledger, self.fn, self.ledger.trial.rows
        self.shapes = [x.shape for x in inputs]
        phase = ledger.windows[-1][2] or "forward"
        self.owner = ledger.path_of(self.link), type(self).__name__, phase, len(rows)
        rows.append(self.owner[:3])
        with ledger.within(self.owner):
            ledger.spend(fn.times_ns[0])
            for nested in fn.nested:
                nested.do(ledger, inputs[0])
            ledger.spend(fn.times_ns[1])
            if fn.raises:
                raise WorkError
        return (inputs[0].copy(),)

    def work_back(self, grads):
        """The gradients of all inputs."""
        path, name, _, number = self.owner
        with self.ledger.within((path, name, "backward", number)):
            for duration_ns in self.fn.backward_ns:
                Inner(self.ledger, duration_ns).apply(grads[:1])
            self.ledger.spend(self.fn.times_ns[2])
            if self.fn.backward_raises:
                raise WorkError
        return [np.zeros(shape, np.float32) for shape in self.shapes]


class Work(Working, chainer.FunctionNode):
    def backward(self, indexes, grads):
        gradients = self.work_back(grads)
        return tuple(chainer.Variable(gradients[index]) for index in indexes)


class OldWork(Working, chainer.Function):
    """The same in the style of Chainer 1."""

    def backward(self, inputs, grads):
        return tuple(self.work_back(grads))


class Drawn(chainer.Chain):
    """A link that follows its spec."""

    def __init__(self, ledger, spec, behind):
        super().__init__()
        self.ledger, self.spec = ledger, spec
        with self.init_scope():
            if spec.has_parameter:
                self.W = chainer.Parameter(np.zeros((1, 1), np.float32))
            for number in set(spec.children) if behind else ():
                setattr(self, f"link{number}", behind[number % len(behind)])
        self.held = list(self.children())

    def run(self, x):
        for step in self.spec.body:
            x = step.do(self.ledger, x, self)
        return x

    def cleargrads(self):
        with self.ledger.within(CLEARGRADS):
            self.ledger.spend(9)
        super().cleargrads()


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


def build(program, ledger=None):
    """A network, and its ledger."""
    ledger, links = ledger or Ledger(), []
    for spec in reversed(program):
        links.append(STYLES[spec.style](ledger, spec, tuple(links)))
    for path, link in links[-1].namedlinks():
        ledger.paths.setdefault(id(link), joined(ledger.prefix, path))
    return links[-1], ledger


# -- what there is around networks


def loss_of(ledger):
    """A loss with time and a function of its own."""

    def loss(y):
        ledger.spend(8)
        ledger.in_loss = True
        y = Fn((1, 2, 3), (Fn((2, 1, 0)),)).do(ledger, y)
        ledger.in_loss = False
        return F.sum(y)

    return loss


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
def slow_chainer(ledger, slow_lookup=True):
    """Chainer's own parts of a backward pass take time, and so does looking new calls up."""
    check, add_site = chainer.variable._check_grad_type, Recorder.add_site

    def checked(function, *args):
        # In a backward pass, after every function; one of the old style checks by itself, too.
        if function is not None and not isinstance(function, FunctionAdapter):
            ledger.spend(2, BACKWARD)
        return check(function, *args)

    def looked_up(*args, **kwargs):
        ledger.advance(1000 * slow_lookup)  # which is nobody's time
        return add_site(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chainer.functions, "add", lambda *grads: Add(ledger).apply(grads)[0])
        patch.setattr(chainer.variable, "_check_grad_type", checked)
        patch.setattr(Recorder, "add_site", looked_up)
        yield


class Optimizer(chainer.GradientMethod):
    """Its update of a parameter takes 5 ns, its hook 11, and 6 pass before."""

    def __init__(self, ledger, model, *hooked):
        super().__init__()
        self.ledger, self.hooked = ledger, hooked
        self.paths = {
            id(param): joined(ledger.prefix, link_of(path))
            for path, param in reversed(list(model.namedparams()))
        }
        self.setup(model)
        self.add_hook(self.hook, "Hook")

    def create_update_rule(self):
        rule = chainer.UpdateRule(self.hyperparam)
        rule.update_core = self.update_param
        return rule

    def update_param(self, param):
        with self.ledger.within((self.paths[id(param)], "Optimizer", "update")):
            self.ledger.spend(5)

    def hook(self, optimizer):
        with self.ledger.within(("optimizer", "Hook", "update")):
            self.ledger.spend(11)
            for fn in self.hooked:
                fn.do(self.ledger, X)

    def check_nan_in_grads(self):
        self.ledger.spend(6, UPDATE)
        super().check_nan_in_grads()


def step_of(phase, model, ledger):
    """The step of a trial of a phase."""
    if phase == "forward":
        return make_step(phase, model, (X,))
    optimizer = Optimizer(ledger, model) if phase == "train" else None
    return make_step(phase, model, (X,), loss=loss_of(ledger), optimizer=optimizer)


# -- checks


@contextmanager
def nothing_left(model, *others):
    """Check that hooks, methods and attributes are as before; of others the methods."""
    links = list(model.links())
    kinds = {kind for link in links for kind in type(link).__mro__}
    kinds |= {Work, OldWork, FunctionAdapter, chainer.Function, chainer.FunctionNode}

    def all_there_is():
        methods = [{k: v for k, v in vars(other).items() if callable(v)} for other in others]
        attributes = [sorted(vars(link)) for link in links]
        classes = {kind: dict(vars(kind)) for kind in kinds}
        return classes, methods, attributes, dict(chainer.get_function_hooks())

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
