"""Functions whose time has an account: Chainer's that load and save, and a Trainer's extensions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import chainer

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.record import budget


class CountedFunctions:
    """Wraps functions so that their time goes to an account.

    Args:
        accounts: The program's time.
        runs_own_code: Returns whether the program's own code runs, outside of units. The time of
            other calls stays in the account that is open.
        pause: Returns a context that excludes its time from trials.
        note_call: Called before a function whose time goes to an account.
    """

    def __init__(
        self,
        accounts: Accounts,
        runs_own_code: Callable[[], bool],
        pause: Callable[[], AbstractContextManager[None]],
        note_call: Callable[[], None],
    ) -> None:
        self._accounts, self._runs_own_code, self._pause = accounts, runs_own_code, pause
        self._note_call = note_call

    def wrap_chainers(self, replacements: Replacements) -> None:
        """Wrap the functions of Chainer that save and load objects, or load data sets."""
        for owner, begins, part in (
            (chainer.serializers, ("save_", "load_"), budget.SNAPSHOTS),
            (chainer.datasets, ("get_",), budget.DATA),
        ):
            for name in dir(owner):
                if name.startswith(begins):
                    account = _account_of_save_npz if name == budget.SAVE_NPZ else (part, name)
                    replacements.wrap(owner, name, functools.partial(self.wrap, account))

    def wrap(
        self, account: Account | Callable[..., Account | None], function: Any, count: int = 1
    ) -> Any:
        """Wrap a function.

        Args:
            account: The account; or a function that gets the arguments of a call, and returns the
                account, or None for a call that is not counted.
            function: The function.
            count: The number that a call adds to the account's count.
        """

        @functools.wraps(function)
        def in_account(*args: Any, **kwargs: Any) -> Any:
            target = account if isinstance(account, tuple) else account(*args, **kwargs)
            if target is None or not self._runs_own_code():
                return function(*args, **kwargs)
            return in_own_account(target, args, kwargs)

        # The sampler skips frames named in_account, but must find this frame.
        def in_own_account(target: Account, args: Any, kwargs: Any) -> Any:
            self._note_call()
            with self._accounts.within(*target, count), self._without_trials(target):
                return function(*args, **kwargs)

        return in_account

    def _without_trials(self, account: Account) -> AbstractContextManager[None]:
        """Exclude time from trials within the context, except for accounts that have trials."""
        is_without = account[0] in (budget.SNAPSHOTS, budget.DATA)
        return self._pause() if is_without else nullcontext()


def _account_of_save_npz(file: Any, obj: Any, compression: bool = True) -> Account:
    return budget.SNAPSHOTS, budget.SAVE_NPZ if compression else budget.SAVE_NPZ_PLAIN
