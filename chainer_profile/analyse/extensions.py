"""A program's work outside of its network -> findings that would shorten it."""

from __future__ import annotations

from collections.abc import Iterator

from chainer_profile.analyse.findings import LEAST_GAIN, STEP, Finding, gain_without
from chainer_profile.basics.sentences import fill
from chainer_profile.record.budget import (
    EVALUATION,
    EXTENSIONS,
    SAVE_NPZ,
    SNAPSHOTS,
    Budget,
    Extension,
    Spent,
)

#: Work is advised to be done so many times less often, if it was done so often.
_LESS_OFTEN = (10, 5, 2)
#: An evaluation that runs too seldom to run less often should use one of this many examples.
_FEWER_EXAMPLES = 10
#: Extensions that do most of their work in every call, whatever their own trigger.
_IN_EVERY_CALL = ("extensions.ParameterStatistics", "extensions.VariableStatisticsPlot")
#: Ends of the names of extensions that a training needs as often as they run.
_NEEDED = ("Shift",)
#: How the names of functions begin that save; others in the same account load.
_SAVES = "save_"
#: How to save without compression.
_PLAIN = "functools.partial(serializers.save_npz, compression=False)"
_UNCOMPRESSED = "Saving without compression takes less time, and makes a larger file. Write."

#: Advice, the code to write, and the part of the time that it saves at most; None if not known.
_Less = tuple[str, str, float | None]


def beside_the_network(budget: Budget, own_ns: int) -> Iterator[Finding]:
    """Evaluation, snapshots and other extensions, each with the argument that shortens it."""
    extensions = {extension.name: extension for extension in budget.extensions}
    alike: dict[tuple[str, _Less], list[Spent]] = {}
    for part in (EVALUATION, SNAPSHOTS, EXTENSIONS):
        for spent in budget.part(part):
            less = _less(spent, extensions.get(spent.name))
            alike.setdefault((part, less), []).append(spent)
    for (part, (advice, command, saved)), several in alike.items():
        share = sum(spent.ns for spent in several) / own_ns if own_ns else 0.0
        gain = gain_without(share * (1.0 if saved is None else saved))
        if advice and (gain is None or gain >= LEAST_GAIN):
            text = fill(
                "{names} {names:takes|take} {share:%} of the program.",
                names=[spent.name or part.capitalize() for spent in several],
                share=share,
            )
            gain = None if saved is None else gain
            yield Finding(part, STEP, text, advice, command=command, gain=gain)


def _less(spent: Spent, extension: Extension | None) -> _Less:
    if spent.name == SAVE_NPZ:
        return _UNCOMPRESSED, "serializers.save_npz(..., compression=False)", None
    if extension is None:
        if spent.part == EVALUATION:  # of a Trainer that has not ended
            return "Evaluate less often, or on fewer examples.", "", 1.0
        if spent.part == SNAPSHOTS and spent.name.startswith(_SAVES) and spent.count > 1:
            return "Save less often.", "", 1 - 1 / spent.count
        return "", "", 0.0
    if extension.kind.endswith(_NEEDED):
        return "", "", 0.0
    if extension.compresses:
        return _UNCOMPRESSED, f"extensions.snapshot(savefun={_PLAIN})", None
    factor = next((factor for factor in _LESS_OFTEN if extension.times >= factor), 0)
    if factor:
        times, fewer = extension.times, extension.times // factor
        sentence = "This happens {times} times. If {fewer} {fewer:is|are} enough, write."
        advice = fill(sentence, times=times, fewer=fewer)
        return advice, _written(extension, factor), 1 - fewer / times
    if spent.part == EVALUATION:
        part = f"len(test) // {_FEWER_EXAMPLES}"
        return (
            f"To evaluate on a part of the examples, such as {1 / _FEWER_EXAMPLES:.0%}, write.",
            f"test = chainer.datasets.SubDataset(test, 0, {part})",
            1 - 1 / _FEWER_EXAMPLES,
        )
    return "", "", 0.0


def _written(extension: Extension, factor: int) -> str:
    """The call that lets an extension do its work less often by a factor."""
    period = f"{extension.period * factor:g}"
    trigger = f"trigger=({period}, {extension.unit!r})"
    if extension.argument and extension.kind not in _IN_EVERY_CALL:
        return f"{extension.kind}(..., {trigger})"
    if extension.argument:
        return f"trainer.extend({extension.kind}(..., {trigger}), trigger=({factor}, 'iteration'))"
    return f"trainer.extend({extension.kind}(...), {trigger})"
