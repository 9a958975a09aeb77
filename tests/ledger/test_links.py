"""Rows by link and function have the time of their calls, in iterations that all differ.

The random programs have functions outside of links, links outside of networks, graphs of earlier
iterations, and caught exceptions.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from unittest.mock import patch

import chainer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import ProfileError, profiling
from chainer_profile.measure import iterations as live
from chainer_profile.measure import recorder
from tests.ledger import random_programs
from tests.ledger.ledger import (
    BACKWARD,
    FORWARD,
    UPDATE,
    Ledger,
    Trial,
    framework_of,
    sum_by_row,
    values_by_row,
)
from tests.ledger.random_programs import Fn, NewLink, OldLink, Spec, WorkError, X, assert_unpatched
from tests.ledger.slow import Optimizer, slow_chainer
from tests.ledger.test_entry_points import _quick  # noqa: F401

FUNCTIONS = st.builds(
    Fn,
    st.tuples(*[st.integers(0, 20)] * 3),
    nested=st.sampled_from([(), (Fn((1, 2, 3)),), (Fn((1, 2, 3), raises=True),)]),
    old_style=st.booleans(),
    raises=st.sampled_from([False] * 4 + [True]),
    caught=st.booleans(),
)


class NewOutsideLink(NewLink):
    pass


class OldOutsideLink(OldLink):
    pass


class TemporaryLink(NewLink):
    pass


@dataclass(frozen=True)
class OutsideCall:
    """A call of a link outside of the network: the one with a number, or one made for this call."""

    number: int | None
    kind: type
    body: tuple[object, ...]

    def do(self, ledger, x, link=None):
        link = ledger.outside_links.get((self.number, self.kind))
        if link is None:
            link = self.kind(ledger, Spec("", False, (), (Fn((1, 1, 1)), *self.body)), ())
            if self.number:
                ledger.outside_links[self.number, self.kind] = link
        ledger.running.append(ledger.path_of_outside_link(link))
        try:
            with suppress(WorkError), ledger.within(FORWARD):
                return link(x)
        finally:
            ledger.running.pop()
            if not self.number:  # another link may get its id
                ledger.paths.pop(id(link), None)
        return x


TEMPORARY_LINKS = st.builds(
    OutsideCall, st.none(), st.just(TemporaryLink), st.lists(FUNCTIONS, max_size=2).map(tuple)
)
OUTSIDE_CALLS = st.builds(
    OutsideCall,
    st.integers(1, 2),
    st.sampled_from([NewOutsideLink, OldOutsideLink]),
    st.lists(FUNCTIONS | TEMPORARY_LINKS, max_size=2).map(tuple),
)
ACTIONS = st.one_of(
    *[st.sampled_from(["call", "backward", "update", "update with loss", "nothing"])] * 4,
    *(FUNCTIONS, OUTSIDE_CALLS, TEMPORARY_LINKS),
)
#: Iterations: whether each is profiled, and its actions.
ITERATIONS = st.lists(
    st.tuples(st.sampled_from([True] * 4 + [False]), st.lists(ACTIONS, max_size=6)),
    min_size=1,
    max_size=5,
)


@dataclass
class Iterations(Ledger):
    """A ledger of iterations; time of an iteration may be outside of all phases."""

    open_owners: list[tuple] = field(default_factory=lambda: [("", "", "")])
    outside_links: dict = field(default_factory=dict)
    profiled: bool = False

    def begin(self, ways):
        iteration = self.trial
        super().begin(ways)
        iteration.way, self.trial = self.trial.way, iteration

    def path_of(self, link):
        return super().path_of(link) if self.profiled else "/"

    def path_of_outside_link(self, link):
        """Path of the first profiled call of a link outside of the network."""
        path = self.paths.get(id(link))
        if path or not self.profiled:
            return path or "/"
        above = self.running[-1] if self.running else "/"
        path = f"{above.rstrip('/')}/{type(link).__name__}"
        if path in [
            self.paths.get(id(outside_link)) for outside_link in self.outside_links.values()
        ]:
            path += "-2"
        self.paths[id(link)] = path
        return path

    def run(self, actions, model, optimizer, y):
        """Run the operations of an iteration; return the network's last output."""

        def loss():
            self.in_loss = True
            with self.within(FORWARD):
                y = Fn((1, 2, 3)).do(self, model(X))
            self.in_loss = False
            y.grad = np.ones_like(y.array)
            return y

        for action in actions:
            self.spend(3)
            if action == "call" or (action == "backward" and y is None):
                with self.within(FORWARD):
                    y = model(X)
            if action == "backward":
                with self.within(BACKWARD), suppress(WorkError):
                    y.grad = np.ones_like(y.array)
                    y.backward()
            elif action in ("update", "update with loss"):
                with self.within(UPDATE), suppress(WorkError):
                    optimizer.update(loss if action == "update with loss" else None)
            elif not isinstance(action, str):
                with suppress(WorkError):
                    action.do(self, X)
        return y


@random_programs.EXAMPLES
@given(
    program=random_programs.programs(OUTSIDE_CALLS, TEMPORARY_LINKS, backward_raises=True),
    iterations=ITERATIONS,
    together=st.booleans(),
    max_events=st.sampled_from([10**6, 10**6, 2, 9]),
)
def test_rows_have_exact_times_in_any_iterations(program, iterations, together, max_events):
    """It does not matter how often the log is read, within an iteration or after several."""
    model, ledger = random_programs.build(program, Iterations(prefix="/model"))
    optimizer, y = Optimizer(ledger, model, Fn((1, 2, 3))), None
    trials, block = [], profiling(memory=False, clock=ledger)
    unpatched_objects = [optimizer, chainer.Variable, chainer.Optimizer]
    unpatched_objects += [param.update_rule for param in model.params()]
    with (
        patch.object(recorder, "MAX_EVENTS", max_events),
        patch.object(live, "GROUP_NS", 10**12 if together else 0),
        assert_unpatched(model, *unpatched_objects),
        slow_chainer(ledger),
    ):
        for profiled, actions in iterations:
            ledger.profiled, ledger.trial = profiled, Trial()
            if not profiled:
                y = ledger.run(actions, model, optimizer, y)
                continue
            trials.append(ledger.trial)
            with block:
                y = ledger.run(actions, model, optimizer, y)
    called = [trial for trial in trials if any(name for _, name, _ in trial.calls)]
    if not called:
        with pytest.raises(ProfileError):
            block.recording()
        return
    recording = block.recording()
    assert recording.n_trials == len(called)
    mean_calls = [layer.calls for layer in recording.layers]
    assert mean_calls == pytest.approx(recording.calls.mean(axis=0))
    for index, trial in enumerate(called):
        times = values_by_row(recording.layers, recording.self_ns[index])
        calls = values_by_row(recording.layers, recording.calls[index])
        if recording.phases:
            framework_ns = recording.framework_ns[index].tolist()
            of_phases = zip(map(framework_of, recording.phases), framework_ns, strict=True)
            times.update(dict(of_phases))
        assert recording.trial_ns[index] == trial.spent.total()
        times["", "", ""] = trial.spent.total() - times.total()
        assert +calls == Counter({key: n for key, n in trial.calls.items() if key[1]})
        assert +times == +sum_by_row(trial.spent)
