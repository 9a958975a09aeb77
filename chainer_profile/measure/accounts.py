"""Accounts of a program's time: every moment counts for exactly one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from chainer_profile.measure.clock import NowNs
from chainer_profile.record.budget import PARTS, REST, Spent

#: A part of the budget, and a name within it.
Account = tuple[str, str]


class Accounts:
    """A stack of open accounts, of which the innermost one collects the time.

    An account that is opened within another one interrupts it until it is closed.
    """

    def __init__(self, now_ns: NowNs, start_ns: int) -> None:
        self.at_ns = start_ns  # time of the last change, up to which all time is counted
        self.now_ns = now_ns
        # Open accounts, outermost first, and the time that each has collected since it was opened.
        self.opened: list[Account] = [(REST, "")]
        self.own_times = [0]
        # Nanoseconds in each account, and how often it was opened.
        self.totals: defaultdict[Account, list[int]] = defaultdict(lambda: [0, 0])
        #: The most that a call added to each account.
        self.longest: defaultdict[Account, int] = defaultdict(int)

    @property
    def account(self) -> Account:
        """The innermost open account."""
        return self.opened[-1]

    @property
    def part(self) -> str:
        """The innermost open account's part of the budget."""
        return self.opened[-1][0]

    def _advance(self) -> int:
        """Add the time since the last change to the innermost account, and return the clock."""
        now_ns = self.now_ns()
        self.own_times[-1] += now_ns - self.at_ns
        self.at_ns = now_ns
        return now_ns

    def open(self, account: Account) -> int:
        """Open an account within the present one, and return the clock."""
        now_ns = self._advance()
        self.opened.append(account)
        self.own_times.append(0)
        return now_ns

    def close(self, into: Account | None = None, count: int = 1) -> int:
        """Close the innermost account, and return the time that it collected.

        The time goes to the account itself or to ``into``, whose count grows by ``count``.
        """
        self._advance()
        account, own_ns = self.opened.pop(), self.own_times.pop()
        target = account if into is None else into
        total = self.totals[target]
        total[0] += own_ns
        total[1] += count
        if count and own_ns > self.longest[target]:
            self.longest[target] = own_ns
        return own_ns

    @contextmanager
    def within(self, part: str, name: str = "", count: int = 1) -> Iterator[None]:
        """Open an account within the context."""
        self.open((part, name))
        try:
            yield
        finally:
            self.close(count=count)

    def add(self, account: Account, ns: int) -> None:
        """Add time that passed before ``start_ns``."""
        self.totals[account][0] += ns

    def own_ns(self) -> int:
        """The time that the innermost account has collected since it was opened, until now."""
        self._advance()
        return self.own_times[-1]

    def move(self, source: Account, target: Account, ns: int, count: int = 0) -> None:
        """Move time from one account to another, whose count grows."""
        self.totals[target][1] += count
        self.totals[source][0] -= ns
        self.totals[target][0] += ns

    def spent(self) -> tuple[Spent, ...]:
        """Times of all accounts until now, open ones included, in the order of the parts."""
        self._advance()
        totals = {account: tuple(total) for account, total in self.totals.items()}
        for account, own_ns in zip(self.opened, self.own_times, strict=True):
            ns, count = totals.get(account, (0, 0))
            totals[account] = ns + own_ns, count
        spent = [
            Spent(*account, ns, count, self.longest.get(account, 0))
            for account, (ns, count) in totals.items()
        ]
        return tuple(sorted(spent, key=lambda spent: (PARTS.index(spent.part), -spent.ns)))
