"""Findings about a program's work outside of its network: extensions, evaluation, snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chainer_profile.analyse.findings import MIN_GAIN, STEP, Finding, gain_without
from chainer_profile.basics.units import format_percent, join_words, plural
from chainer_profile.record.budget import (
    EVALUATION,
    EXTENSIONS,
    SAVE_NPZ,
    SNAPSHOTS,
    Budget,
    Extension,
    Spent,
)

#: Factors by which work could be done less often; the first one is advised for which there are
#: enough calls.
_LESS_OFTEN = (10, 5, 2)
#: An evaluation that cannot run less often should use one of this many examples.
_FEWER_EXAMPLES = 10
#: Extensions that do most of their work in every call, whatever their own trigger.
_IN_EVERY_CALL = ("extensions.ParameterStatistics", "extensions.VariableStatisticsPlot")
#: Ends of the names of extensions that a training needs as often as they run.
_NEEDED = ("Shift",)
#: Names of functions that save begin with this; other functions of snapshots load.
_SAVES = "save_"
_UNCOMPRESSED = "Saving without compression takes less time, and makes a larger file."
#: Argument of extensions that save. It needs no import but Chainer's.
_SAVEFUN = "savefun=lambda file, x: chainer.serializers.save_npz(file, x, compression=False)"


class _Remedy(NamedTuple):
    """How to shorten some work."""

    advice: str  #: Empty if nothing shortens it.
    code: str = ""  #: Code to write.
    saved: float | None = 0.0  #: Largest fraction of the time that it saves; None if unknown.

    @property
    def most_saved(self) -> float:
        return 1.0 if self.saved is None else self.saved


_NONE = _Remedy("")


def extension_findings(budget: Budget, own_ns: int) -> Iterator[Finding]:
    """Yield a finding for each remedy that gains enough, with all work that it shortens.

    Work of different parts (evaluation, snapshots, extensions) has separate findings.

    Args:
        budget: The time of a program.
        own_ns: Its time without the profiler, in nanoseconds.
    """
    extensions = {extension.name: extension for extension in budget.extensions}
    by_code: dict[tuple[str, str, str], list[tuple[Spent, _Remedy]]] = {}
    for part in (EVALUATION, SNAPSHOTS, EXTENSIONS):
        for spent in budget.accounts(part):
            remedy = _remedy(spent, extensions.get(spent.name))
            if remedy.advice:
                by_code.setdefault((part, *remedy[:2]), []).append((spent, remedy))
    for (part, advice, code), works in by_code.items():
        share = sum(spent.ns for spent, _ in works) / own_ns if own_ns else 0.0
        saved_ns = sum(spent.ns * remedy.most_saved for spent, remedy in works)
        gain = gain_without(saved_ns / own_ns if own_ns else 0.0)
        if gain is None or gain >= MIN_GAIN:
            names = join_words(spent.name or part.capitalize() for spent, _ in works)
            take = "takes" if len(works) == 1 else "take"
            yield Finding(
                part,
                STEP,
                f"{names} {take} {format_percent(share)} of the program.",
                advice,
                command=code,
                gain=None if works[0][1].saved is None else gain,
            )


def _remedy(spent: Spent, extension: Extension | None) -> _Remedy:
    if spent.name == SAVE_NPZ:
        code = "serializers.save_npz(..., compression=False)"
        return _Remedy(f"{_UNCOMPRESSED} Write.", code, None)
    if extension is None:
        return _remedy_without_trigger(spent)
    if extension.kind.endswith(_NEEDED):
        return _NONE
    if extension.compresses:
        return _Remedy(f"{_UNCOMPRESSED} Add the argument.", _SAVEFUN, None)
    before, times = extension.before, extension.times
    factor = next((factor for factor in _LESS_OFTEN if times - before >= factor), 0)
    if factor:
        fewer = (times - before) // factor + before
        enough = "once is" if fewer == 1 else f"{plural(fewer, 'time')} are"
        advice = f"This happens {plural(times, 'time')}. If {enough} enough, write."
        return _Remedy(advice, _less_often(extension, factor), _saved(spent, times, fewer))
    return _fewer_examples(extension.examples) if spent.part == EVALUATION else _NONE


def _saved(spent: Spent, times: int, fewer: int) -> float:
    """The fraction of the time that is saved if some work is done less often.

    The longest time remains: often it is the first, which also loads and prepares.
    """
    mean_ns = spent.ns / times
    others_ns = spent.ns - max(spent.longest_ns, mean_ns)
    return max(0.0, others_ns / (times - 1) * (times - fewer) / spent.ns) if spent.ns else 0.0


def _fewer_examples(examples: int) -> _Remedy:
    """An evaluation on a part of the examples, of which at least one is left.

    ``examples`` is their number; 0 if unknown.
    """
    if examples == 1:
        return _NONE
    part = max(1, examples // _FEWER_EXAMPLES) / examples if examples else 1 / _FEWER_EXAMPLES
    return _Remedy(
        "To evaluate on a part of the examples, such as "
        f"{format_percent(1 / _FEWER_EXAMPLES, 0)}, write.",
        f"test = chainer.datasets.SubDataset(test, 0, max(1, len(test) // {_FEWER_EXAMPLES}))",
        1 - part,
    )


def _remedy_without_trigger(spent: Spent) -> _Remedy:
    """A remedy for work that is no extension, or belongs to a Trainer that has not ended."""
    if spent.part == EVALUATION:
        return _Remedy("Evaluate less often, or on fewer examples.", saved=1.0)
    if spent.part == SNAPSHOTS and spent.name.startswith(_SAVES) and spent.count > 1:
        return _Remedy("Save less often.", saved=1 - 1 / spent.count)
    return _NONE


def _less_often(extension: Extension, factor: int) -> str:
    """The code that makes an extension work less often by a factor."""
    period = f"{extension.period * factor:g}"
    trigger = f"trigger=({period}, {extension.unit!r})"
    if extension.argument and extension.kind not in _IN_EVERY_CALL:
        return f"{extension.kind}(..., {trigger})"
    if extension.argument:
        return f"trainer.extend({extension.kind}(..., {trigger}), trigger=({factor}, 'iteration'))"
    return f"trainer.extend({extension.kind}(...), {trigger})"
