"""Summary -> what to do next, in sentences that follow from the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.analyse.checks import takes_options
from chainer_profile.analyse.grouping import OUTSIDE, place_of_most
from chainer_profile.analyse.hotspots import DEFAULT_RULE, find_hotspots, parse_rule
from chainer_profile.analyse.roofline import COMPUTE, MEMORY, REACHED
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
from chainer_profile.basics.words import PROG, is_run
from chainer_profile.report.rows import phases_of
from chainer_profile.report.text import of_layers, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from chainer_profile.analyse.summary import Summary

#: Framework time worth a word, as a fraction of the trial; a batch below which it can be spread.
_MUCH_FRAMEWORK = 0.10
_SMALL_BATCH = 32
#: Part of the layers' time from which a function is worth a word.
_MUCH = 0.05
#: Part of the update's time from which a part of it is worth a word.
_MUCH_OF_UPDATE = 0.10
#: Part of the layers' time on a GPU from which what bounds them is worth a word.
_MUCH_BOUND = 0.2
_DENSE_MATHS = ("Convolution", "Deconvolution", "Dilated", "Linear")


def next_steps(summary: Summary) -> Iterator[str]:
    """What to try first, one sentence or two each; nothing that the run gives no reason for."""
    if not _layers_s(summary):
        yield "All layers took less than the clock can show, so nothing follows from this run."
        return
    yield from _launching(summary)
    yield from _where_to_begin(summary)
    yield from _backward(summary)
    yield from _update(summary)
    yield from _data(summary)
    yield from _accumulation(summary)
    yield from _nearness_to_limits(summary)
    yield from _bounds_on_gpu(summary)
    yield from _fewer_normalisations(summary)
    yield from _less_framework(summary)
    yield from _another_device(summary)
    yield from _tries(summary)


def first_step(summary: Summary) -> str:
    """What promises the most, and how much; empty where nothing follows from the run."""
    totals, settings = summary.totals, summary.recording.settings
    if not _layers_s(summary):
        return ""
    if _launch_bound(summary):
        grows = _growth(summary)
        if not grows:
            return next(_launching(summary))
        return (
            f"Next: try a larger batch ({_batch_option(summary)}): the run is launch bound, and "
            f"until the GPU is busy the inputs per second can grow to about {grows}."
        )
    whole, what = _whole(summary)
    foldable = _foldable(summary)
    folded = float(foldable["mean_s"].sum()) / whole
    framework = totals.framework_share or 0.0
    spreads = settings.batchsize < _SMALL_BATCH and not (
        summary.recording.on_device or settings.engine
    )
    if folded >= _MUCH and not (spreads and framework > folded):
        return (
            f"Next: try faster engines ({PROG} engines): they fold the batch normalisations into "
            f"the convolutions, which alone saves up to {format_percent(folded)} of the {what}."
        )
    if spreads and framework >= _MUCH_FRAMEWORK:
        # Engines only infer.
        engines = f"; {PROG} engines tries runtimes that do without them"
        return (
            f"Next: try a larger batch ({_batch_option(summary)}): it spreads the "
            f"{format_percent(framework)} between the functions over more inputs"
            f"{engines if len(phases_of(summary)) == 1 else ''}."
        )
    first = summary.functions.iloc[0]
    part = float(first["total_s"]) / whole
    return (
        f"Next: begin with {printable(str(summary.functions.index[0]))}: made 2x as fast, it "
        f"would shorten the {what} by {format_percent(part / 2)}."
    )


def _whole(summary: Summary) -> tuple[float, str]:
    """The time that a change is held against, and what it is."""
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        return profiled.mean_s, "trial"
    return _layers_s(summary), "layers' time"


def _layers_s(summary: Summary) -> float:
    """Sum of the layers' mean times, also where it is no trial's."""
    return float(summary.layers["mean_s"].sum())


def _launch_bound(summary: Summary) -> bool:
    return summary.device is not None and summary.device.launch_bound


def _launching(summary: Summary) -> Iterator[str]:
    """Where the host's time goes, in a run in which it sets the GPU's pace."""
    use = summary.device
    if use is None or not use.launch_bound:
        return
    seems = "is " if use.busy_s is not None else "seems to be "
    sentence = (
        f"The run {seems}launch bound: faster layers on the GPU would not shorten the "
        f"trial, only less launching would. Of {format_duration(use.launch_s)} of launching "
        f"{format_percent(use.calls_s / use.launch_s)} pass in the layers' calls"
    )
    by_function = summary.layers.groupby("function", sort=False)[["host_s", "calls"]].sum()
    name = place_of_most(by_function["host_s"], use.calls_s)
    if name is not None:
        host_s, calls = by_function["host_s"][name], int(by_function["calls"][name])
        sentence += (
            f", most of it in {plural(calls, 'call')} of {printable(str(name))} "
            f"({format_duration(host_s)}, {format_duration(host_s / calls)} each)"
        )
    yield sentence + "."
    if grows := _growth(summary):
        yield (
            f"A larger batch needs no more launches: try {_batch_option(summary)} and compare the "
            f"inputs per second. Until the GPU is busy they can grow to about {grows}."
        )


def _growth(summary: Summary) -> str:
    """By how much a larger batch can raise a launch-bound run's rate; empty where not known."""
    use = summary.device
    small = summary.recording.settings.batchsize < _SMALL_BATCH
    return format_factor(1 / use.busy_share) if small and use and use.busy_share else ""


def _bounds_on_gpu(summary: Summary) -> Iterator[str]:
    """What memory-bound and compute-bound layers on a GPU would gain from."""
    layers, settings = summary.layers, summary.recording.settings
    if not summary.recording.on_device or _launch_bound(summary):
        return
    options = takes_options(settings)
    gpu = summary.recording.environment.gpu
    shares = layers.groupby("verdict")["share"].sum()
    memory, compute = (float(shares.get(bound, 0.0)) for bound in (MEMORY, COMPUTE))
    if memory >= _MUCH_BOUND:
        sentence = (
            f"Memory-bound layers take {format_percent(memory)} of the layers' time: fusing "
            "functions that follow one another saves reading and writing"
        )
        if settings.dtype == "float32":
            sentence += f", and float16{' (--dtype mixed16)' if options else ''} halves the bytes"
        yield sentence + "."
    if compute >= _MUCH_BOUND:
        sentence = f"Compute-bound layers take {format_percent(compute)} of the layers' time"
        ways = []
        if settings.dtype == "float32":
            if gpu is not None and gpu.tf32 is False:
                ways.append(f"TF32{' (--tf32)' if options else ''}")
            ways.append(f"float16{' (--dtype mixed16)' if options else ''}")
            sentence += f": with fewer digits, by {' or '.join(ways)}, the GPU computes faster"
        yield sentence + "."


def _where_to_begin(summary: Summary) -> Iterator[str]:
    layers, functions = summary.layers, summary.functions
    half = find_hotspots(layers["typical_s"].to_numpy(), parse_rule(DEFAULT_RULE)).hot
    count = int(half.sum())
    counts = layers["function"][half].value_counts()
    most = int(counts.iloc[0])
    if most == 1:
        which = f": {_listed(layers['label'][half])}"
    else:
        which = f"; {'all' if most == count else format_count(most)} of them are "
        which += printable(str(counts.index[0]))
    if len(phases_of(summary)) > 1:
        phase = layers[half].groupby("phase", sort=False)["mean_s"].sum().idxmax()
        of_phase = int((layers["phase"][half] == phase).sum())
        belong = "belongs" if of_phase == 1 else "belong"
        which += f"; {format_count(of_phase)} {belong} to {printable(str(phase))}"
    if count < len(layers):
        yield (
            f"{of_layers(count, len(layers))} {'holds' if count == 1 else 'hold'} half of the "
            f"layers' time{which}."
        )
    first = functions.iloc[0]
    name = printable(str(functions.index[0]))
    whole, what = _whole(summary)
    part = first["total_s"] / whole
    sentence = (
        f"{name} takes the most time of all functions: {format_percent(part)} of the {what} in "
        f"{plural(int(first['calls']), 'call')}{_by_phase(summary, first)}"
    )
    # Where the host sets the pace, a faster function on the GPU would not shorten the trial.
    if not _launch_bound(summary):
        sentence += f". Made 2x as fast, it would shorten the {what} by {format_percent(part / 2)}"
        if part < 1:
            sentence += (
                f"; work on it alone can make the {what} {format_factor(1 / (1 - part))} as fast "
                "at most (Amdahl's law)"
            )
    yield sentence + "."


def _by_phase(summary: Summary, function: pd.Series[Any]) -> str:
    """The times of a function in the phases, where it has several: ``(forward 2 ms, ...)``."""
    phases = [phase for phase in phases_of(summary) if function.get(f"{phase}_s", 0.0)]
    if len(phases) < 2:
        return ""
    times = (f"{phase} {format_duration(function[f'{phase}_s'])}" for phase in phases)
    return f" ({', '.join(times)})"


def _backward(summary: Summary) -> Iterator[str]:
    """Backward against forward, and the function that makes most of the difference."""
    phases = summary.phases
    if not {"forward", "backward"} <= set(phases.index):
        return
    forward_s, backward_s = (float(phases["total_s"][name]) for name in ("forward", "backward"))
    ratio = format_ratio(backward_s, forward_s)
    if not ratio:
        return
    whole, what = _whole(summary)
    sentence = (
        f"Backward takes {format_percent(backward_s / whole)} of the {what}, {ratio} times as long "
        f"as forward ({format_duration(backward_s)} and {format_duration(forward_s)})"
    )
    functions = summary.functions
    if not {"forward_s", "backward_s"} <= set(functions.columns):  # a phase of framework alone
        functions = functions.head(0).assign(forward_s=0.0, backward_s=0.0)
    both = functions[(functions["forward_s"] > 0) & (functions["backward_s"] > 0)]
    more_s = both["backward_s"] - both["forward_s"]
    if len(more_s) and more_s.max() >= _MUCH * whole:
        worst = both.loc[more_s.idxmax()]
        name = printable(str(worst.name))
        sentence += (
            f". The largest gap is that of {name}: its backward takes "
            f"{format_duration(more_s.max())} more than its forward, "
            f"{format_ratio(worst['backward_s'], worst['forward_s'])} times as long"
        )
        if name.startswith(_DENSE_MATHS):
            sentence += " (2 times is the arithmetic of two gradients, of input and weights)"
    yield sentence + "."


def _update(summary: Summary) -> Iterator[str]:
    """What the update costs, and what of it its hooks and the number of its calls do."""
    phases, layers = summary.phases, summary.layers
    rows = layers[layers["phase"] == "update"]
    whole, what = _whole(summary)
    update_s = float(phases["total_s"].get("update", 0.0))
    if rows.empty or update_s < _MUCH * whole:
        return
    sentence = (
        f"The update takes {format_percent(update_s / whole)} of the {what} "
        f"({format_duration(update_s)})"
    )
    batchsize = summary.recording.settings.batchsize
    if batchsize < _SMALL_BATCH:
        sentence += (
            ", which does not grow with the batch: a larger one, such as "
            f"{_SMALL_BATCH}, spreads it over more inputs"
        )
    yield sentence + "."
    hooks = rows[rows["path"] == "optimizer"]
    part = float(hooks["mean_s"].sum()) / update_s
    if part >= _MUCH_OF_UPDATE:
        one = len(hooks) == 1
        sentence = (
            f"{_listed(hooks['function'])} {'goes' if one else 'go'} over all parameters in "
            f"{'a pass of its' if one else 'passes of their'} own, which {'is' if one else 'are'} "
            f"{format_percent(part)} of the update"
        )
        if one and "WeightDecay" in set(hooks["function"]):
            sentence += ": decay inside of the update rule would save it"
        yield sentence + "."
    params = rows[rows["path"].str.startswith("/")]
    if params.empty:
        return
    calls, params_s = int(params["calls"].sum()), float(params["mean_s"].sum())
    # No call is quicker than what any call costs.
    least_s = float((params["mean_s"] / params["calls"]).min())
    if calls > 1 and least_s * calls >= 0.5 * params_s >= 0.5 * _MUCH_OF_UPDATE * update_s:
        yield (
            f"Updating parameters means {plural(calls, 'call')}, of which even the quickest "
            f"takes {format_duration(least_s)}; so much for each is "
            f"{format_percent(least_s * calls / params_s)} of their time. Their number counts more "
            "than their size here: fewer, larger parameters would make it shorter."
        )


def _data(summary: Summary) -> Iterator[str]:
    rows = summary.layers[summary.layers["phase"] == "data"]
    whole, what = _whole(summary)
    data_s = float(summary.phases["total_s"].get("data", 0.0))
    if rows.empty or data_s < _MUCH * whole:
        return
    name = printable(str(rows["function"][rows["typical_s"].idxmax()]))
    sentence = (
        f"Loading of data takes {format_percent(data_s / whole)} of the {what}, the largest part "
        f"of it in {name}"
    )
    if name.startswith("Multi"):
        sentence += ", which does not keep up: give it more workers and let it prefetch more"
    elif name.endswith("Iterator"):
        sentence += (
            ". MultiprocessIterator or MultithreadIterator would load the next batch while this "
            "one is computed"
        )
    yield sentence + "."


def _accumulation(summary: Summary) -> Iterator[str]:
    if "gradient_accumulation" not in summary.functions.index:
        return
    row = summary.functions.loc["gradient_accumulation"]
    whole, what = _whole(summary)
    part = float(row["total_s"]) / whole
    if part >= _MUCH:
        yield (
            f"Adding up the gradients of variables that several functions use takes "
            f"{format_percent(part)} of the {what} in {plural(int(row['calls']), 'call')}: each "
            "shortcut and each branch costs one."
        )


def _nearness_to_limits(summary: Summary) -> Iterator[str]:
    """What the function of the most arithmetic reaches of the machine's matrix rate, and why."""
    limits, layers = summary.recording.limits, summary.layers
    if limits is None or _layers_s(summary) == 0:
        return
    dense = layers[(layers["macs"] > 0) & (layers["phase"] == "forward")]
    if dense.empty:
        return
    function = str(dense.groupby("function")["mean_s"].sum().idxmax())
    calls = dense[dense["function"] == function]
    if calls["share"].sum() < _MUCH:
        return
    slow = calls[~calls["verdict"].isin((COMPUTE, MEMORY))]
    rate = float(calls["flops"].sum()) / float(calls["typical_s"].sum()) / limits.flops_per_s
    name, settings = printable(function), summary.recording.settings
    about = "about " if calls["work_is_about"].any() else ""
    sentence = (
        f"The {plural(len(calls), 'forward call')} of {name} "
        f"{'runs' if len(calls) == 1 else 'run'} at {about}{format_percent(rate)} of "
        f"this machine's matrix rate ({format_giga(limits.flops_per_s)} GFLOP/s)"
    )
    if len(slow) * 2 < len(calls):
        yield sentence + ": arithmetic and memory are what bounds most of them."
        return
    sentence += (
        f"; {of_layers(len(slow), len(calls)).replace('layer', 'call')} stay below "
        f"{format_percent(REACHED, 0)} of what arithmetic and memory allow"
    )
    by_verdict = slow.groupby("verdict")["mean_s"].sum()
    mostly = place_of_most(by_verdict, float(by_verdict.sum())) or BELOW
    if mostly != BELOW:
        sentence += f": in most of them the largest part of the time is {mostly}"
    elif _no_cudnn(summary) and function.startswith("Convolution"):
        sentence += ": without cuDNN Chainer copies windows (im2col) and multiplies matrices"
    if settings.batchsize < _SMALL_BATCH:
        sentence += f". Whether a larger batch comes nearer, a run with -b {_SMALL_BATCH} shows"
    yield sentence + "."


def _no_cudnn(summary: Summary) -> bool:
    gpu = summary.recording.environment.gpu
    return gpu is not None and not gpu.cudnn


def _fewer_normalisations(summary: Summary) -> Iterator[str]:
    foldable = _foldable(summary)
    fixed = summary.layers["function"] == "FixedBatchNormalization"
    whole, what = _whole(summary)
    # Where the host sets the pace of a GPU, what is saved is the host's time.
    times = foldable["host_s" if _launch_bound(summary) else "mean_s"]
    part = float(times.sum()) / whole
    if part >= _MUCH:
        one = len(foldable) == 1
        yield (
            f"{format_count(len(foldable))} of {plural(int(fixed.sum()), 'call')} of "
            f"FixedBatchNormalization {'comes' if one else 'come'} right after a convolution and "
            f"{'takes' if one else 'take'} {format_percent(part)} of the {what}. In inference "
            f"{'its' if one else 'their'} scale and shift can be folded into the convolution's "
            f"weights and bias: that would save up to these {format_percent(part)}."
        )


def _foldable(summary: Summary) -> pd.DataFrame:
    """The batch normalisations that can be folded into the convolution before each."""
    layers = summary.layers
    # Weights that are trained cannot be folded; an engine folds what it can by itself.
    if len(phases_of(summary)) > 1 or summary.recording.settings.engine:
        return layers.head(0)
    fixed = layers["function"] == "FixedBatchNormalization"
    return layers[fixed & np.array(_follows_convolution(layers), bool)]


def _follows_convolution(layers: pd.DataFrame) -> list[bool]:
    """Whether each layer takes the output of a convolution called right before it."""
    rows = list(layers.itertuples())
    return [
        at > 0
        and rows[at - 1].function == "Convolution2DFunction"
        and row.input_shapes[:1] == rows[at - 1].output_shapes[:1]
        for at, row in enumerate(rows)
    ]


def _less_framework(summary: Summary) -> Iterator[str]:
    totals, settings = summary.totals, summary.recording.settings
    share = totals.framework_share
    if summary.recording.on_device:
        # That is no time between functions, and what it tells is said of launching.
        return
    if share is None or totals.framework is None or share < _MUCH_FRAMEWORK:
        return
    if settings.engine:
        yield (
            f"{format_percent(share)} of the trial passes between the engine's nodes, a part of it "
            "in its profiling: what it did without that, the clean trials say."
        )
        return
    sentence = (
        f"{format_percent(share)} of the trial passes between the functions (framework), "
        f"{format_duration(totals.framework.mean_s / int(summary.layers['calls'].sum()))} a call"
    )
    by_phase = summary.phases["framework_s"]
    if len(phases_of(summary)) > 1 and OUTSIDE not in by_phase.nlargest(1).index:
        part = by_phase.max() / totals.framework.mean_s
        sentence += f"; {format_percent(part)} of it in {by_phase.idxmax()}"
    if settings.batchsize < _SMALL_BATCH:
        sentence += (
            ". A larger batch spreads this over more inputs: try "
            f"{_batch_option(summary)} and compare the inputs per second."
        )
    else:
        sentence += (
            f", although the batch has {format_count(settings.batchsize)} inputs. Fewer function "
            "calls, or an engine that runs the network without Python, would cut it."
        )
    yield sentence


def _batch_option(summary: Summary) -> str:
    option = takes_options(summary.recording.settings)
    return f"-b {_SMALL_BATCH}" if option else format_count(_SMALL_BATCH)


def _another_device(summary: Summary) -> Iterator[str]:
    if not summary.recording.settings.device.startswith("cpu"):
        return
    functions = summary.functions
    functions = functions[functions["share"] >= _MUCH]
    dense = functions[[str(name).startswith(_DENSE_MATHS) for name in functions.index]]
    part = float(dense["share"].sum())
    if part < 0.5:
        return
    sentence = (
        f"{_listed(dense.index)} {'takes' if len(dense) == 1 else 'take'} {format_percent(part)} "
        "of the layers' time: dense arithmetic, which a GPU does well. Where there is one, try "
    )
    sentence += "--gpu 0" if takes_options(summary.recording.settings) else "it"
    framework = summary.totals.framework_share
    if framework and not summary.recording.settings.engine:
        loading = summary.layers["phase"] == "data"
        data = float(summary.layers["mean_s"][loading].sum()) / _whole(summary)[0]
        stays = f"{format_percent(framework)} between the functions"
        if data:
            stays += f" and the {format_percent(data)} of loading data"
        sentence += (
            f". The {stays} would stay on the CPU, so expect at most "
            f"{format_factor(1 / (framework + data))} at this batch"
        )
    yield sentence + "."


def _tries(summary: Summary) -> Iterator[str]:
    settings = summary.recording.settings
    if settings.device == "cpu" and not settings.engine and is_run(settings.command):
        yield (
            f"What could make it faster can be tried: {PROG} advise RUN, with this run's folder, "
            "measures what each change brings."
        )


def _listed(names: Iterable[object]) -> str:
    words = [printable(str(name)) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
