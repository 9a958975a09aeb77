"""Summary -> where its time goes and what may shorten it: findings that follow from the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from chainer_profile.analyse.changes import MUCH, are_few, embeddings, proposed, whole
from chainer_profile.analyse.findings import (
    Finding,
    gain_without,
    in_python,
    step,
    takes_options,
)
from chainer_profile.analyse.grouping import place_of_most
from chainer_profile.analyse.hotspots import DEFAULT_RULE, find_hotspots, parse_rule
from chainer_profile.analyse.roofline import COMPUTE, MEMORY, REACHED
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.verdicts import BELOW
from chainer_profile.basics.units import (
    format_count,
    format_duration,
    format_factor,
    format_giga,
    format_percent,
    format_ratio,
    plural,
)

#: Framework time worth a word, as a fraction of the trial.
_MUCH_FRAMEWORK = 0.10
#: Part of the update's time from which a part of it is worth a word.
_MUCH_OF_UPDATE = 0.10
#: Part of the layers' time on a GPU from which what bounds them is worth a word.
_MUCH_BOUND = 0.2
#: At most so many times as fast a bound is still worth a word.
_TELLING = 10
_DENSE_MATHS = ("Convolution", "Deconvolution", "Dilated", "Linear")


def steps(summary: Summary) -> Iterator[Finding]:
    """What takes time and may take less; nothing that the run gives no reason for."""
    if not float(summary.layers["mean_s"].sum()):  # less than the clock can show
        return
    recording = summary.recording
    for rule in (
        *(_launching, _most_time, _backward, _update, _data, _embeddings, _accumulation),
        *(_nearness_to_limits, _bounds_on_gpu, _normalisations, _framework, _another_device),
    ):
        yield from rule(summary)
    if recording.settings.device == "cpu" and not recording.settings.engine:
        for one in proposed(summary):
            # A larger batch may be slower, and memory may cost nothing: advise tries them.
            if not isinstance(one, Finding) or one.code == "batch":
                continue
            if one.code != "page-faults" or one.gain is not None:
                yield one


def _launching(summary: Summary) -> Iterator[Finding]:
    """Where the host's time goes, in a run in which it sets the GPU's pace."""
    use = summary.device
    if use is None or not use.launch_bound:
        return
    text = (
        f"GPU waits for the host: launching takes {format_duration(use.launch_s)} of a trial's "
        f"{format_duration(use.trial_s)}"
    )
    if use.busy_s is None:
        text = (
            f"Probably the {text}, and the host then waits for only "
            f"{format_duration(use.wait_s)}. A network that waits for the GPU midway looks "
            "the same."
        )
    else:
        text = (
            f"The {text}, and the GPU works for {format_duration(use.busy_s)} of it "
            f"({format_percent(use.busy_share)}). Only less launching shortens the trial."
        )
    by_function = summary.layers.groupby("function", sort=False)[["host_s", "calls"]].sum()
    name = place_of_most(by_function["host_s"], use.calls_s)
    most = ""
    if name is not None:
        host_s, calls = by_function["host_s"][name], int(by_function["calls"][name])
        most = (
            f", most of it in {plural(calls, 'call')} of {name} ({format_duration(host_s)}, "
            f"{format_duration(host_s / calls)} each)"
        )
    gain = 1 / use.busy_share if use.busy_share else None
    advice = (
        "Use fewer and larger functions, larger batches, or an engine that launches without Python"
    )
    within = format_percent(use.calls_s / use.launch_s)
    evidence = f"{within} of the launching is in the layers' calls{most}."
    yield step("launch-bound", text, f"{advice}.", evidence, gain=gain)


def _most_time(summary: Summary) -> Iterator[Finding]:
    layers, first = summary.layers, summary.functions.iloc[0]
    whole_s, what = whole(summary)
    part, advice, evidence = first["total_s"] / whole_s, "", []
    slowest = layers[find_hotspots(layers["typical_s"].to_numpy(), parse_rule(DEFAULT_RULE)).hot]
    if 0 < len(slowest) < len(layers):
        share = format_percent(float(slowest["share"].sum()))
        evidence.append(
            f"{format_count(len(slowest))} of {plural(len(layers), 'layer')} "
            f"{'takes' if len(slowest) == 1 else 'take'} {share} of the {what}"
            f"{_which(slowest, summary)}."
        )
    # Where the host sets the pace, a faster function on the GPU would not shorten the trial.
    if not summary.launch_bound:
        shorter = format_percent(part / 2)
        advice = f"Start there: twice as fast, it would shorten the {what} by {shorter}."
        if part < 1:
            evidence.append(
                f"Optimising {first.name} alone makes the {what} at most "
                f"{format_factor(1 / (1 - part))} as fast (Amdahl's law)."
            )
    text = (
        f"{first.name} takes the most time of all functions: {format_percent(part)} of the {what} "
        f"in {plural(first['calls'], 'call')}{_by_phase(summary, first)}."
    )
    yield step("most-time", text, advice, " ".join(evidence))


def _which(slowest: pd.DataFrame, summary: Summary) -> str:
    """Which layers the slowest are."""
    functions = slowest["function"].value_counts()
    most = int(functions.iloc[0])
    which = f": {_listed(slowest['label'])}"
    if most > 1:
        count = "all" if most == len(slowest) else format_count(most)
        which = f"; {count} of them are {functions.index[0]}"
    if summary.several_phases:
        phase = slowest.groupby("phase", sort=False)["mean_s"].sum().idxmax()
        of_phase = int((slowest["phase"] == phase).sum())
        which += f"; {format_count(of_phase)} {'belongs' if of_phase == 1 else 'belong'} to {phase}"
    return which


def _by_phase(summary: Summary, function: pd.Series[Any]) -> str:
    """The times of a function in the phases, where it has several: ``(forward 2 ms, ...)``."""
    found = [phase for phase in summary.phase_names if function.get(f"{phase}_s", 0.0)]
    if len(found) < 2:
        return ""
    times = (f"{phase} {format_duration(function[f'{phase}_s'])}" for phase in found)
    return f" ({', '.join(times)})"


def _backward(summary: Summary) -> Iterator[Finding]:
    """Backward against forward, and the function that makes most of the difference."""
    if not {"forward", "backward"} <= set(summary.phases.index):
        return
    totals = summary.phases["total_s"]
    forward_s, backward_s = (float(totals[name]) for name in ("forward", "backward"))
    ratio = format_ratio(backward_s, forward_s)
    if not ratio:
        return
    whole_s, what = whole(summary)
    # A phase of framework alone has no column.
    times = summary.functions.reindex(columns=["forward_s", "backward_s"], fill_value=0.0)
    both, evidence = times[(times > 0).all(axis=1)], ""
    more_s = both["backward_s"] - both["forward_s"]
    if len(more_s) and more_s.max() >= MUCH * whole_s:
        worst = both.loc[more_s.idxmax()]
        name = str(worst.name)
        usual = " (the arithmetic of two gradients is twice as much)"
        evidence = (
            f"{name} has the largest gap: its backward takes {format_duration(more_s.max())} more "
            f"than its forward, {format_ratio(worst['backward_s'], worst['forward_s'])} times as "
            f"long{usual if name.startswith(_DENSE_MATHS) else ''}."
        )
    text = (
        f"Backward takes {format_percent(backward_s / whole_s)} of the {what}, {ratio} times as "
        f"long as forward ({format_duration(backward_s)} and {format_duration(forward_s)})."
    )
    yield step("backward", text, evidence=evidence)


def _of_phase(summary: Summary, phase: str) -> tuple[pd.DataFrame, float, float]:
    """The layers of a phase, its time and its part of the whole: none of it if it is not much."""
    rows = summary.layers[summary.layers["phase"] == phase]
    phase_s = float(summary.phases["total_s"].get(phase, 0.0))
    share = phase_s / whole(summary)[0]
    return (rows if share >= MUCH else rows.head(0)), phase_s, share


def _update(summary: Summary) -> Iterator[Finding]:
    """What the update costs, and what of it its hooks and the number of its calls do."""
    rows, update_s, share = _of_phase(summary, "update")
    if rows.empty:
        return
    evidence = []
    hooks = rows[rows["path"] == "optimizer"]
    part = float(hooks["mean_s"].sum()) / update_s
    if part >= _MUCH_OF_UPDATE:
        one = len(hooks) == 1
        evidence.append(
            f"{_listed(hooks['function'])} {'goes' if one else 'go'} over all parameters in "
            f"{'a pass of its' if one else 'passes of their'} own, which {'is' if one else 'are'} "
            f"{format_percent(part)} of the update."
        )
    params = rows[rows["path"].str.startswith("/")]
    calls, params_s = params["calls"].sum(), float(params["mean_s"].sum())
    # No call is quicker than what any call costs.
    least_s = float((params["mean_s"] / params["calls"]).min()) if len(params) else 0.0
    if calls > 1 and least_s * calls >= 0.5 * params_s >= 0.5 * _MUCH_OF_UPDATE * update_s:
        evidence.append(
            f"The update rule makes {plural(calls, 'call')}, and even the fastest takes "
            f"{format_duration(least_s)}; this minimum alone is "
            f"{format_percent(least_s * calls / params_s)} of their time. Fewer, larger "
            "parameters would shorten the update."
        )
    text = (
        f"The update takes {format_percent(share)} of the {whole(summary)[1]} "
        f"({format_duration(update_s)})."
    )
    yield step("update", text, evidence=" ".join(evidence))


def _data(summary: Summary) -> Iterator[Finding]:
    rows, _, share = _of_phase(summary, "data")
    if rows.empty:
        return
    name = str(rows["function"][rows["typical_s"].idxmax()])
    text = (
        f"Loading data takes {format_percent(share)} of the {whole(summary)[1]}, mostly in {name}."
    )
    yield step("data", text)


def _embeddings(summary: Summary) -> Iterator[Finding]:
    """Embeddings that are called several times a trial, each time for an array of all words."""
    whole_s, what = whole(summary)
    layers = summary.layers
    added = layers[layers["function"] == "gradient_accumulation"].groupby("path")["mean_s"].sum()
    for path, rows in embeddings(summary, are_few).groupby("path", sort=False):
        calls, share = int(rows["calls"].sum()), float(rows["mean_s"].sum()) / whole_s
        # The arrays of all calls are added up, too.
        share += float(added.get(path, 0.0)) / whole_s
        if calls > 1 and share >= MUCH:
            yield step(
                "embedding",
                f"The backward of EmbedID at {path} takes {format_percent(share)} of the {what}: "
                f"each of {format_count(calls)} calls fills an array of W's size with zeros and "
                "the gradients of its words, and these arrays are added up.",
                "To look up all words of a sequence in one call, write.",
                command="chainer.functions.separate(embed(sequence), axis=0)",
                gain=gain_without(share * (1 - 1 / calls)),
            )


def _accumulation(summary: Summary) -> Iterator[Finding]:
    if "gradient_accumulation" not in summary.functions.index:
        return
    row = summary.functions.loc["gradient_accumulation"]
    whole_s, what = whole(summary)
    if row["total_s"] >= MUCH * whole_s:
        text = (
            "Adding up the gradients of variables that several functions use takes "
            f"{format_percent(row['total_s'] / whole_s)} of the {what} in "
            f"{plural(row['calls'], 'call')}, one for each shortcut and branch."
        )
        yield step("accumulation", text)


def _nearness_to_limits(summary: Summary) -> Iterator[Finding]:
    """What the function of the most arithmetic reaches of the machine's matrix rate, and why."""
    limits, layers = summary.recording.limits, summary.layers
    if limits is None:
        return
    dense = layers[(layers["macs"] > 0) & (layers["phase"] == "forward")]
    if dense.empty:
        return
    function = str(dense.groupby("function")["mean_s"].sum().idxmax())
    calls = dense[dense["function"] == function]
    if calls["share"].sum() < MUCH:
        return
    slow = calls[~calls["verdict"].isin((COMPUTE, MEMORY))]
    rate = float(calls["flops"].sum()) / float(calls["typical_s"].sum()) / limits.flops_per_s
    about = "about " if calls["work_is_about"].any() else ""
    text = (
        f"The {plural(len(calls), 'forward call')} of {function} "
        f"{'runs' if len(calls) == 1 else 'run'} at {about}{format_percent(rate)} of this "
        f"machine's matrix rate ({format_giga(limits.flops_per_s)} GFLOP/s)."
    )
    evidence = f"Arithmetic and memory bound {'it' if len(calls) == 1 else 'most of them'}."
    if len(slow) * 2 >= len(calls):
        evidence = (
            f"{format_count(len(slow))} of {plural(len(calls), 'call')} "
            f"{'stays' if len(slow) == 1 else 'stay'} below "
            f"{format_percent(REACHED, 0)} of what arithmetic and memory allow"
        )
        by_verdict = slow.groupby("verdict")["mean_s"].sum()
        mostly = place_of_most(by_verdict, float(by_verdict.sum())) or BELOW
        gpu = summary.recording.environment.gpu
        if mostly != BELOW:
            where = "in it" if len(slow) == 1 else "in most of them"
            evidence += f": {where} the largest part of the time is {mostly}"
        elif gpu is not None and not gpu.cudnn and function.startswith("Convolution"):
            evidence += ": without cuDNN Chainer copies windows (im2col) and multiplies matrices"
        evidence += "."
    yield step("matrix-rate", text, evidence=evidence)


def _bounds_on_gpu(summary: Summary) -> Iterator[Finding]:
    """What memory-bound and compute-bound layers on a GPU would gain from."""
    settings, gpu = summary.recording.settings, summary.recording.environment.gpu
    if not summary.recording.on_device or summary.launch_bound:
        return
    shares = summary.layers.groupby("verdict")["share"].sum()
    options = takes_options(settings)
    half = f"float16{' (--dtype mixed16)' if options else ''}"
    tf32 = ["TF32 (CUPY_TF32=1)"] if gpu and gpu.tf32 is False else []
    fusing = "Fusing functions that follow one another saves reading and writing"
    digits = ""
    if settings.dtype == "float32":
        fusing += f"; {half} halves the bytes"
        digits = f"The GPU computes faster with fewer digits: {' or '.join([*tf32, half])}."
    for bound, advice in ((MEMORY, f"{fusing}."), (COMPUTE, digits)):
        share = float(shares.get(bound, 0.0))
        if share >= _MUCH_BOUND:
            of = f"{format_percent(share)} of the {whole(summary)[1]}"
            text = f"{bound.capitalize()}-bound layers take {of}."
            yield step(f"{bound}-bound", text, advice)


def _normalisations(summary: Summary) -> Iterator[Finding]:
    """The batch normalisations that can be folded into the convolution before each."""
    layers = summary.layers
    # Weights that are trained cannot be folded; an engine folds what it can by itself.
    if summary.several_phases or summary.recording.settings.engine:
        return
    fixed = layers["function"] == "FixedBatchNormalization"
    foldable = layers[fixed & _follow_convolutions(layers)]
    whole_s, what = whole(summary)
    # Where the host sets the pace of a GPU, what is saved is the host's time.
    times = foldable["host_s" if summary.launch_bound else "mean_s"]
    part = float(times.sum()) / whole_s
    if part >= MUCH:
        one = len(foldable) == 1
        yield step(
            "normalisations",
            f"{format_count(len(foldable))} of {plural(int(fixed.sum()), 'call')} of "
            f"FixedBatchNormalization {'comes' if one else 'come'} right after a convolution and "
            f"{'takes' if one else 'take'} {format_percent(part)} of the {what}.",
            f"In inference, {'its' if one else 'their'} scale and shift can be folded into "
            "the convolution's weights and bias, as ONNX Runtime does.",
            # Less launching is worth more than what it saves of it.
            gain=None if summary.launch_bound else gain_without(part),
        )


def _follow_convolutions(layers: pd.DataFrame) -> pd.Series[bool]:
    """Whether each layer takes the output of a convolution called right before it."""
    outputs = layers["output_shapes"].str[:1].shift()
    return (layers["function"].shift() == "Convolution2DFunction") & (
        layers["input_shapes"].str[:1] == outputs
    )


def _framework(summary: Summary) -> Iterator[Finding]:
    """Time between the functions."""
    settings, share = summary.recording.settings, summary.totals.framework_share
    # On a GPU that is no time between functions, and what it shows is said of launching.
    if summary.recording.on_device or share is None or share < _MUCH_FRAMEWORK:
        return
    text = f"{format_percent(share)} of the {whole(summary)[1]} is spent between the"
    if settings.engine:
        text = f"{text} engine's nodes, partly in its profiling."
        yield step("framework", text)
    else:
        asked = settings.batchsize and not summary.recording.of_program
        of = f", at a batch of {settings.batchsize}" if asked else ""
        advice = "Fewer function calls would reduce it."
        yield step("framework", f"{text} functions (framework){of}.", advice)


def _another_device(summary: Summary) -> Iterator[Finding]:
    settings = summary.recording.settings
    if not settings.device.startswith("cpu"):
        return
    functions = summary.functions
    large = functions[functions["share"] >= MUCH]
    dense = large[large.index.astype(str).str.startswith(_DENSE_MATHS)]
    part = float(dense["share"].sum())
    if part < 0.5 * float(functions["share"].sum()):
        return
    framework = summary.totals.framework_share
    evidence = ""
    if framework and not settings.engine:
        loading = summary.layers["phase"] == "data"
        data = float(summary.layers["mean_s"][loading].sum()) / whole(summary)[0]
        stays = f"{format_percent(framework)} between the functions"
        if data:
            stays += f" and the {format_percent(data)} of loading data"
        evidence = f"The {stays} would stay on the CPU"
        if (most := 1 / (framework + data)) <= _TELLING:
            evidence += f", so the gain is at most {format_factor(most)} at this batch"
        evidence += "."
    way = "--gpu 0" if takes_options(settings) else "it"
    if in_python(settings):
        way = 'model.to_device("@cupy:0")'
    takes = f"{'takes' if len(dense) == 1 else 'take'} {format_percent(part)}"
    yield step(
        "gpu",
        f"{_listed(dense.index)} {takes} of the {whole(summary)[1]}: dense arithmetic, which a "
        "GPU does well.",
        f"If you have one, try {way}.",
        evidence,
    )


def _listed(names: Iterable[object]) -> str:
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
