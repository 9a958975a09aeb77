"""Iterations, rows and accounts of random training loops are exact on a fake clock.

A random program is a list of operations. :class:`.Runner` runs them with Chainer's objects, and
:class:`ExpectedTimes` adds up their times by the position of each operation in its loop.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.integrations.program import Program
from chainer_profile.measure import iteration_writer
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.budget import (
    CALLS,
    DATA,
    INTERRUPTED,
    ITERATIONS,
    PROFILER,
    REST,
    TEST_CALLS,
    WITHOUT_FUNCTIONS,
)
from chainer_profile.record.journal import Journal
from tests.conftest import FakeClock
from tests.integrations.random_loops import Runner, plans, times


class ExpectedTimes:
    """Adds up the true times of a random program, by the positions of its operations.

    Attributes:
        spent: Time and count by account.
        iterations: The time of each complete iteration.
        rows: Time of the trained networks in complete iterations, by number and phase.
    """

    def __init__(self, plan, times):
        self.times = times
        self.spent = {(REST, ""): [0, 0]}
        self.iterations, self.rows = [], Counter()
        self.losses = []
        attempts = plan.attempts()
        for between, iteration in zip(attempts[::2], attempts[1::2], strict=True):
            for op in between:
                self._add_outside(op)
            self._add_iteration(iteration, len(plan.cycle))

    def _add(self, part, name, ns, count=1):
        spent = self.spent.setdefault((part, name), [0, 0])
        spent[0] += ns
        spent[1] += count

    def _add_outside(self, op, ns=None):
        """Add an operation outside of iterations to its account."""
        self._add(REST, "", self.times.own, 0)
        account = {
            "load": (DATA, "Data"),
            "test": (TEST_CALLS, ""),
            "features": (CALLS, ""),
            "evaluate": (CALLS, ""),
            "normalise": (CALLS, WITHOUT_FUNCTIONS),
        }.get(op.name, (REST, ""))
        is_counted = account[0] != REST and not op.fails
        account = (REST, "") if op.fails else account
        self._add(*account, self._times_of(op)[0] if ns is None else ns, int(is_counted))

    def _times_of(self, op):
        """Return the time of an operation in ns, and its time in each row of trained networks."""
        times, rows = self.times, Counter()
        if op.name == "load":
            return times.load, rows
        if op.name == "normalise":
            return times.normaliser, rows
        if op.name in ("test", "features", "evaluate"):
            self.losses += [op.number] if op.name == "features" else []
            return times.forward[op.number], rows
        if op.name == "update":
            return times.update, rows
        if op.name in ("call", "lossfun"):
            rows[op.number, "forward"] += times.forward[op.number]
        if op.name == "call":
            self.losses.append(op.number)
        if op.name == "lossfun" and not op.fails:
            rows[op.number, "backward"] += times.backward[op.number]
        if op.name == "backward" and not op.fails:
            for number in self.losses:
                rows[number, "backward"] += times.backward[number]
        if op.fails or op.name == "backward":
            self.losses = []
        update_ns = times.update if op.name == "lossfun" and not op.fails else 0
        return rows.total() + update_ns, rows

    def _add_iteration(self, ops, n_updates):
        """Add the operations of an iteration, which is complete after ``n_updates`` updates."""
        timed = [self._times_of(op) for op in ops]
        trained = ("call", "backward", "update", "lossfun")
        updates = [index for index, op in enumerate(ops) if op.name in trained[2:] and not op.fails]
        ends = [index for index, op in enumerate(ops) if op.name in trained]
        begin = next((index for index, op in enumerate(ops) if op.name != "test"), 0)
        last = ends[-1] if ends else begin - 1
        is_complete = len(updates) == n_updates
        while is_complete and last + 1 < len(ops) and ops[last + 1].name == "clear":
            last += 1
        for index, op in enumerate(ops):
            if not begin <= index <= last:
                self._add_outside(op, timed[index][0])
        if not ends:
            return
        self._add(REST, "", self.times.own, 0)  # other code before its first operation
        ns = sum(ns for ns, _ in timed[begin : last + 1]) + (last - begin) * self.times.own
        self._add(ITERATIONS if is_complete else INTERRUPTED, "", ns)
        if is_complete:
            self.iterations.append(ns)
            for _, rows in timed[begin : last + 1]:
                self.rows += rows


@pytest.fixture(autouse=True, scope="module")
def _no_calibration():
    """Skip the measurements of the profiler's own cost, which take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iteration_writer, "cost_of_a_call", lambda now_ns: 0.0)
        patch.setattr(iteration_writer, "window_ns", lambda now_ns, device: 0.0)
        yield


def assert_exact(plan, times, recording, expected):
    """Check that a recording has the expected iterations and rows."""
    assert recording.trial_ns.tolist() == expected.iterations
    rows = zip(recording.layers, recording.self_ns.sum(axis=0).tolist(), strict=True)
    values_by_row = {(layer.path, layer.function, layer.phase): ns for layer, ns in rows}
    trained = sorted({*plan.cycle})
    for index, number in enumerate(trained, 1):
        path = "/" if len(trained) == 1 else f"/Net-{index}"
        for phase in ("forward", "backward"):
            assert values_by_row[path, "Slow", phase] == expected.rows[number, phase]
    framework_ns = recording.framework_ns.sum()
    assert recording.self_ns.sum() + framework_ns <= recording.trial_ns.sum()


@settings(max_examples=min(60, settings.default.max_examples))
@given(st.lists(plans(), min_size=1, max_size=2), times())
def test_iterations_rows_and_accounts_of_a_random_program_are_exact(random_plans, times):
    clock = FakeClock()
    accounts = Accounts(clock.now_ns, start_ns := clock.time_ns)
    problems = []
    program = Program(
        accounts, lambda name: Journal(), warn=lambda *problem: problems.append(problem)
    )
    with program:
        for plan in random_plans:  # successive trainings
            Runner(times, clock).run(plan)
    assert problems == []
    spent = {(each.part, each.name): (each.ns, each.count) for each in accounts.spent()}
    assert sum(ns for ns, _ in spent.values()) == clock.time_ns - start_ns
    trainings = [ExpectedTimes(plan, times) for plan in random_plans]
    sums = Counter()
    for expected in trainings:
        for account, (ns, count) in expected.spent.items():
            sums[account, "ns"] += ns
            sums[account, "count"] += count
    measured = {account: value for account, value in spent.items() if account[0] != PROFILER}
    assert measured == {
        account: (sums[account, "ns"], sums[account, "count"]) for account, _ in sums
    }
    for name, plan, expected in zip(("train", "train-2"), random_plans, trainings, strict=False):
        assert_exact(plan, times, program.recordings()[name], expected)
