"""Accounts of a program's time: exact by a fake clock, and whole whatever is opened and closed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.accounts import Accounts
from chainer_profile.record import budget
from chainer_profile.record.budget import DATA, ITERATIONS, PARTS, REST, SNAPSHOTS, Spent
from tests.conftest import FakeClock


@pytest.fixture
def accounts(clock):
    return Accounts(clock.now_ns, clock.time_ns)


def test_an_account_stands_still_within_another(accounts, clock):
    clock.advance(5)
    with accounts.within(budget.EXTENSIONS, "LogReport"):
        clock.advance(7)
        accounts.open((SNAPSHOTS, "save_npz"))
        assert accounts.account == (SNAPSHOTS, "save_npz")
        clock.advance(11)
        assert accounts.close() == 11
        assert accounts.part == budget.EXTENSIONS
        clock.advance(13)
    clock.advance(17)
    assert accounts.spent() == (
        Spent(budget.EXTENSIONS, "LogReport", 7 + 13, 1),
        Spent(SNAPSHOTS, "save_npz", 11, 1),
        Spent(REST, "", 5 + 17, 0),
    )


def test_what_is_still_open_counts_until_now_and_an_exception_closes_it(accounts, clock):
    def fails():
        clock.advance(6)
        raise KeyError

    accounts.open((ITERATIONS, ""))
    clock.advance(3)
    accounts.open((ITERATIONS, ""))
    clock.advance(4)
    assert accounts.spent() == (Spent(ITERATIONS, "", 7, 0), Spent(REST, "", 0, 0))
    clock.advance(5)
    accounts.close()
    accounts.close()
    with pytest.raises(KeyError), accounts.within(budget.IMPORTS, "numpy"):
        fails()
    assert accounts.account == (REST, "")
    found = (
        Spent(budget.IMPORTS, "numpy", 6, 1),
        Spent(ITERATIONS, "", 12, 2),
        Spent(REST, "", 0, 0),
    )
    assert accounts.spent() == found


def test_an_account_may_turn_out_to_be_another(accounts, clock):
    accounts.open((ITERATIONS, ""))
    clock.advance(9)
    assert accounts.close((REST, ""), count=0) == 9
    with accounts.within(DATA, "get_mnist", count=0):
        clock.advance(20)
    accounts.move((DATA, "get_mnist"), (budget.PROFILER, "teaching"), 8)
    accounts.add((budget.START, ""), 100)
    assert accounts.spent() == (
        Spent(budget.START, "", 100, 0),
        Spent(DATA, "get_mnist", 12, 0),
        Spent(REST, "", 9, 0),
        Spent(budget.PROFILER, "teaching", 8, 0),
    )


_ACCOUNT = st.tuples(st.sampled_from(PARTS), st.sampled_from(["", "a", "b"]))
_STEPS = st.one_of(
    st.tuples(st.just("open"), _ACCOUNT),
    st.tuples(st.just("close"), st.none() | _ACCOUNT, st.integers(0, 2)),
    st.tuples(st.just("move"), _ACCOUNT, _ACCOUNT, st.integers(0, 1000)),
    st.tuples(st.just("add"), _ACCOUNT, st.integers(0, 1000)),
    st.tuples(st.just("tell")),
)


@given(steps=st.lists(st.tuples(st.integers(0, 1000), _STEPS)), read_ns=st.integers(0, 5))
def test_the_accounts_are_the_whole_time(steps, read_ns):
    clock = FakeClock(read_ns=read_ns)
    begin_ns, added_ns, depth = clock.time_ns, 0, 0
    counts = 0
    accounts = Accounts(clock.now_ns, begin_ns)
    for passed_ns, (what, *given_) in steps:
        clock.advance(passed_ns)
        match what, given_:
            case "open", [account]:
                accounts.open(account)
                depth += 1
            case "close", [into, count] if depth:
                assert accounts.close(into, count) >= 0
                depth, counts = depth - 1, counts + count
            case "move", [source, target, ns]:
                accounts.move(source, target, ns)
            case "add", [account, ns]:
                accounts.add(account, ns)
                added_ns += ns
            case "tell", _:
                accounts.spent()
    spent = accounts.spent()
    assert sum(one.ns for one in spent) == clock.time_ns - begin_ns + added_ns
    assert sum(one.count for one in spent) == counts
    assert len({(one.part, one.name) for one in spent}) == len(spent)
    assert [PARTS.index(one.part) for one in spent] == sorted(PARTS.index(o.part) for o in spent)
