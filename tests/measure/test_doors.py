"""Any network, through every door: each row of each trial has what its call took, and no other's.

Networks are drawn at random: links within links and functions within functions, shared links,
loops, both styles of links and of functions, exceptions that are caught, and branches that
trials take in turn. Each call writes down by itself how long it took on the fake clock.
"""

from __future__ import annotations

import gc
import tempfile
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer import training
from chainer.function import FunctionAdapter
from chainer.function_hooks import TimerHook
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from chainer_profile import LayerProfile, LayerTimerHook, fold_call_history
from chainer_profile.basics.paths import joined
from chainer_profile.integrations.cell import Cell, FirstRun
from chainer_profile.measure import runner
from chainer_profile.measure.steps import BackwardStep, ForwardStep, Loss
from chainer_profile.record.recording import Settings
from chainer_profile.runs.folder import load_run
from tests.conftest import FakeClock

N_TRIALS = 12


class WorkError(Exception):
    """What functions and links raise, and networks catch."""


# -- what is drawn


@dataclass(frozen=True)
class Fn:
    """A call of a function."""

    times_ns: tuple[int, int, int]
    nested: tuple[Fn, ...] = ()
    old_style: bool = False
    takes_parameter: bool = False
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


def programs(raising=True, *more):
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
            raises=raises,
            caught=caught,
        )

    functions = function(st.lists(function(st.just(())), max_size=2).map(tuple))
    child = st.builds(Child, st.integers(0, 5), st.integers(1, 2), st.booleans(), caught=caught)
    simple = functions | child | (st.just(Raise()) if raising else child)
    way = st.lists(simple, max_size=2).map(tuple)
    branch = st.builds(Branch, st.lists(way, min_size=2, max_size=3).map(tuple))
    body = st.lists(st.one_of(functions, child, branch, simple, *more), max_size=3).map(tuple)
    spec = st.builds(Spec, st.sampled_from(list(STYLES)), st.booleans(), body)
    return st.builds(
        Program,
        st.lists(spec, min_size=1, max_size=5).map(tuple),
        st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple),
    )


# -- what writes down


@dataclass
class Trial:
    """What a call of the network truly did."""

    way: int
    rows: list[tuple[str, str]] = field(default_factory=list)
    spent: Counter = field(default_factory=Counter)
    raised: set[str] = field(default_factory=set)
    wall_ns: int = 0


@dataclass
class Ledger(FakeClock):
    """A clock that keeps for whom it was advanced."""

    paths: dict[int, str] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    windows: list[object] = field(default_factory=list)
    trials: dict[int, Trial] = field(default_factory=dict)
    trial: Trial = field(default_factory=lambda: Trial(0))
    ended: list[tuple[str, int]] = field(default_factory=list)
    raised: int = 0

    def spend(self, duration_ns):
        if duration_ns:
            duration_ns += len(self.trials) % 5  # no two trials take the same
        self.advance(duration_ns)
        owner = self.windows[-1] if self.windows else ("framework",)
        self.trial.spent[owner] += duration_ns

    @contextmanager
    def window(self, phase, function):
        """A window of a function."""
        name = type(function).__name__
        if phase == "forward":
            function.number = len(self.trial.rows)
            self.trial.rows.append((self.path_of(function.link), name))
        owner, spent = (phase, function.number), self.trial.spent
        before = spent[owner]
        self.windows.append(owner)
        try:
            yield
            self.ended.append((name, spent[owner] - before))
        except WorkError:
            self.raised += 1
            self.trial.raised.add(name)
            raise
        finally:
            self.windows.pop()

    def path_of(self, link):
        """Path of a call that takes a link's parameter, if it does."""
        running = self.running[-1] if self.running else "/"
        path = self.paths.get(id(link), "")
        return path if path.startswith(running.rstrip("/") + "/") else running


class Work(chainer.FunctionNode):
    """Takes its time, before and behind the functions in it."""

    def __init__(self, ledger, fn, link):
        super().__init__()
        self.ledger, self.fn, self.link = ledger, fn, link

    def forward(self, inputs):
        return forward(self, inputs)

    def backward(self, indexes, grads):
        backward(self)
        shapes = [grads[0].shape, (1, 1)]
        return tuple(chainer.Variable(np.zeros(shapes[index], np.float32)) for index in indexes)


class OldWork(chainer.Function):
    """The same in the style of Chainer 1."""

    def __init__(self, ledger, fn, link):
        super().__init__()
        self.ledger, self.fn, self.link = ledger, fn, link

    def forward(self, inputs):
        return forward(self, inputs)

    def backward(self, inputs, grads):
        backward(self)
        return tuple(np.zeros_like(x) for x in inputs)


def forward(function, inputs):
    ledger, fn = function.ledger, function.fn
    with ledger.window("forward", function):
        ledger.spend(fn.times_ns[0])
        for nested in fn.nested:
            call(ledger, nested, inputs[0])
        ledger.spend(fn.times_ns[1])
        if fn.raises:
            raise WorkError
    return (inputs[0].copy(),)


def backward(function):
    ledger = function.ledger
    with ledger.window("backward", function):
        ledger.spend(function.fn.times_ns[2])


def call(ledger, fn, x, link=None):
    kind = OldWork if fn.old_style else Work
    takes = fn.takes_parameter and link is not None and link.spec.has_parameter
    function, inputs = kind(ledger, fn, link if takes else None), (x, link.W) if takes else (x,)
    try:
        return function(*inputs) if fn.old_style else function.apply(inputs)[0]
    except WorkError:
        if not fn.caught:
            raise
        return x


class Drawn(chainer.Chain):
    """A link that does what its spec says."""

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
        for one in body:
            if isinstance(one, Branch):
                for way in one.ways:
                    yield from self.numbers(way)
            elif isinstance(one, Child) and self.links_behind:
                yield one.link % len(self.links_behind)

    def run(self, x):
        self.ledger.spend(1)
        for one in self.spec.body:
            x = self.do(one, x)
        return x

    def do(self, one, x):
        if isinstance(one, Raise):
            raise WorkError
        if callable(one):
            return one(self.ledger, x)
        if isinstance(one, Fn):
            return call(self.ledger, one, x, self)
        if isinstance(one, Branch):
            for inner in one.ways[self.ledger.trial.way % len(one.ways)]:
                x = self.do(inner, x)
            return x
        if not self.links_behind:
            return x
        link = getattr(self, f"link{one.link % len(self.links_behind)}")
        for _ in range(one.times):
            with suppress(WorkError) if one.caught else ExitStack():
                if one.direct and type(link).__call__ is chainer.Link.__call__:
                    x = link.forward(x)
                else:
                    self.ledger.running.append(self.ledger.paths[id(link)])
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
KINDS = (
    *STYLES.values(),
    *(Drawn, Work, OldWork, FunctionAdapter),
    *(chainer.Function, chainer.FunctionNode, chainer.Link, chainer.Chain),
)


class RootMixin:
    """The network: it begins a trial, and catches all."""

    def run(self, x):
        ledger, program = self.ledger, self.program
        way = program.ways[len(ledger.trials) % len(program.ways)]
        begin_ns = ledger.time_ns
        ledger.running[:] = ["/"]
        ledger.trial = ledger.trials[begin_ns] = Trial(way)
        y = chainer.as_variable(np.zeros((1, 1 + way % 3), np.float32))
        ledger.spend(1)
        for one in self.spec.body:
            with suppress(WorkError):
                y = self.do(one, y)
        ledger.spend(1)
        y = call(ledger, Fn((3, 4, 5), takes_parameter=True), y, self)
        ledger.spend(2)
        ledger.trial.wall_ns = ledger.time_ns - begin_ns
        ledger.running.clear()
        return y


ROOTS = {
    "NewLink": type("NewRoot", (RootMixin, NewLink), {}),
    "CallsNew": type("CallsNewRoot", (RootMixin, CallsNew), {}),
    "OldLink": type("OldRoot", (RootMixin, OldLink), {}),
    "CallsOld": type("CallsOldRoot", (RootMixin, CallsOld), {}),
    "Inherits": type("InheritsRoot", (RootMixin, Inherits), {}),
}


def build(program, ledger=None):
    """A network, and its ledger."""
    ledger, links = ledger or Ledger(), []
    for spec in reversed(program.links[1:]):
        links.append(STYLES[spec.style](ledger, spec, tuple(links)))
    spec = program.links[0]
    spec = Spec(spec.style, True, spec.body)
    model = ROOTS[spec.style](ledger, spec, tuple(links))
    model.program = program
    for path, link in model.namedlinks():
        ledger.paths.setdefault(id(link), path)
    return model, ledger


# -- what must hold


@contextmanager
def nothing_left(model):
    """Afterwards hooks, methods and attributes are what they were."""

    def all_there_is():
        return [
            *({**vars(kind)} for kind in (*KINDS, *ROOTS.values())),
            *(
                set(vars(link)) - {"local_link_hooks", "_local_link_hooks"}
                for link in model.links()
            ),
            *(link._n_local_link_hooks for link in model.links()),
            *(chainer.get_function_hooks(), dict(chainer._get_link_hooks())),
        ]

    before = all_there_is()
    yield
    assert all_there_is() == before


def check(recording, ledger):
    """Every trial is one of the ledger's, and that one in all it has."""
    forward = [a for a in recording.layers if a.phase == "forward" and a.function != "Sum"]
    number = {layer.index: at for at, layer in enumerate(forward)}
    rows = [(layer.path, layer.function) for layer in forward]
    samples = recording.start_ns, recording.trial_ns, recording.self_ns
    for start_ns, trial_ns, times in zip(*(of.tolist() for of in samples), strict=True):
        trial = ledger.trials[start_ns]
        assert rows == trial.rows
        found = Counter()
        for layer, time_ns in zip(recording.layers, times, strict=True):
            if layer.index in number:
                found["forward", number[layer.index]] += time_ns
            elif layer.forward in number:
                assert layer.path == recording.layers[layer.forward].path
                found["backward", number[layer.forward]] += time_ns
            else:
                assert time_ns == 0  # such as a loss
        spent = +trial.spent
        has_backward = any(owner[0] == "backward" for owner in found)
        if not has_backward:
            spent = Counter({o: t for o, t in spent.items() if o[0] != "backward"})
        found["framework",] = trial_ns - sum(times)
        assert +found == spent
        assert trial_ns == sum(spent.values())
    assert len(set(recording.start_ns.tolist())) == recording.n_trials


def run(step, ledger, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a memory pass of a network of many kinds
        return runner.run(
            step,
            Settings(trials=N_TRIALS, warmups=1, clean_trials=2),
            clock=ledger,
            choose_threads=False,
            **kwargs,
        )


pytestmark = pytest.mark.usefixtures("one_thread")
# To shrink such a program takes minutes, and hardly helps.
EXAMPLES = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """What is drawn and looked up of the machine has tests of its own."""
    from chainer_profile.integrations import trainer
    from chainer_profile.measure import environment
    from chainer_profile.record.recording import Environment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "write_reports", lambda *_: None)
        patch.setattr(environment, "collect", lambda *_: Environment(numpy="1"))
        yield


def scalar(y):
    return F.sum(y)


@pytest.mark.parametrize("phase", ["forward", "forward-backward"])
@EXAMPLES
@given(program=programs(), memory=st.booleans())
def test_profile(phase, program, memory):
    model, ledger = build(program)
    x = np.zeros((1, 1), np.float32)
    if phase == "forward":
        step = ForwardStep(model, (x,))
    else:
        step = BackwardStep(model, (x,), Loss("sum", scalar))
    with nothing_left(model):
        recording = run(step, ledger, memory=memory)
    assert (recording.n_trials, recording.left_out) == (N_TRIALS, 0)
    if recording.by_link:
        check_rows(recording, ledger, behind_ns=0, backward=phase != "forward")
    else:
        check(recording, ledger)


@EXAMPLES
@given(program=programs(), memory=st.booleans())
def test_cell(program, memory):
    model, ledger = build(program)
    names = {"model": model, "x": np.zeros((1, 1), np.float32)}
    code = compile("y = model(x)", "cell", "exec")
    with nothing_left(model):
        FirstRun(code, names)
        recording = run(Cell(code, names), ledger, memory=memory, by_link=True)
    assert (recording.n_trials, recording.left_out) == (N_TRIALS, 0)
    assert recording.by_link
    assert (recording.memory is not None) is memory
    check_rows(recording, ledger, behind_ns=0, backward=False, prefix="/model")


def drive(model, ledger, between):
    """Trials with other code between them."""
    for n in range(N_TRIALS):
        y = model(np.zeros((1, 1), np.float32))
        ledger.advance(100)
        for what in between[n % len(between)] if between else ():
            if what == "backward":
                y.grad = np.ones_like(y.array)
                y.backward()
            else:
                ledger.running[:] = ["/"]
                spec = Fn((7, 8, 9), (Fn((2, 3, 4)),), old_style=what == "old function")
                trial, ledger.trial = ledger.trial, Trial(0)
                call(ledger, spec, np.zeros((1, 1), np.float32))
                ledger.trial = trial
                ledger.running.clear()
            ledger.advance(10)


class OldBusy(chainer.Function):
    def __init__(self, clock, duration_ns):
        super().__init__()
        self.clock, self.duration_ns = clock, duration_ns

    def forward(self, inputs):
        self.clock.advance(self.duration_ns)
        raise WorkError


class Busy(chainer.FunctionNode):
    """Calls another one in itself, so deep, and the innermost may raise."""

    def __init__(self, clock, deep, raises):
        super().__init__()
        self.args = clock, deep, raises

    def forward(self, inputs):
        clock, deep, raises = self.args
        clock.advance(5)
        if deep:
            Busy(clock, deep - 1, raises).apply(inputs)
        elif raises:
            raise WorkError
        return (inputs[0].copy(),)


class Does(chainer.Chain):
    def __init__(self, does):
        super().__init__()
        self.does, self.count = does, 0
        with self.init_scope():
            self.a = chainer.Sequential(lambda x: F.identity(x))

    def forward(self, x):
        self.count += 1
        return self.does(self, x, self.count - 1)


def profiled(clock, does):
    """The rows of a trial, and the recording."""
    step = ForwardStep(Does(does), (np.zeros((1, 1), np.float32),))
    recording = run(step, clock, memory=False)
    rows = zip(recording.layers, recording.self_ns[0].tolist(), strict=True)
    return [(a.path, a.function, ns) for a, ns in rows], recording


@pytest.mark.parametrize("old_style", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_a_caught_exception_takes_no_others_time(clock, old_style, last):
    def raises(x):
        with suppress(WorkError):
            if old_style:
                OldBusy(clock, 5)(x)
            else:
                Busy(clock, 0, True).apply((x,))

    def does(self, x, n):
        if not last:
            raises(x)
        clock.advance(2)
        y = self.a(x)
        if last:
            raises(x)
        clock.advance(3)
        return y

    raised = ("/", "OldBusy" if old_style else "Busy", 5)
    rows = [("/a", "Identity", 0)]
    rows.insert(len(rows) if last else 0, raised)
    found, recording = profiled(clock, does)
    assert found == rows
    assert (recording.self_ns == recording.self_ns[0]).all()
    assert (recording.n_trials, recording.by_link) == (N_TRIALS, False)


def test_windows_without_ends_are_not_those_of_other_calls(clock):
    """Five begins take the place of four begins and ends."""

    def does(self, x, n):
        with suppress(WorkError):
            Busy(clock, 3 + (n == 6), n == 6).apply((x,))

    found, recording = profiled(clock, does)
    assert found == [("/", "Busy", 20)]
    assert recording.by_link
    assert recording.self_ns.tolist() == [[20]] * N_TRIALS
    assert recording.calls.tolist() == [[4]] * N_TRIALS
    assert recording.warmup_ns.tolist() == [20, 25]


def test_what_raises_now_and_then_is_in_all_trials(clock):
    def does(self, x, n):
        self.a(x)
        with suppress(WorkError):
            Busy(clock, 0, n % 5 == 4).apply((x,))

    found, recording = profiled(clock, does)
    assert found == [("/a", "Identity", 0), ("/", "Busy", 5)]
    assert recording.n_trials == N_TRIALS
    assert (recording.self_ns.sum(axis=1) == recording.trial_ns).all()


between = st.lists(
    st.lists(st.sampled_from(["backward", "function", "old function"]), max_size=2, unique=True),
    max_size=3,
)


@EXAMPLES
@given(program=programs(), between=between, two=st.booleans())
def test_layer_timer_hook(program, between, two):
    model, ledger = build(program)
    hooks = [LayerTimerHook(ledger) for _ in range(1 + two)]
    with nothing_left(model):
        with ExitStack() as stack:
            for hook in hooks:
                stack.enter_context(hook)
            drive(model, ledger, between)
        gc.collect()
    for hook in hooks:
        recording = hook.recording(model)
        # The first trial taught; another one may have shown that they differ.
        assert recording.n_trials + len(recording.warmup_ns) == N_TRIALS
        assert len(recording.warmup_ns) <= 2
        if recording.by_link:
            check_rows(recording, ledger, behind_ns=0, backward=False)
        else:
            check(recording, ledger)


@EXAMPLES
@given(program=programs(raising=False), between=between, first=st.booleans())
def test_histories(program, between, first):
    model, ledger = build(program)
    timer, hook = TimerHook(), LayerTimerHook(ledger)
    with pytest.MonkeyPatch.context() as patch, nothing_left(model), ExitStack() as stack:
        patch.setattr(chainer.function_hooks.timer, "_get_time", ledger.now_ns)
        for one in (hook, timer) if first else (timer, hook):
            stack.enter_context(one)
        drive(model, ledger, between)
    assert [name for name, _ in hook.call_history] == [name for name, _ in timer.call_history]
    assert [s for _, s in hook.call_history] == [ns / 1e9 for _, ns in timer.call_history]
    assert hook.total_time() == timer.total_time() / 1e9
    own = [(name, s) for name, s in hook.self_history if name.endswith("Work")]
    assert own == [(name, ns / 1e9) for name, ns in ledger.ended]
    folded = fold_call_history(hook, len(hook.self_history))
    assert folded.self_ns.tolist() == [[round(s * 1e9) for _, s in hook.self_history]]


class Updater(training.updaters.StandardUpdater):
    def update_core(self):
        self.get_iterator("main").next()
        optimizer, x = self.get_optimizer("main"), np.zeros((1, 1), np.float32)
        optimizer.update(lambda: scalar(optimizer.target(x)))
        self.ledger.advance(100)


class Rule(chainer.UpdateRule):
    def update_core(self, param):
        pass


class Optimizer(chainer.GradientMethod):
    def create_update_rule(self):
        return Rule(self.hyperparam)


@EXAMPLES
@given(program=programs(), two=st.booleans(), memory=st.booleans())
def test_layer_profile(program, two, memory):
    model, ledger = build(program)
    iterator = chainer.iterators.SerialIterator(np.zeros((4, 1), np.float32), 2)
    with nothing_left(model), tempfile.TemporaryDirectory() as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        updater = Updater(iterator, Optimizer().setup(model))
        updater.ledger = ledger
        before = dict(vars(updater))
        trainer = training.Trainer(updater, (N_TRIALS + 4, "iteration"), out=out)
        for n in range(1 + two):
            trigger = 1, "iteration"
            trainer.extend(
                LayerProfile(trigger, f"profile{n}", clock=ledger, memory=memory, machine=False)
            )
        trainer.run()
        assert set(vars(updater)) == set(before)
        for n in range(1 + two):
            recording = load_run(Path(out, f"profile{n}"))
            check_rows(recording, ledger)
            # The first iteration is before the first firing; two are the memory pass's.
            assert recording.n_trials == N_TRIALS + 3 - 2 * memory
            assert (recording.memory is not None) is memory


def check_rows(recording, ledger, behind_ns=100, backward=True, prefix=""):
    """Each iteration is one of the ledger's, and has in each row what the row's calls took.

    Where a function of a class raises for the first time it is known later, and only the sum holds.
    """
    keys = [(layer.path, layer.function, layer.phase) for layer in recording.layers]
    assert len(set(keys)) == len(keys)
    raised = set()

    def named(path, function, phase):
        return joined(prefix, path), function, phase

    for at, start_ns in enumerate(recording.start_ns.tolist()):
        trial = ledger.trials[start_ns]
        spent = Counter()
        for (phase, *number), ns in trial.spent.items():
            if phase == "backward" and not backward:
                continue
            spent[named(*trial.rows[number[0]], phase) if number else (phase,)] += ns
        found = Counter(dict(zip(keys, recording.self_ns[at].tolist(), strict=True)))
        # What is behind the update is the iteration's, and in no phase.
        found["framework",] = int(recording.trial_ns[at]) - behind_ns - found.total()
        assert found.total() == spent.total()
        assert min(found.values()) >= 0
        known = zip(keys, recording.calls[at].tolist(), strict=True)
        calls = {of: n for of, n in known if n and of[2] == "forward" and of[1] != "Sum"}
        assert calls == Counter(named(*row, "forward") for row in trial.rows)
        if trial.raised <= raised:
            assert +found == +spent
        raised |= trial.raised
