"""Extensions of a Trainer: to what their time belongs, how often they do their work, and how."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from chainer.training import Extension as ChainerExtension
from chainer.training import extensions
from chainer.training.triggers import IntervalTrigger

from chainer_profile.measure.accounts import Account
from chainer_profile.record import budget

#: Where Chainer's own extensions are.
_CHAINERS = "chainer.training.extensions."


def account_of(extension: Any, name: str) -> Account:
    if isinstance(extension, extensions.Evaluator):
        return budget.EVALUATION, name
    if "snapshot" in type(extension).__name__.lower() or "snapshot" in name:
        return budget.SNAPSHOTS, name.lstrip("_").lower()
    return budget.EXTENSIONS, name


def progress_of(trainer: Any) -> dict[str, int]:
    """The epochs and the iterations that a training has made."""
    return {unit: getattr(trainer.updater, unit, 0) for unit in ("epoch", "iteration")}


def described(trainer: Any, before: Mapping[str, int]) -> Iterator[budget.Extension]:
    """The extensions of a Trainer that has run, from the progress ``before``."""
    after = progress_of(trainer)
    for name, entry in trainer._extensions.items():
        extension, trigger, argument = entry.extension, entry.trigger, ""
        kind = name
        if isinstance(extension, ChainerExtension):
            kind = type(extension).__name__
        if type(extension).__module__.startswith(_CHAINERS):
            kind = f"extensions.{'snapshot' if kind == '_Snapshot' else kind}"
        if hasattr(extension, "_trigger"):
            trigger, argument = extension._trigger, "trigger"
        account, compresses = account_of(extension, name)[1], _compresses(extension)
        if isinstance(trigger, IntervalTrigger):
            period, unit = trigger.period, trigger.unit
            times = int(after[unit] // period - before[unit] // period)
            yield budget.Extension(account, kind, period, unit, times, argument, compresses)
        else:
            yield budget.Extension(account, kind, 0, "", 0, argument, compresses)


def _compresses(extension: Any) -> bool:
    """Whether an extension saves by ``save_npz``, which compresses unless it is asked not to."""
    saves = getattr(getattr(extension, "writer", None), "_savefun", None)
    if not callable(saves):
        return False
    partial = functools.partial(saves)  # of a partial it is the same one
    is_npz = getattr(partial.func, "__name__", "") == budget.SAVE_NPZ
    return is_npz and bool(partial.keywords.get("compression", True))
