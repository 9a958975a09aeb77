"""Accounts of a program's time are exact on a fake clock, and add up after any calls."""

from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.budget import EXTENSIONS, IMPORTS, PARTS, REST
from tests.conftest import FakeClock

_ACCOUNT = st.tuples(st.sampled_from(PARTS), st.sampled_from(["", "a", "b"]))
_STEPS = st.one_of(
    st.tuples(st.just("open"), _ACCOUNT),
    st.tuples(st.just("close"), st.none() | _ACCOUNT, st.integers(0, 2)),
    st.tuples(st.just("move"), _ACCOUNT, _ACCOUNT, st.integers(0, 1000)),
    st.tuples(st.just("add"), _ACCOUNT, st.integers(0, 1000)),
    st.tuples(st.just("read")),
)


@given(steps=st.lists(st.tuples(st.integers(0, 1000), _STEPS)), read_ns=st.integers(0, 5))
def test_accounts_add_up_to_all_time(steps, read_ns):
    """An inner account interrupts an outer one. An open account has the time until now."""
    clock = FakeClock(read_ns=read_ns)
    begin_ns, added_ns = clock.time_ns, 0
    accounts = Accounts(clock.now_ns, begin_ns)
    opened, totals = [[(REST, ""), 0]], {}

    def add(account, ns, count=0):
        before = totals.get(account, (0, 0))
        totals[account] = before[0] + ns, before[1] + count

    for passed_ns, (kind, *arguments) in [*steps, (0, ("read",))]:
        clock.advance(passed_ns)
        opened[-1][1] += passed_ns
        if kind == "read" or kind == "open" or (kind == "close" and len(opened) > 1):
            opened[-1][1] += read_ns  # each of these reads the clock once
        match kind, arguments:
            case "open", [account]:
                assert accounts.open(account) == clock.time_ns
                opened.append([account, 0])
            case "close", [into, count] if len(opened) > 1:
                account, own_ns = opened.pop()
                assert accounts.close(into, count) == own_ns
                add(into or account, own_ns, count)
            case "move", [source, target, ns]:
                accounts.move(source, target, ns)
                add(source, -ns)
                add(target, ns)
            case "add", [account, ns]:
                accounts.add(account, ns)
                add(account, ns)
                added_ns += ns
            case "read", _:
                closed = dict(totals)
                for part in opened:
                    add(*part)
                spent, expected, totals = accounts.spent(), totals, closed
                by_account = {(part.part, part.name): (part.ns, part.count) for part in spent}
                assert (by_account, len(by_account)) == (expected, len(spent))
                order = [(PARTS.index(part.part), -part.ns) for part in spent]
                assert order == sorted(order)
        assert (accounts.account, accounts.part) == (opened[-1][0], opened[-1][0][0])
    assert sum(part.ns for part in spent) == clock.time_ns - begin_ns + added_ns


def test_longest_call_of_an_account():
    """The time of another account, and of work that is no call, does not count."""
    clock = FakeClock()
    accounts = Accounts(clock.now_ns, clock.time_ns)
    for ns, nested_ns, count in ((5, 0, 1), (30, 50, 1), (20, 0, 1), (90, 0, 0)):
        with accounts.within(EXTENSIONS, "plot", count):
            clock.advance(ns)
            with accounts.within(IMPORTS, "matplotlib"):
                clock.advance(nested_ns)
    longest = {spent.name: (spent.ns, spent.longest_ns) for spent in accounts.spent()}
    assert longest == {"plot": (145, 30), "matplotlib": (50, 50), "": (0, 0)}
