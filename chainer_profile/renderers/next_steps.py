"""Summary -> what to do next, in sentences that follow from the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from chainer_profile.hotspots import DEFAULT_RULE, find_hotspots, parse_rule
from chainer_profile.renderers.text import of_layers, printable
from chainer_profile.units import (
    format_count,
    format_duration,
    format_factor,
    format_percent,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from chainer_profile.summary import Summary

#: Framework time worth a word, as a fraction of the trial; a batch below which it can be spread.
_MUCH_FRAMEWORK = 0.10
_SMALL_BATCH = 32
#: Part of the layers' time from which a function is worth a word.
_MUCH = 0.05
_DENSE_MATHS = ("Convolution", "Deconvolution", "Dilated", "Linear")


def next_steps(summary: Summary) -> Iterator[str]:
    """What to try first, one sentence or two each; nothing that the run gives no reason for."""
    if not summary.totals.layers_s:
        yield "All layers took less than the clock can show, so nothing follows from this run."
        return
    yield from _where_to_begin(summary)
    yield from _fewer_normalisations(summary)
    yield from _less_framework(summary)
    yield from _another_device(summary)


def _whole(summary: Summary) -> tuple[float, str]:
    """The time that a change is held against, and what it is."""
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        return profiled.mean_s, "trial"
    return summary.totals.layers_s, "layers' time"


def _where_to_begin(summary: Summary) -> Iterator[str]:
    layers, functions = summary.layers, summary.functions
    half = find_hotspots(layers["mean_s"].to_numpy(), parse_rule(DEFAULT_RULE)).hot
    count = int(half.sum())
    counts = layers["function"][half].value_counts()
    most = int(counts.iloc[0])
    if most == 1:
        which = f": {_listed(layers['label'][half])}"
    else:
        which = f"; {'all' if most == count else format_count(most)} of them are "
        which += printable(str(counts.index[0]))
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
        f"{plural(int(first['calls']), 'call')}. Made 2x as fast, it would shorten the {what} by "
        f"{format_percent(part / 2)}"
    )
    if part < 1:
        sentence += (
            f"; work on it alone can make the {what} {format_factor(1 / (1 - part))} as fast at "
            "most (Amdahl's law)"
        )
    yield sentence + "."


def _fewer_normalisations(summary: Summary) -> Iterator[str]:
    layers = summary.layers
    fixed = layers["function"] == "FixedBatchNormalization"
    foldable = layers[fixed & np.array(_follows_convolution(layers), bool)]
    whole, what = _whole(summary)
    part = float(foldable["mean_s"].sum()) / whole
    if part >= _MUCH:
        one = len(foldable) == 1
        yield (
            f"{format_count(len(foldable))} of {plural(int(fixed.sum()), 'call')} of "
            f"FixedBatchNormalization {'comes' if one else 'come'} right after a convolution and "
            f"{'takes' if one else 'take'} {format_percent(part)} of the {what}. In inference "
            f"{'its' if one else 'their'} scale and shift can be folded into the convolution's "
            f"weights and bias: that would save up to these {format_percent(part)}."
        )


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
    if share is None or totals.framework is None or share < _MUCH_FRAMEWORK:
        return
    sentence = (
        f"{format_percent(share)} of the trial passes between the functions (framework), "
        f"{format_duration(totals.framework.mean_s / len(summary.layers))} a call"
    )
    if settings.batchsize < _SMALL_BATCH:
        sentence += (
            ". A larger batch spreads this over more inputs: try "
            f"-b {_SMALL_BATCH} and compare the inputs per second."
        )
    else:
        sentence += (
            f", although the batch has {format_count(settings.batchsize)} inputs. Fewer function "
            "calls, or an engine that runs the network without Python, would cut it."
        )
    yield sentence


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
        "--gpu 0"
    )
    framework = summary.totals.framework_share
    if framework:
        sentence += (
            f". The {format_percent(framework)} between the functions would stay on the CPU, so "
            f"expect at most {format_factor(1 / framework)} at this batch"
        )
    yield sentence + "."


def _listed(names: Iterable[object]) -> str:
    words = [printable(str(name)) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
