"""Summary -> findings on where its time goes and how it may be shortened."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from chainer_profile.analyse.changes import MUCH, are_few, embeddings, proposed
from chainer_profile.analyse.findings import Finding, gain_without
from chainer_profile.analyse.grouping import place_of_most
from chainer_profile.analyse.rules import Facts, Rules, part_of_whole
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.sentences import fill
from chainer_profile.basics.words import DATA, UPDATE

#: Part of the update's time from which a part of it is worth a sentence.
_MUCH_OF_UPDATE = 0.10

STEPS = Rules()


def steps(summary: Summary) -> Iterator[Finding]:
    """The steps that the numbers of a run give a reason for."""
    if not float(summary.layers["mean_s"].sum()):  # less than the clock can show
        return
    settings = summary.recording.settings
    findings = list(STEPS.findings(summary))
    if settings.device == "cpu" and not settings.engine:
        findings += proposed(summary)
    for finding in findings:
        # A larger batch may be slower, and memory may cost nothing: advise tries them.
        if not isinstance(finding, Finding) or finding.code == "batch":
            continue
        if finding.code != "page-faults" or finding.gain is not None:
            yield finding


@STEPS.step(
    {
        "busy": "The GPU waits for the host: launching takes {use.launch_s:s} of a trial's "
        "{use.trial_s:s}, and the GPU works for {use.busy_s:s} of it ({use.busy_share:%}). Only "
        "less launching shortens the trial.",
        "-busy": "Probably the GPU waits for the host: launching takes {use.launch_s:s} of a "
        "trial's {use.trial_s:s}, and the host then waits for only {use.wait_s:s}. A network that "
        "waits for the GPU midway looks the same.",
    },
    "Use fewer and larger functions, larger batches, or an engine that launches without Python.",
    evidence="{within:%} of the launching is in the layers' calls{most}.",
)
def _launch_bound(summary: Summary) -> Iterator[Facts]:
    """Where the host's time goes, in a run in which it sets the GPU's pace."""
    use = summary.device
    if use is None or not use.launch_bound:
        return
    by_function = summary.layers.groupby("function", sort=False)[["host_s", "calls"]].sum()
    name, most = place_of_most(by_function["host_s"], use.calls_s), ""
    if name is not None:
        host_s, calls = by_function.loc[name, ["host_s", "calls"]]
        sentence = ", most of it in {calls:call} of {name} ({host_s:s}, {each_s:s} each)"
        most = fill(sentence, calls=int(calls), name=name, host_s=host_s, each_s=host_s / calls)
    yield {
        "use": use,
        "busy": use.busy_s is not None,
        "gain": 1 / use.busy_share if use.busy_share else None,
        "within": use.calls_s / use.launch_s,
        "most": most,
    }


def _of_phase(summary: Summary, phase: str) -> tuple[pd.DataFrame, float]:
    """The layers of a phase, and its part of the whole; no layers if that is not much."""
    rows = summary.layers[summary.layers["phase"] == phase]
    share = part_of_whole(summary, summary.phases["total_s"].get(phase, 0.0))
    return (rows if share >= MUCH else rows.head(0)), share


@STEPS.step(
    "The update takes {share:%} of the {whole} ({update_s:s}).",
    evidence={
        "hooks": "{hooks} {hooks:goes|go} over all parameters in {hooks:a pass of its|passes of "
        "their} own: {part:%} of the update.",
        "calls": "The update rule makes {calls:call}, and even the fastest takes {least_s:s}; this "
        "minimum alone is {minimum:%} of their time. Fewer, larger parameters would shorten the "
        "update.",
    },
)
def _update(summary: Summary) -> Iterator[Facts]:
    """What the update costs, and what of it its hooks and the number of its calls do."""
    rows, share = _of_phase(summary, UPDATE)
    if rows.empty:
        return
    update_s = float(summary.phases["total_s"][UPDATE])
    facts: Facts = {"share": share, "update_s": update_s}
    hooks = rows[rows["path"] == "optimizer"]
    part = float(hooks["mean_s"].sum()) / update_s
    if part >= _MUCH_OF_UPDATE:
        facts |= {"hooks": hooks["function"].tolist(), "part": part}
    params = rows[rows["path"].str.startswith("/")]
    calls, params_s = params["calls"].sum(), float(params["mean_s"].sum())
    # No call is quicker than what any call costs.
    least_s = float((params["mean_s"] / params["calls"]).min()) if len(params) else 0.0
    if calls > 1 and least_s * calls >= 0.5 * params_s >= 0.5 * _MUCH_OF_UPDATE * update_s:
        facts |= {"calls": calls, "least_s": least_s, "minimum": least_s * calls / params_s}
    yield facts


@STEPS.step("Loading data takes {share:%} of the {whole}, mostly in {function}.")
def _data(summary: Summary) -> Iterator[Facts]:
    rows, share = _of_phase(summary, DATA)
    if len(rows):
        yield {"share": share, "function": rows["function"][rows["typical_s"].idxmax()]}


@STEPS.step(
    "The backward of EmbedID at {path} takes {share:%} of the {whole}: each of {calls:n} calls "
    "fills an array of W's size with zeros and the gradients of its words, and these arrays are "
    "added up.",
    "To look up all words of a sequence in one call, write.",
    command="chainer.functions.separate(embed(sequence), axis=0)",
)
def _embedding(summary: Summary) -> Iterator[Facts]:
    """Embeddings that are called several times a trial, each time for an array of all words."""
    layers = summary.layers
    added = layers[layers["function"] == "gradient_accumulation"].groupby("path")["mean_s"].sum()
    for path, rows in embeddings(summary, are_few).groupby("path", sort=False):
        # The arrays of all calls are added up, too.
        calls, times_s = int(rows["calls"].sum()), rows["mean_s"].sum() + added.get(path, 0.0)
        share = part_of_whole(summary, times_s)
        if calls > 1 and share >= MUCH:
            gain = gain_without(share * (1 - 1 / calls))
            yield {"path": path, "share": share, "calls": calls, "gain": gain}


@STEPS.step(
    "{count:n} of {fixed:call} of FixedBatchNormalization {count:comes|come} right after a "
    "convolution and {count:takes|take} {share:%} of the {whole}.",
    "In inference, {count:its|their} scale and shift can be folded into the convolution's weights "
    "and bias, as ONNX Runtime does.",
)
def _normalisations(summary: Summary) -> Iterator[Facts]:
    """The batch normalisations that can be folded into the convolution before each."""
    layers = summary.layers
    # Weights that are trained cannot be folded; an engine folds what it can by itself.
    if summary.several_phases or summary.recording.settings.engine:
        return
    fixed = layers["function"] == "FixedBatchNormalization"
    foldable = layers[fixed & _follow_convolutions(layers)]
    # Where the host sets the pace of a GPU, what is saved is the host's time.
    times_s = foldable["host_s" if summary.launch_bound else "mean_s"]
    share = part_of_whole(summary, times_s.sum())
    if share >= MUCH:
        # Less launching is worth more than what it saves of it.
        gain = None if summary.launch_bound else gain_without(share)
        yield {"count": len(foldable), "fixed": int(fixed.sum()), "share": share, "gain": gain}


def _follow_convolutions(layers: pd.DataFrame) -> pd.Series[bool]:
    """Whether each layer takes the output of a convolution called right before it."""
    outputs = layers["output_shapes"].str[:1].shift()
    return (layers["function"].shift() == "Convolution2DFunction") & (
        layers["input_shapes"].str[:1] == outputs
    )
