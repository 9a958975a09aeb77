"""Random programs that record in a ledger how long each of their calls takes.

The programs have nested and shared links, nested functions, both styles of links and functions,
caught exceptions, graphs with gradient sums, and branches that alternate between trials.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import chainer
import numpy as np
from chainer.function import FunctionAdapter
from hypothesis import Phase, settings
from hypothesis import strategies as st

from chainer_profile.basics.paths import joined
from tests.ledger.ledger import CLEARGRADS, Ledger

# Shrinking such a program takes minutes and rarely helps.
EXAMPLES = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
X = np.zeros((1, 1), np.float32)


class WorkError(Exception):
    """An exception that functions raise and networks may catch."""


# -- steps of programs; each step runs within a link


@dataclass(frozen=True)
class Fn:
    """A call of a function.

    Attributes:
        times_ns: Time before the nested calls, after them, and in backward.
        joins: Whether the function also takes the output of the last call with a parameter.
        backward_ns: Times of the functions that backward calls.
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
    """A call of a child link."""

    number: int
    direct: bool = False
    caught: bool = True

    def do(self, ledger, x, link):
        if not link.child_links:
            return x
        child = link.child_links[self.number % len(link.child_links)]
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
    """Alternative steps, of which each trial runs one."""

    ways: tuple[tuple[object, ...], ...]

    def do(self, ledger, x, link):
        for step in self.ways[ledger.trial.way % len(self.ways)]:
            x = step.do(ledger, x, link)
        return x


@dataclass(frozen=True)
class NetworkBody:
    """The network's forward pass, which catches all exceptions.

    Attributes:
        ways: The branch that each trial takes.
    """

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
    """A link. ``children`` has the numbers of later links in the program."""

    style: str
    has_parameter: bool
    children: tuple[int, ...]
    body: tuple[object, ...]


def programs(*more, raising=True, backward_raises=False, deep=True, branches=True):
    """Strategy of programs, which are tuples of links; the first link is the network.

    Args:
        more: Further steps that a link may run.
        raising: Whether functions may raise in forward.
        backward_raises: Whether functions may raise in backward.
        deep: Whether a backward may call functions.
        branches: Whether trials may differ.
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
    # Most links call a child first; otherwise few programs would have nested links.
    body = st.lists(st.one_of(child, functions, branch, *more), min_size=1, max_size=4)
    body = st.builds(lambda first, body: (first, *body), child, body) | body.map(tuple)
    children = st.lists(st.integers(0, 5), max_size=3).map(tuple)
    spec = st.builds(Spec, st.sampled_from(list(STYLES)), st.booleans(), children, body)

    def make_network(links, ways):
        first, *others = links
        return (Spec(first.style, True, first.children, (NetworkBody(ways, first.body),)), *others)

    ways = st.lists(st.integers(0, 5), min_size=1, max_size=4 if branches else 1).map(tuple)
    return st.builds(make_network, st.lists(spec, min_size=1, max_size=5), ways)


# -- functions and links of the programs


class Inner(chainer.FunctionNode):
    """A function that a backward calls. Its time, at any depth, belongs to that backward."""

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
    """Spends time before and after its nested calls."""

    def __init__(self, ledger, fn, link):
        super().__init__()
        self.ledger, self.fn, self.link = ledger, fn, link

    def forward(self, inputs):
        ledger, fn, rows = self.ledger, self.fn, self.ledger.trial.rows
        self.shapes = [x.shape for x in inputs]
        phase = ledger.open_owners[-1][2] or "forward"
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

    def spend_backward(self, grads):
        """Spend the time of backward; return the gradients of all inputs."""
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
        gradients = self.spend_backward(grads)
        return tuple(chainer.Variable(gradients[index]) for index in indexes)


class OldWork(Working, chainer.Function):
    """``Work`` in the style of Chainer 1."""

    def backward(self, inputs, grads):
        return tuple(self.spend_backward(grads))


class Drawn(chainer.Chain):
    """A link that runs the steps of its spec."""

    def __init__(self, ledger, spec, following):
        super().__init__()
        self.ledger, self.spec = ledger, spec
        with self.init_scope():
            if spec.has_parameter:
                self.W = chainer.Parameter(np.zeros((1, 1), np.float32))
            for number in set(spec.children) if following else ():
                setattr(self, f"link{number}", following[number % len(following)])
        self.child_links = list(self.children())

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
    """Build a program; return its network and its ledger."""
    ledger, links = ledger or Ledger(), []
    for spec in reversed(program):
        links.append(STYLES[spec.style](ledger, spec, tuple(links)))
    for path, link in links[-1].namedlinks():
        ledger.paths.setdefault(id(link), joined(ledger.prefix, path))
    return links[-1], ledger


@contextmanager
def assert_unpatched(model, *others):
    """Check that the context leaves hooks, methods and attributes of a model as they were.

    Compares only the methods of ``others``.
    """
    links = list(model.links())
    kinds = {kind for link in links for kind in type(link).__mro__}
    kinds |= {Work, OldWork, FunctionAdapter, chainer.Function, chainer.FunctionNode}

    def hooks_and_attributes():
        methods = [{k: v for k, v in vars(other).items() if callable(v)} for other in others]
        attributes = [sorted(vars(link)) for link in links]
        classes = {kind: dict(vars(kind)) for kind in kinds}
        return classes, methods, attributes, dict(chainer.get_function_hooks())

    before = hooks_and_attributes()
    yield
    assert hooks_and_attributes() == before
