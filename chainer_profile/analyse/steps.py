"""Summary -> steps: findings on time that could be saved."""

from __future__ import annotations

from collections.abc import Iterator

from chainer_profile.analyse.changes import MUCH, embedding_gradients, has_few_words, proposed
from chainer_profile.analyse.findings import STEP, Finding, gain_without, option
from chainer_profile.analyse.grouping import majority_label
from chainer_profile.analyse.shares import part_of_whole, whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_count, format_duration, format_percent, plural

#: Factor of the larger batch that is advised if the host sets a GPU's pace.
_LARGER = 4


def steps(summary: Summary) -> Iterator[Finding]:
    """The steps that the numbers of a run give a reason for."""
    if not float(summary.layers["mean_s"].sum()):  # less than the clock can resolve
        return
    settings = summary.recording.settings
    yield from launch_bound(summary)
    yield from embedding(summary)
    if settings.device != "cpu" or settings.engine:
        return
    for finding in proposed(summary):
        # These may gain nothing, so only advise tries them: a larger batch, and kept memory if the
        # time of the kernel is unknown.
        if not isinstance(finding, Finding) or finding.code == "batch":
            continue
        if finding.code != "page-faults" or finding.gain is not None:
            yield finding


def launch_bound(summary: Summary) -> Iterator[Finding]:
    """A GPU that waits for the host, and where the host's time goes."""
    use = summary.device
    if use is None or not use.launch_bound:
        return
    launch, trial = format_duration(use.launch_s), format_duration(use.trial_s)
    if use.busy_s is not None:
        text = (
            f"The GPU waits for the host: launching takes {launch} of a trial's {trial}, and the "
            f"GPU works for {format_duration(use.busy_s)} of it "
            f"({format_percent(use.busy_share)}). Only less launching shortens the trial."
        )
    else:
        text = (
            f"Probably the GPU waits for the host: launching takes {launch} of a trial's {trial}, "
            f"and the host then waits for only {format_duration(use.wait_s)}. A network that waits "
            "for the GPU midway looks the same."
        )
    by_function = summary.layers.groupby("function", sort=False)[["host_s", "calls"]].sum()
    name, mostly_in = majority_label(by_function["host_s"], use.calls_s), ""
    if name is not None:
        host_s, calls = by_function.loc[name, ["host_s", "calls"]]
        mostly_in = (
            f", most of it in {plural(int(calls), 'call')} of {name} ({format_duration(host_s)}, "
            f"{format_duration(host_s / calls)} each)"
        )
    settings = summary.recording.settings
    larger = option(settings, "batchsize", _LARGER * (settings.batchsize or 1))
    yield Finding(
        "launch-bound",
        STEP,
        text,
        f"Use larger batches{f' ({larger})' if larger else ''}, fewer and larger functions, or an "
        "engine that launches without Python.",
        evidence=f"{format_percent(use.calls_s / use.launch_s)} of the launching is in the layers' "
        f"calls{mostly_in}.",
        gain=1 / use.busy_share if use.busy_share else None,
    )


def embedding(summary: Summary) -> Iterator[Finding]:
    """Embeddings called several times a trial: each backward fills an array of W's size."""
    layers = summary.layers
    added = layers[layers["function"] == "gradient_accumulation"].groupby("path")["mean_s"].sum()
    for path, rows in embedding_gradients(summary, has_few_words).groupby("path", sort=False):
        # The arrays of all calls are added up, too.
        calls, times_s = int(rows["calls"].sum()), rows["mean_s"].sum() + added.get(path, 0.0)
        share = part_of_whole(summary, times_s)
        if calls > 1 and share >= MUCH:
            yield Finding(
                "embedding",
                STEP,
                f"The backward of EmbedID at {path} takes {format_percent(share)} of the "
                f"{whole_time(summary).name}: each of {format_count(calls)} calls fills an array "
                "of W's size with zeros and the gradients of its words, and these arrays are added "
                "up.",
                "To look up all words of a sequence in one call, write.",
                command="chainer.functions.separate(embed(sequence), axis=0)",
                gain=gain_without(share * (1 - 1 / calls)),
            )
