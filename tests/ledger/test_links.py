"""Times by link and function of any iterations: each row has the time of its calls.

Programs are drawn at random, of which no iteration need repeat another: networks, functions outside
of links, links of no network, graphs of earlier iterations, and exceptions that are caught. Each
call writes down by itself how long it took on the fake clock.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from unittest.mock import patch

import chainer
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure import tape
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.tape import Tape
from tests.ledger import drawn
from tests.ledger.drawn import FORWARD, Fn, NewLink, OldLink, Spec, WorkError, call, nothing_left

# -- drawing


FUNCTIONS = st.builds(
    Fn,
    st.tuples(*[st.integers(0, 20)] * 3),
    nested=st.sampled_from([(), (Fn((1, 2, 3)),), (Fn((1, 2, 3), raises=True),)]),
    old_style=st.booleans(),
    raises=st.sampled_from([False] * 4 + [True]),
    caught=st.booleans(),
)


@dataclass(frozen=True)
class Stranger:
    """A call of a link that no network has: one of a list, by its number, or one made for it."""

    number: int | None
    old_style: bool
    body: tuple[object, ...]

    def __call__(self, ledger, x):
        key = self.number, self.old_style
        link = ledger.strangers.get(key)
        if link is None:
            kind = (OldStranger if self.old_style else NewStranger) if self.number else Made
            link = kind(ledger, Spec("", False, (Fn((1, 1, 1)), *self.body)), ())
            if self.number:
                ledger.strangers[key] = link
        ledger.running.append(ledger.path_of_stranger(link))
        try:
            with suppress(WorkError), ledger.within(FORWARD):
                return link(x)
        finally:
            ledger.running.pop()
            if not self.number:  # another one may get its identity
                ledger.paths.pop(id(link), None)
        return x


class NewStranger(NewLink):
    pass


class OldStranger(OldLink):
    pass


class Made(NewLink):
    pass


MADE = st.builds(Stranger, st.none(), st.booleans(), st.lists(FUNCTIONS, max_size=2).map(tuple))
STRANGERS = st.builds(
    Stranger, st.integers(1, 2), st.booleans(), st.lists(FUNCTIONS | MADE, max_size=2).map(tuple)
)
ACTIONS = st.one_of(
    st.sampled_from(["call", "call", "backward", "update", "update with loss", "nothing"]),
    *(FUNCTIONS, STRANGERS, MADE),
)
#: Iterations: whether each is recorded, and its actions.
ITERATIONS = st.lists(
    st.tuples(st.sampled_from([True] * 4 + [False]), st.lists(ACTIONS, max_size=5)),
    min_size=1,
    max_size=5,
)


# -- the ledger


@dataclass
class Iterations(drawn.Ledger):
    """A trial is an iteration, of which any part may be outside of all phases."""

    windows: list[tuple] = field(default_factory=lambda: [("", "", "")])
    strangers: dict = field(default_factory=dict)
    recorded: bool = False

    def begin(self, ways):
        iteration = self.trial
        super().begin(ways)
        iteration.way, self.trial = self.trial.way, iteration

    def path_of(self, link):
        return super().path_of(link) if self.recorded else "/"

    def path_of_stranger(self, link):
        """Path of a link that is of no network: that of its first call that is recorded."""
        recorded_path = self.paths.get(id(link))
        if recorded_path or not self.recorded:
            return recorded_path or "/"
        above = self.running[-1] if self.running else "/"
        path = f"{above.rstrip('/')}/{type(link).__name__}"
        if path in [self.paths.get(id(stranger)) for stranger in self.strangers.values()]:
            path += "-2"
        self.paths[id(link)] = path
        return path


# -- running


class Runner:
    """A network, an optimizer, and a recorder of iterations with them."""

    def __init__(self, program):
        self.model, self.ledger = drawn.build(program, Iterations())
        self.optimizer = drawn.Optimizer(self.ledger, self.model, Fn((1, 2, 3)))
        self.loop = recorder_of(self.ledger, self.model, self.optimizer)
        self.y = None

    def run(self, actions):
        ledger, x = self.ledger, np.zeros((1, 1), np.float32)
        for action in actions:
            ledger.spend(3)
            if action == "call":
                with ledger.within(FORWARD):
                    self.y = self.model(x)
            elif action == "backward" and self.y is not None:
                with ledger.within(drawn.BACKWARD):
                    self.y.grad = np.ones_like(self.y.array)
                    self.y.backward()
            elif action in ("update", "update with loss"):
                with ledger.within(drawn.UPDATE), suppress(WorkError):
                    loss = self.loss if action == "update with loss" else None
                    self.optimizer.update(loss)
            elif callable(action):
                action(ledger, x)
            elif isinstance(action, Fn):
                with suppress(WorkError):
                    call(ledger, action, x, self.model)

    def loss(self):
        ledger = self.ledger
        with ledger.within(FORWARD):
            ledger.in_loss = True
            try:
                y = self.model(np.zeros((1, 1), np.float32))
                y = call(ledger, Fn((1, 2, 3)), y)
            finally:
                ledger.in_loss = False
        y.grad = np.ones_like(y.array)
        return y


def recorder_of(clock, model=None, *optimizers):
    """A recorder, and its entries into Chainer."""
    trial = LoopTrial([("", model)] if model else [], [("", optimizer) for optimizer in optimizers])
    entries = Entries(trial.around)
    return Tape(clock.now_ns, trial, entries), entries


def iteration_of(loop, run, number=1):
    recorder, entries = loop
    with entries, recorder.recording():
        recorder.start()
        run()
        return recorder.end(number)


def rows_of(recorder, values):
    """Values by row."""
    return drawn.by_row(recorder.rows.layers(), values)


def times_by_row(loop, iteration):
    """The time of an iteration by row and phase, and the rest, as in a ledger."""
    recorder, _ = loop
    times = rows_of(recorder, iteration.rows_ns)
    phases = zip(recorder.rows.phases, iteration.phases_ns.tolist(), strict=True)
    times.update({("", "", phase): ns for phase, ns in phases})
    times["", "", ""] = iteration.wall_ns - times.total()
    return +times


def check(loop, trials, read_ns):
    """The iterations that are not folded, with the ledger of each and its number."""
    recorder, _ = loop
    folded = recorder.fold()
    assert [iteration.number for iteration in folded] == [number for number, _ in trials]
    for iteration, (_, trial) in zip(folded, trials, strict=True):
        times, calls = times_by_row(loop, iteration), rows_of(recorder, iteration.calls)
        assert +calls == Counter({of: n for of, n in trial.calls.items() if of[1]})
        assert times.total() == iteration.wall_ns
        if not read_ns:
            assert iteration.wall_ns == trial.spent.total()
            assert +times == +drawn.of_rows(trial.spent)
    assert not recorder.fold()
    trials.clear()


@drawn.EXAMPLES
@given(
    program=drawn.programs(True, STRANGERS, MADE),
    iterations=ITERATIONS,
    together=st.booleans(),
    read_ns=st.sampled_from([0, 0, 1]),
    most_events=st.sampled_from([10**6, 10**6, 2, 9]),
)
def test_every_row_has_its_own_time_in_any_iterations(
    program, iterations, together, read_ns, most_events
):
    """Also where the tape is folded within iterations again and again, or behind all of them."""
    with patch.object(tape, "_MOST_EVENTS", most_events):
        runner, trials = Runner(program), []
        runner.ledger.read_ns = read_ns
        model, ledger, (recorder, entries) = runner.model, runner.ledger, runner.loop
        kept = [runner.optimizer, chainer.Variable, chainer.Optimizer]
        kept += [param.update_rule for param in model.params()]
        with nothing_left(model, *kept), drawn.slow_chainer(ledger):
            for number, (recorded, actions) in enumerate(iterations):
                ledger.recorded, ledger.trial = recorded, drawn.Trial()
                if not recorded:
                    runner.run(actions)
                    continue
                begin_ns = ledger.time_ns
                with entries, recorder.recording():
                    recorder.start()
                    runner.run(actions)
                    recorder.stop(number)
                assert read_ns or ledger.trial.spent.total() == ledger.time_ns - begin_ns
                trials.append((number, ledger.trial))
                if not together:
                    check(runner.loop, trials, read_ns)
            check(runner.loop, trials, read_ns)
