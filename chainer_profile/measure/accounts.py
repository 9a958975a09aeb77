"""To what each moment of a program belongs: an account is open at any time, and one alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.record.budget import PARTS, REST, Spent

if TYPE_CHECKING:
    from chainer_profile.measure.clock import NowNs

#: A part of the budget, and what of it.
Account = tuple[str, str]


@dataclass
class _Open:
    account: Account
    own_ns: int = 0


class Accounts:
    """Time by account; accounts are opened within others, whose time stands still meanwhile.

    Args:
        now_ns: The clock.
        start_ns: When the first account, that of the rest, was opened.
    """

    def __init__(self, now_ns: NowNs, start_ns: int) -> None:
        self._now_ns = now_ns
        self._at_ns = start_ns
        self._open = [_Open((REST, ""))]
        self._times: dict[Account, int] = {}
        self._counts: dict[Account, int] = {}

    @property
    def account(self) -> Account:
        """The account that is open."""
        return self._open[-1].account

    @property
    def part(self) -> str:
        """The part that is open."""
        return self._open[-1].account[0]

    def open(self, part: str, name: str = "") -> None:
        """Open an account, within the one that is open."""
        self._pass()
        self._open.append(_Open((part, name)))

    def close(self, into: Account | None = None, count: int = 1) -> int:
        """Close it again; gives its own time.

        Args:
            into: The account that gets the time in its place.
            count: How often that was.
        """
        self._pass()
        closed = self._open.pop()
        account = into or closed.account
        self._times[account] = self._times.get(account, 0) + closed.own_ns
        self._counts[account] = self._counts.get(account, 0) + count
        return closed.own_ns

    @contextmanager
    def within(self, part: str, name: str = "", count: int = 1) -> Iterator[None]:
        """An account is open within this."""
        self.open(part, name)
        try:
            yield
        finally:
            self.close(count=count)

    def add(self, account: Account, ns: int) -> None:
        """Add time that passed before the first account was opened."""
        self._times[account] = self._times.get(account, 0) + ns

    def move(self, source: Account, target: Account, ns: int) -> None:
        """Let time of one account be another's."""
        self._times[source] = self._times.get(source, 0) - ns
        self._times[target] = self._times.get(target, 0) + ns

    def _pass(self) -> None:
        now_ns = self._now_ns()
        self._open[-1].own_ns += now_ns - self._at_ns
        self._at_ns = now_ns

    def spent(self) -> tuple[Spent, ...]:
        """All accounts until now, with what is still open, by part."""
        self._pass()
        times = dict(self._times)
        for one in self._open:
            times[one.account] = times.get(one.account, 0) + one.own_ns
        ordered = sorted(times.items(), key=lambda item: (PARTS.index(item[0][0]), -item[1]))
        return tuple(
            Spent(part, name, ns, self._counts.get((part, name), 0)) for (part, name), ns in ordered
        )
