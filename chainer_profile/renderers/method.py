"""Summary -> how a run was measured and what its rows are, for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.checks import takes_options
from chainer_profile.renderers.markdown_syntax import text
from chainer_profile.renderers.rows import phases_of
from chainer_profile.statistics import NS
from chainer_profile.units import format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.recording import Settings
    from chainer_profile.summaries import Summary


def method_points(summary: Summary) -> Iterator[str]:
    """One point each, in Markdown."""
    recording, totals = summary.recording, summary.totals
    several = len(phases_of(summary)) > 1
    warmups = len(recording.warmup_ns) or recording.settings.warmups
    if warmups:
        yield f"{plural(warmups, 'warm-up trial')} came first and count nowhere."
    if recording.trial_ns is not None and totals.clean is not None:
        yield (
            f"{plural(totals.clean.count, 'clean trial')} ran without any hook, in blocks that "
            f"alternate with the {plural(recording.n_trials, 'profiled trial')}: the "
            f"{'time' if several else 'latency'} to quote is that of the clean ones, the layers' "
            "times come from the profiled ones."
        )
    else:
        yield f"The layers' times come from {plural(recording.n_trials, 'profiled trial')}."
    yield (
        "The time of a layer is its self time: a call made within another one counts for the "
        "inner one only."
    )
    yield from _rows(summary)
    if totals.framework is not None:
        between = (
            "what passes between the rows, such as type checks, making variables, and walking back "
            "through the graph. It is known for each phase, and what passes outside of all phases "
            "has a row of its own. Freeing the graph comes after the backward phase: in a training "
            "step it is framework time of the update."
            if recording.phases
            else "what passes between the functions, such as type checks and making variables."
        )
        yield f"Framework time is the profiled trial less the sum of its layers: {between}"
    if recording.n_trials > 1:
        yield (
            "The 95 % interval of a mean comes from batch means: successive trials are cut into "
            "batches of equal length, and the spread of the batches' means gives the interval. "
            "Trials that depend on one another do not make it too narrow."
        )
    yield "A layer's share is its mean over the sum of all layers' means."
    if has_rate_of_zero(recording.settings):
        yield (
            "The optimizer's learning rate is 0: all trials have the same weights, and the "
            "arithmetic of the update is the same as with any other rate."
        )
    conditions = recording.conditions
    if conditions.clock_resolution_ns is not None:
        step = format_duration(conditions.clock_resolution_ns * NS)
        yield f"The smallest step of the clock that was seen is {step}."
    if conditions.window_ns is not None:
        window = format_duration(conditions.window_ns * NS)
        yield (
            f"A function that does nothing shows {window}: every layer's time holds so much of "
            "the recorder itself."
        )


def has_rate_of_zero(settings: Settings) -> bool:
    """Whether the run trained with the default optimizer of our own command line."""
    ours = takes_options(settings) and settings.command
    return bool(ours) and settings.phase == "train" and settings.optimizer == "MomentumSGD"


def _rows(summary: Summary) -> Iterator[str]:
    """What the rows beside the calls of a forward pass are, where a trial has them."""
    layers = summary.layers
    phases = set(layers["phase"])
    paths = {(row.phase, row.path) for row in layers.itertuples()}
    if ("forward", "loss") in paths:
        yield "Functions of the loss that no link calls have the path `loss`."
    if "backward" in phases:
        yield (
            "The backward of a function is a row of its own, in the link that made the call. "
            "Its column `forward_index` in the table of all layers is the call that it goes back "
            "through."
        )
    if "gradient_accumulation" in set(layers["function"]):
        yield (
            "Where several functions use a variable, its gradients are added up: the row "
            "`gradient_accumulation`, in the link whose backward adds them."
        )
    if ("backward", "cleargrads") in paths:
        yield (
            "Clearing the gradients before the backward pass is the row `cleargrads` of the "
            "backward phase."
        )
    updates = layers[layers["phase"] == "update"]
    if len(updates):
        hooks = updates[updates["path"] == "optimizer"]["function"]
        sentence = (
            "The update of all parameters of one link is one row, named after the optimizer; its "
            "calls are the arrays of parameters"
        )
        if len(hooks):
            named = ", ".join(text(name) for name in dict.fromkeys(hooks))
            sentence += (
                f". The optimizer's hooks ({named}) go over all parameters; their path is "
                "`optimizer`"
            )
        yield sentence + "."
    if "data" in phases:
        yield "Loading a batch and converting it to arrays are the rows of the path `data`."
