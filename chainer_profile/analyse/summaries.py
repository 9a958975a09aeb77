"""Recording -> Summary: statistics per layer and per function, totals, hotspots, findings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chainer_profile.analyse import checks
from chainer_profile.analyse.counted import layer_counters
from chainer_profile.analyse.device_use import device_use, layer_device
from chainer_profile.analyse.grouping import group, link_tree, phase_table, time_of_shares
from chainer_profile.analyse.hotspots import DEFAULT_RULE, Hotspots, Rule, find_hotspots, parse_rule
from chainer_profile.analyse.inside import InsideParts, inside_parts
from chainer_profile.analyse.roofline import layer_work
from chainer_profile.analyse.summary import Overhead, Summary, Totals
from chainer_profile.analyse.verdicts import verdicts
from chainer_profile.basics.describe import describe, describe_columns, median_interval
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.words import FORWARD
from chainer_profile.record.checking import check
from chainer_profile.record.recording import Layer, Recording

#: Fields that the table of layers copies from a layer.
_DESCRIPTION = (
    *("label", "path", "function", "phase"),
    *("input_shapes", "output_shapes", "dtype", "calls"),
)


def summarise(recording: Recording, hotspots: Rule | str = DEFAULT_RULE) -> Summary:
    """Compute the statistics and findings of a recording.

    Args:
        recording: A recording with at least one profiled trial.
        hotspots: Rule for hot layers: ``0.36ms``, ``5%``, ``top:10`` or ``pareto:50%``.

    Raises:
        ProfileError: The recording contains no complete profiled trial, or cannot be from a run.
        UsageError: The rule is invalid.
    """
    if not recording.self_ns.size:
        raise ProfileError(
            "the recording contains no complete profiled trial, so there is no result"
        )
    try:
        check(recording)
    except ValueError as error:  # made by hand: neither runs nor files have such errors
        raise ProfileError(f"the recording cannot be from a run: {error}") from None
    rule = parse_rule(hotspots) if isinstance(hotspots, str) else hotspots
    statistics = describe_columns(recording.self_ns)
    inside = inside_parts(recording, statistics["median_s"])
    layers, hot = _layer_table(recording, rule, statistics, inside)
    summary = Summary(
        recording=recording,
        layers=layers,
        functions=group(layers, recording, "function"),
        phases=phase_table(layers, recording),
        links=link_tree(layers, recording),
        totals=_totals(recording, float(layers["mean_s"].sum())),
        hotspots=hot,
        device=device_use(recording),
        inside=inside,
    )
    return replace(summary, findings=checks.check(summary))


def _layer_table(
    recording: Recording, rule: Rule, statistics: dict[str, Any], inside: InsideParts | None
) -> tuple[pd.DataFrame, Hotspots]:
    layers = recording.layers
    columns: dict[str, Any] = {
        name: [getattr(layer, name) for layer in layers] for name in _DESCRIPTION
    }
    # As objects, so that None does not make the others floats.
    columns["forward"] = np.array([layer.forward for layer in layers], object)
    columns["trials"] = np.full(len(layers), recording.n_trials)
    columns |= statistics
    mean_s = columns["mean_s"]
    whole_s = time_of_shares(recording, float(mean_s.sum()))
    share = mean_s / whole_s if whole_s else np.zeros(len(layers))
    slowest_first = np.argsort(-share, kind="stable")
    columns["share"] = share
    columns["cumulative_share"] = np.empty(len(layers))
    columns["cumulative_share"][slowest_first] = share[slowest_first].cumsum()
    # The median of a row that most trials lack is zero, so its mean counts.
    typical_s = mean_s if recording.by_means else columns["median_s"]
    columns |= layer_work(recording, typical_s) | layer_memory(recording) | layer_device(recording)
    columns |= layer_counters(recording)
    columns["verdict"] = verdicts(recording, columns, inside)
    hotspots = find_hotspots(mean_s, rule, whole_s)
    columns["hot"] = hotspots.hot
    return pd.DataFrame(columns, pd.RangeIndex(len(layers), name="index")), hotspots


def layer_memory(recording: Recording) -> dict[str, Any]:
    """The memory of every layer in bytes, <NA> where not known.

    ``peak_nbytes`` and ``retained_nbytes`` are from :class:`.MemoryUse`. ``input_nbytes``,
    ``parameter_nbytes`` and ``output_nbytes`` are sizes of arrays. ``workspace_nbytes`` is the peak
    that a forward call allocates beyond its outputs.
    """
    layers, use = recording.layers, recording.memory
    data = {
        name: [None] * len(layers) if use is None else list(getattr(use, name))
        for name in ("peak_nbytes", "retained_nbytes")
    }
    for name in ("input_nbytes", "parameter_nbytes"):
        data[name] = [getattr(layer, name) for layer in layers]
    data["output_nbytes"] = [_output_nbytes(layer) for layer in layers]
    table = pd.DataFrame(data, dtype="Int64")
    beyond = (table["peak_nbytes"] - table["output_nbytes"]).clip(lower=0)
    table["workspace_nbytes"] = beyond.where([layer.phase == FORWARD for layer in layers])
    return {str(name): values.array for name, values in table.items()}


def _output_nbytes(layer: Layer) -> int | None:
    # An engine's node of several layers, and older recordings, have only shapes and a data type.
    if layer.output_nbytes is not None or layer.phase != FORWARD or not layer.dtype:
        return layer.output_nbytes
    try:
        # NumPy knows bfloat16 only where another package has taught it.
        itemsize = 2 if layer.dtype == "bfloat16" else np.dtype(layer.dtype).itemsize
    except (TypeError, ValueError, SyntaxError):  # NumPy does not know the type
        return None
    return sum(math.prod(shape) * itemsize for shape in layer.output_shapes)


def _totals(recording: Recording, layers_s: float) -> Totals:
    profiled = framework = None
    if recording.trial_ns is not None:
        profiled = describe(recording.trial_ns)
        framework = describe(recording.trial_ns - recording.self_ns.sum(axis=1))
    clean = describe(recording.clean_ns) if len(recording.clean_ns) else None
    trial, batchsize = clean or profiled, recording.settings.batchsize
    return Totals(
        layers_s=None if recording.settings.inclusive else layers_s,
        profiled=profiled,
        clean=clean,
        framework=framework,
        overhead=_overhead(recording),
        fps=batchsize / trial.mean_s if batchsize and trial and trial.mean_s else None,
    )


def _overhead(recording: Recording) -> Overhead | None:
    """The recorder's overhead, from neighbouring blocks of trials, so that slow drift cancels."""
    # Each ratio is the median of the profiled trials next to an unprofiled block, half a block
    # before and half a block after, over the median of that block. The median ratio counts.
    if recording.trial_ns is None or recording.start_ns is None or not len(recording.clean_ns):
        return None
    starts = np.concatenate([recording.start_ns, recording.clean_start_ns])
    times = np.concatenate([recording.trial_ns, recording.clean_ns])
    is_clean = np.repeat([False, True], [len(recording.start_ns), len(recording.clean_ns)])
    order = np.argsort(starts, kind="stable")
    times, is_clean = times[order], is_clean[order]
    edges = np.flatnonzero(np.diff(is_clean.astype(np.int8))) + 1
    # Empty blocks at both ends, so that each unprofiled block has two neighbours.
    blocks: list[NDArray[np.int64]] = [times[:0], *np.split(times, edges), times[:0]]
    ratios = []
    for index in range(1 if is_clean[0] else 2, len(blocks) - 1, 2):
        # A block between two unprofiled ones is shared by both: each takes its nearer half.
        before, after = blocks[index - 1], blocks[index + 1]
        before = before[len(before) // 2 :] if index > 2 else before
        after = after[: (len(after) + 1) // 2] if index + 3 < len(blocks) else after
        near = np.concatenate([before, after])
        if len(near) and np.median(blocks[index]):
            ratios.append(float(np.median(near) / np.median(blocks[index])))
    if not ratios:
        return None
    added = np.array(ratios) - 1
    return Overhead(float(np.median(added)), *median_interval(added))
