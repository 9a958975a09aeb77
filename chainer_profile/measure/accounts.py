"""To what each moment of a program belongs: an account is open at any time, and one alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from chainer_profile.measure.clock import NowNs
from chainer_profile.record.budget import PARTS, REST, Spent

#: A part of the budget, and what of it.
Account = tuple[str, str]


class Accounts:
    """Time by account; accounts are opened within others, whose time stands still meanwhile."""

    def __init__(self, now_ns: NowNs, start_ns: int) -> None:
        self.at_ns = start_ns  # when an account was opened or closed last
        self.now_ns = now_ns
        # The accounts that are open, outermost first, and their own time so far.
        self.opened: list[Account] = [(REST, "")]
        self.own_times = [0]
        # Time of each account, and how often it was opened.
        self.totals: defaultdict[Account, list[int]] = defaultdict(lambda: [0, 0])

    @property
    def account(self) -> Account:
        return self.opened[-1]

    @property
    def part(self) -> str:
        return self.opened[-1][0]

    def _advance(self) -> int:
        """Give the time since then to the account that is open; gives the time."""
        now_ns = self.now_ns()
        self.own_times[-1] += now_ns - self.at_ns
        self.at_ns = now_ns
        return now_ns

    def open(self, account: Account) -> int:
        """Open an account, within the one that is open; gives when."""
        now_ns = self._advance()
        self.opened.append(account)
        self.own_times.append(0)
        return now_ns

    def close(self, into: Account | None = None, count: int = 1) -> int:
        """Close it again, for itself or ``into`` another, which counts; gives its own time."""
        self._advance()
        account, own_ns = self.opened.pop(), self.own_times.pop()
        total = self.totals[account if into is None else into]
        total[0] += own_ns
        total[1] += count
        return own_ns

    def switch_to(self, account: Account, into: Account | None = None, count: int = 1) -> int:
        """Close the account that is open, as :meth:`close` does, and open another in its place."""
        own_ns = self.close(into, count)
        self.opened.append(account)
        self.own_times.append(0)
        return own_ns

    @contextmanager
    def within(self, part: str, name: str = "", count: int = 1) -> Iterator[None]:
        self.open((part, name))
        try:
            yield
        finally:
            self.close(count=count)

    def add(self, account: Account, ns: int) -> None:
        """Add time that passed before the first account was opened."""
        self.totals[account][0] += ns

    def move(self, source: Account, target: Account, ns: int) -> None:
        """Let time of one account be another's."""
        self.totals[source][0] -= ns
        self.totals[target][0] += ns

    def spent(self) -> tuple[Spent, ...]:
        """All accounts until now, with what is still open, by part."""
        self._advance()
        totals = {account: tuple(total) for account, total in self.totals.items()}
        for account, own_ns in zip(self.opened, self.own_times, strict=True):
            ns, count = totals.get(account, (0, 0))
            totals[account] = ns + own_ns, count
        spent = [Spent(part, name, *total) for (part, name), total in totals.items()]
        return tuple(sorted(spent, key=lambda spent: (PARTS.index(spent.part), -spent.ns)))
