"""Summary -> findings on where its time goes and how it may be shortened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from chainer_profile.analyse.changes import MUCH, are_few, embeddings, proposed
from chainer_profile.analyse.findings import Finding, gain_without, in_python, takes_options
from chainer_profile.analyse.grouping import place_of_most
from chainer_profile.analyse.roofline import COMPUTE, MEMORY, REACHED
from chainer_profile.analyse.rules import Facts, Rules, part_of_whole
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.verdicts import BELOW
from chainer_profile.basics.sentences import fill
from chainer_profile.basics.units import format_duration, format_percent, format_ratio
from chainer_profile.basics.words import BACKWARD, DATA, FORWARD, UPDATE

#: Framework time worth a finding, as a fraction of the trial.
_MUCH_FRAMEWORK = 0.10
#: Part of the update's time from which a part of it is worth a sentence.
_MUCH_OF_UPDATE = 0.10
#: Part of the layers' time on a GPU from which what bounds them is worth a finding.
_MUCH_BOUND = 0.2
#: A larger bound of a gain is not worth a sentence.
_TELLING = 10
_DENSE_MATHS = ("Convolution", "Deconvolution", "Dilated", "Linear")

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


@STEPS.step(
    "{function} takes the most time of all functions: {share:%} of the {whole} in "
    "{calls:call}{by_phase}.",
    {"shortens": "Start there: twice as fast, it would shorten the {whole} by {shortens:%}."},
    evidence={
        "at_most": "Optimising {function} alone makes the {whole} at most {at_most:x} as fast "
        "(Amdahl's law)."
    },
)
def _most_time(summary: Summary) -> Iterator[Facts]:
    first = summary.functions.iloc[0]
    share = part_of_whole(summary, first["total_s"])
    facts = {"function": first.name, "share": share, "calls": first["calls"]}
    # Where the host sets the pace, a faster function on the GPU would not shorten the trial.
    if not summary.launch_bound:
        facts |= {"shortens": share / 2, "at_most": gain_without(share)}
    yield facts | {"by_phase": _by_phase(summary, first)}


def _by_phase(summary: Summary, function: pd.Series[Any]) -> str:
    """The times of a function in the phases, where it has several: ``(forward 2 ms, ...)``."""
    phases = [phase for phase in summary.phase_names if function.get(f"{phase}_s", 0.0)]
    if len(phases) < 2:
        return ""
    times = (f"{phase} {format_duration(function[f'{phase}_s'])}" for phase in phases)
    return f" ({', '.join(times)})"


@STEPS.step(
    "Backward takes {share:%} of the {whole}, {ratio} times as long as forward ({backward_s:s} and "
    "{forward_s:s}).",
    evidence={
        "function": "{function} has the largest gap: its backward takes {more_s:s} more than its "
        "forward, {times} times as long{usual}."
    },
)
def _backward(summary: Summary) -> Iterator[Facts]:
    """Backward against forward, and the function that makes most of the difference."""
    if not {FORWARD, BACKWARD} <= set(summary.phases.index):
        return
    forward_s, backward_s = summary.phases["total_s"][[FORWARD, BACKWARD]]
    ratio = format_ratio(backward_s, forward_s)
    if not ratio:
        return
    facts = {"share": part_of_whole(summary, backward_s), "ratio": ratio}
    facts |= {"backward_s": backward_s, "forward_s": forward_s}
    # A phase of framework alone has no column.
    times = summary.functions.reindex(columns=["forward_s", "backward_s"], fill_value=0.0)
    both = times[(times > 0).all(axis=1)]
    more_s = both["backward_s"] - both["forward_s"]
    if len(more_s) and part_of_whole(summary, more_s.max()) >= MUCH:
        gap = both.loc[more_s.idxmax()]
        dense = str(gap.name).startswith(_DENSE_MATHS)
        usual = " (the arithmetic of two gradients is twice as much)" if dense else ""
        ratio = format_ratio(gap["backward_s"], gap["forward_s"])
        facts |= {"function": gap.name, "more_s": more_s.max(), "times": ratio, "usual": usual}
    yield facts


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


@STEPS.step(
    "Loading data takes {share:%} of the {whole}, mostly in {function}.",
    {
        "hidden": "Other processes can load batches beside the training, which hides up to "
        "{hidden:%}. Write."
    },
)
def _data(summary: Summary) -> Iterator[Facts]:
    rows, share = _of_phase(summary, DATA)
    if len(rows):
        facts: Facts = {"share": share, "function": rows["function"][rows["typical_s"].idxmax()]}
        serial = rows[rows["function"] == "SerialIterator"]
        hidden = part_of_whole(summary, serial["mean_s"].sum())
        if hidden >= MUCH:
            command = "chainer.iterators.MultiprocessIterator(train, batchsize)"
            facts |= {"hidden": hidden, "command": command, "gain": gain_without(hidden)}
        yield facts


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
    "Adding up the gradients of variables that several functions use takes {share:%} of the "
    "{whole} in {calls:call}, one for each shortcut and branch.",
)
def _accumulation(summary: Summary) -> Iterator[Facts]:
    if "gradient_accumulation" in summary.functions.index:
        row = summary.functions.loc["gradient_accumulation"]
        share = part_of_whole(summary, row["total_s"])
        if share >= MUCH:
            yield {"share": share, "calls": row["calls"]}


@STEPS.step(
    "The {count:forward call} of {function} {count:runs|run} at {about}{rate:%} of this machine's "
    "matrix rate ({run.limits.flops_per_s:G} GFLOP/s).",
    evidence={
        "-slow": "Arithmetic and memory bound {count:it|most of them}.",
        "slow": "{slow:n} of {count:call} {slow:stays|stay} below "
        f"{format_percent(REACHED, 0)} of what arithmetic and memory allow{{because}}.",
    },
)
def _matrix_rate(summary: Summary) -> Iterator[Facts]:
    """What the function of the most arithmetic reaches of the machine's matrix rate, and why."""
    limits, layers = summary.recording.limits, summary.layers
    dense = layers[(layers["macs"] > 0) & (layers["phase"] == FORWARD)]
    if limits is None or dense.empty:
        return
    function = str(dense.groupby("function")["mean_s"].sum().idxmax())
    calls = dense[dense["function"] == function]
    if calls["share"].sum() < MUCH:
        return
    slow = calls[~calls["verdict"].isin((COMPUTE, MEMORY))]
    rate = float(calls["flops"].sum()) / float(calls["typical_s"].sum()) / limits.flops_per_s
    facts = {"count": len(calls), "function": function, "rate": rate}
    facts["about"] = "about " if calls["work_is_about"].any() else ""
    if len(slow) * 2 >= len(calls):
        facts |= {"slow": len(slow), "because": _because(summary, slow, function)}
    yield facts


def _because(summary: Summary, slow: pd.DataFrame, function: str) -> str:
    """Why calls of a function reach no limit, where that is known."""
    by_verdict = slow.groupby("verdict")["mean_s"].sum()
    mostly = place_of_most(by_verdict, float(by_verdict.sum())) or BELOW
    gpu = summary.recording.environment.gpu
    if mostly != BELOW:
        sentence = ": in {count:it|most of them} the largest part of the time is {mostly}"
        return fill(sentence, count=len(slow), mostly=mostly)
    if gpu is not None and not gpu.cudnn and function.startswith("Convolution"):
        return ": without cuDNN Chainer copies windows (im2col) and multiplies matrices"
    return ""


_BOUND = "{bound}-bound layers take {share:%} of the {whole}."


@STEPS.step(
    _BOUND,
    {
        "-half": "Fusing functions that follow one another saves reading and writing.",
        "half": "Fusing functions that follow one another saves reading and writing; {half} halves "
        "the bytes.",
    },
)
def _memory_bound(summary: Summary) -> Iterator[Facts]:
    yield from _bound(summary, MEMORY)


@STEPS.step(
    _BOUND,
    {"half": "The GPU computes faster with fewer digits: {tf32}{half}."},
)
def _compute_bound(summary: Summary) -> Iterator[Facts]:
    yield from _bound(summary, COMPUTE)


def _bound(summary: Summary, bound: str) -> Iterator[Facts]:
    """The layers on a GPU that a limit bounds, and options that move the limit."""
    settings, gpu = summary.recording.settings, summary.recording.environment.gpu
    if not summary.recording.on_device or summary.launch_bound:
        return
    share = float(summary.layers["share"][summary.layers["verdict"] == bound].sum())
    if share >= _MUCH_BOUND:
        options = takes_options(settings)
        half = f"float16{' (--dtype mixed16)' if options else ''}"
        tf32 = "TF32 (CUPY_TF32=1) or " if gpu and gpu.tf32 is False else ""
        facts = {"bound": bound.capitalize(), "share": share, "tf32": tf32}
        yield facts | {"half": half if settings.dtype == "float32" else ""}


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


@STEPS.step(
    {
        "engine": "{totals.framework_share:%} of the {whole} is spent between the engine's nodes, "
        "partly in its profiling.",
        "-engine": "{totals.framework_share:%} of the {whole} is spent between the functions "
        "(framework){at_batch}.",
    },
    {"-engine": "Fewer function calls would reduce it."},
)
def _framework(summary: Summary) -> Iterator[Facts]:
    recording, share = summary.recording, summary.totals.framework_share
    # On a GPU that is no time between functions, and what it shows is said of launching.
    if recording.on_device or share is None or share < _MUCH_FRAMEWORK:
        return
    batch = 0 if recording.of_program else recording.settings.batchsize
    at_batch = f", at a batch of {batch}" if batch else ""
    yield {"engine": recording.settings.engine, "at_batch": at_batch}


@STEPS.step(
    "{functions} {functions:takes|take} {share:%} of the {whole}: dense arithmetic, which a GPU "
    "does well.",
    "If you have one, try {way}.",
    evidence={"stays": "{stays} would stay on the CPU{at_most}."},
)
def _gpu(summary: Summary) -> Iterator[Facts]:
    settings, functions = summary.recording.settings, summary.functions
    if not settings.device.startswith("cpu"):
        return
    large = functions[functions["share"] >= MUCH]
    dense = large[large.index.astype(str).str.startswith(_DENSE_MATHS)]
    share = float(dense["share"].sum())
    if share < 0.5 * float(functions["share"].sum()):
        return
    way = "--gpu 0" if takes_options(settings) else "it"
    if in_python(settings):
        way = 'model.to_device("@cupy:0")'
    facts = {"functions": dense.index.tolist(), "share": share, "way": way}
    framework = summary.totals.framework_share
    if framework and not settings.engine:
        of_data = summary.layers["mean_s"][summary.layers["phase"] == DATA]
        loading = part_of_whole(summary, of_data.sum())
        most = 1 / (framework + loading)
        sentence = ", so the gain is at most {most:x} at this batch" if most <= _TELLING else ""
        facts["stays"] = f"The framework{' and loading of data' if loading else ''}"
        facts["at_most"] = fill(sentence, most=most)
    yield facts
