"""Extensions of a Trainer: the accounts of their time, and descriptions of their work."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from chainer.training import Extension as ChainerExtension
from chainer.training import extensions
from chainer.training.extensions.snapshot_writers import SimpleWriter
from chainer.training.trainer import _ExtensionEntry
from chainer.training.triggers import IntervalTrigger

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.accounts import Account
from chainer_profile.record import budget

#: Flag of classes that are not built in: their methods can be replaced.
_HEAP_TYPE = 1 << 9
#: Modules of Chainer's own extensions begin with this.
_CHAINERS = "chainer.training.extensions."


def account_of(extension: Any, name: str) -> Account:
    """Return the account of an extension that a Trainer knows under a name."""
    if isinstance(extension, extensions.Evaluator):
        return budget.EVALUATION, name
    if "snapshot" in type(extension).__name__.lower() or "snapshot" in name:
        return budget.SNAPSHOTS, name.lstrip("_").lower()
    return budget.EXTENSIONS, name


def progress_of(trainer: Any) -> dict[str, int]:
    """The epochs and the iterations that a training has made."""
    return {unit: getattr(trainer.updater, unit, 0) for unit in ("epoch", "iteration")}


def fraction_done(trainer: Any, before: Mapping[str, int]) -> float | None:
    """The fraction done of the training after ``before``; None if its end is unknown."""
    trigger = getattr(trainer.stop_trigger, "max_trigger", trainer.stop_trigger)
    if not isinstance(trigger, IntervalTrigger):
        return None
    name = "epoch_detail" if trigger.unit == "epoch" else "iteration"
    begin = before[trigger.unit]
    return float((getattr(trainer.updater, name) - begin) / max(trigger.period - begin, 1))


def describe_extensions(trainer: Any, before: Mapping[str, int]) -> Iterator[budget.Extension]:
    """Describe the extensions of a Trainer that has run since the progress ``before``."""
    after = progress_of(trainer)
    for name, entry in trainer._extensions.items():
        extension, trigger, argument = entry.extension, entry.trigger, ""
        kind = type(extension).__name__ if isinstance(extension, ChainerExtension) else name
        if type(extension).__module__.startswith(_CHAINERS):
            kind = f"extensions.{_snapshot(extension) if kind == '_Snapshot' else kind}"
        if hasattr(extension, "_trigger"):
            trigger, argument = extension._trigger, "trigger"
        period, unit, times = 0, "", 0
        if isinstance(trigger, IntervalTrigger):
            period, unit = trigger.period, trigger.unit
            times = int(after[unit] // period - before[unit] // period)
        before_it = int(entry.call_before_training)
        yield budget.Extension(
            *(account_of(extension, name)[1], kind, period, unit, times + before_it, argument),
            compresses=_compresses(extension),
            before=before_it,
            examples=_examples(extension),
        )


def _snapshot(extension: Any) -> str:
    """The name of the function that made a snapshot: a snapshot of the Trainer has no target."""
    return "snapshot" if getattr(extension, "_target", None) is None else "snapshot_object"


def _examples(extension: Any) -> int:
    """The number of examples on which an Evaluator evaluates; 0 if it is unknown."""
    if not isinstance(extension, extensions.Evaluator):
        return 0
    try:
        return len(extension.get_iterator("main").dataset)
    except Exception:  # the program's own classes may raise anything
        return 0


def _compresses(extension: Any) -> bool:
    """Whether an extension itself saves by ``save_npz``, which compresses unless asked not to.

    Other writers than the default one save in a thread or process, and take no argument of
    the extension.
    """
    writer = getattr(extension, "writer", None)
    saves = getattr(writer, "_savefun", None)
    if type(writer) is not SimpleWriter or not callable(saves):
        return False
    compression = True
    while isinstance(saves, functools.partial):
        compression = compression and saves.keywords.get("compression", True)
        saves = saves.func
    return getattr(saves, "__name__", "") == budget.SAVE_NPZ and bool(compression)


def wrap_extensions(replacements: Replacements, trainer: Any, wrap: Callable[..., Any]) -> None:
    """Wrap a Trainer's extensions, so that their time goes to their accounts.

    Args:
        replacements: Sets the wrappers, and restores the originals.
        trainer: The Trainer.
        wrap: The method :meth:`.CountedFunctions.wrap`.
    """
    named = {id(entry.extension): name for name, entry in trainer._extensions.items()}

    def account_by_object(extension: Any, *_: Any) -> Account | None:
        name = named.get(id(extension))
        return None if name is None else account_of(extension, name)

    seen: set[tuple[type, str]] = set()
    functions: dict[int, Any] = {}
    for name, entry in trainer._extensions.items():
        kind = type(entry.extension)
        if not kind.__flags__ & _HEAP_TYPE:  # a function
            account = account_of(entry.extension, name)
            functions[id(entry)] = wrap(account, entry.extension)
            continue
        for method in ("__call__", "initialize", "finalize"):
            owner = next((base for base in kind.__mro__ if method in vars(base)), None)
            if owner is not None and (owner, method) not in seen:
                seen.add((owner, method))
                by_instance = functools.partial(
                    wrap, account_by_object, count=int(method == "__call__")
                )
                replacements.wrap(owner, method, by_instance)
    if functions:
        replacements.put(_ExtensionEntry, "extension", _counting_property(functions))


def _counting_property(functions: dict[int, Any]) -> property:
    """Make the property ``extension`` of a Trainer's entries, which returns wrapped functions.

    ``functions`` has them by the id of the entry; other entries return their extension.
    """

    def get(entry: Any) -> Any:
        return functions.get(id(entry)) or vars(entry)["extension"]

    def put(entry: Any, extension: Any) -> None:
        functions.pop(id(entry), None)
        vars(entry)["extension"] = extension

    return property(get, put)
