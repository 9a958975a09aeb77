"""Recording -> Summary: statistics per layer and per function, totals, hotspots, findings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from chainer_profile import checks
from chainer_profile.device_use import DeviceUse, device_use, layer_device
from chainer_profile.errors import ProfileError
from chainer_profile.footprint import layer_memory
from chainer_profile.grouping import by_phase, group, link_tree
from chainer_profile.hotspots import DEFAULT_RULE, Hotspots, Rule, find_hotspots, parse_rule
from chainer_profile.roofline import layer_work
from chainer_profile.statistics import Statistics, describe, median_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chainer_profile.checks import Finding
    from chainer_profile.recording import Recording
    from chainer_profile.renderers.notebook_plot import LayerPlot


@dataclass(frozen=True)
class Overhead:
    """What the recorder adds to a trial.

    Attributes:
        fraction: Added time as a fraction of a clean trial.
        low: Lower end of its 95 % interval; NaN for fewer than 6 pairs of blocks.
        high: Upper end.
    """

    fraction: float
    low: float
    high: float


@dataclass(frozen=True)
class Totals:
    """A trial as a whole. ``layers_s + framework_s = profiled.mean_s``.

    Attributes:
        layers_s: Sum of the layers' mean self times, in seconds.
        profiled: Wall time of the profiled trials; None where only functions were timed.
        clean: Wall time of the trials without hooks; None without such trials.
        framework: Time between the functions, in the profiled trials; None like profiled.
        overhead: The recorder's cost; None without profiled or clean trials.
        fps: Inputs per second in clean trials (profiled ones without those), batch / mean.
    """

    layers_s: float
    profiled: Statistics | None
    clean: Statistics | None
    framework: Statistics | None
    overhead: Overhead | None
    fps: float | None

    @property
    def trial(self) -> Statistics | None:
        """The latency to quote: of the clean trials, or else of the profiled ones."""
        return self.clean or self.profiled

    @property
    def framework_share(self) -> float | None:
        """Framework time as a fraction of a profiled trial."""
        if self.framework is None or self.profiled is None or not self.profiled.mean_s:
            return None
        return self.framework.mean_s / self.profiled.mean_s


@dataclass(frozen=True, eq=False)
class Summary:
    """All that the renderers show; a pure function of a recording and a rule for hotspots.

    Attributes:
        recording: Where it came from.
        layers: One row per layer in the order of the calls, indexed by it. Columns: ``label``,
            ``path``, ``function``, ``phase``, ``input_shapes``, ``output_shapes``, ``dtype``,
            ``calls``, ``forward`` (index of the call that a backward goes back through, or None);
            ``trials`` and the statistics of the self time in seconds (``mean_s``, ``std_s``,
            ``ci_low_s``, ``ci_high_s``, ``min_s``, ``p5_s``, ``median_s``, ``p95_s``, ``p99_s``,
            ``max_s``); ``share``, the mean's fraction of the sum of all layers' means;
            ``cumulative_share``, the same for this and all slower layers together; ``hot``; and
            the columns of :func:`.roofline.layer_work` (operations, bytes, limits), of
            :func:`.footprint.layer_memory` (allocated bytes, sizes of arrays) and of
            :func:`.device_use.layer_device` (host and device of a GPU).
        functions: One row per function name, slowest first; see :func:`.grouping.group`, which
            groups by link, block and shape as well (:meth:`group`).
        phases: One row per phase; they add up to the trial. See :func:`.grouping.by_phase`.
        links: The tree of links with inclusive and exclusive times; see
            :func:`.grouping.link_tree`.
        totals: A trial as a whole.
        hotspots: The rule, and what it chose.
        findings: What the reader should know or do.
        device: How a trial uses the GPU; None for a run on the host.
    """

    recording: Recording
    layers: pd.DataFrame
    functions: pd.DataFrame
    phases: pd.DataFrame
    links: pd.DataFrame
    totals: Totals
    hotspots: Hotspots
    findings: tuple[Finding, ...] = ()
    device: DeviceUse | None = None

    def group(self, by: str) -> pd.DataFrame:
        """The layers added up by ``function``, ``link``, ``block`` or ``shape``."""
        return group(self.layers, self.recording, by)

    def plot(self) -> LayerPlot:
        """The bar plot of the layers, which a notebook shows; its ``figure`` is Matplotlib's."""
        from chainer_profile.renderers.notebook_plot import LayerPlot

        return LayerPlot(self)

    def __str__(self) -> str:
        from chainer_profile.renderers.notebook_text import summary_text

        return summary_text(self)

    def __repr__(self) -> str:
        from chainer_profile.renderers.notebook_text import summary_line

        return summary_line(self)

    def _repr_html_(self) -> str:
        from chainer_profile.renderers.notebook_html import summary_html

        return summary_html(self)


def summarise(recording: Recording, hotspots: Rule | str = DEFAULT_RULE) -> Summary:
    """Fold a recording into statistics.

    Args:
        recording: A recording with at least one profiled trial.
        hotspots: Rule for hot layers (see :func:`chainer_profile.hotspots.parse_rule`).

    Raises:
        ProfileError: The recording holds no complete profiled trial.
        UsageError: The rule cannot be read.
    """
    if not recording.self_ns.size:
        raise ProfileError("the recording holds no complete profiled trial, so there is no result")
    rule = parse_rule(hotspots) if isinstance(hotspots, str) else hotspots
    layers = _layer_table(recording)
    found = find_hotspots(layers["mean_s"].to_numpy(), rule)
    layers["hot"] = found.hot
    summary = Summary(
        recording=recording,
        layers=layers,
        functions=group(layers, recording, "function"),
        phases=by_phase(layers, recording),
        links=link_tree(layers, recording),
        totals=_totals(recording, float(layers["mean_s"].sum())),
        hotspots=found,
        device=device_use(recording),
    )
    return replace(summary, findings=checks.check(summary))


def _layer_table(recording: Recording) -> pd.DataFrame:
    rows = [
        {
            "label": layer.label,
            "path": layer.path,
            "function": layer.function,
            "phase": layer.phase,
            "input_shapes": layer.input_shapes,
            "output_shapes": layer.output_shapes,
            "dtype": layer.dtype,
            "calls": layer.calls,
        }
        for layer in recording.layers
    ]
    # Column by column: a copy of all samples would double the memory of a long run.
    statistics = [
        describe(np.ascontiguousarray(recording.self_ns[:, index])) for index in range(len(rows))
    ]
    table = pd.DataFrame(rows).join(pd.DataFrame(statistics).rename(columns={"count": "trials"}))
    # As objects, so that None does not make the others floats.
    forward = pd.Series([layer.forward for layer in recording.layers], dtype=object)
    table.insert(table.columns.get_loc("calls") + 1, "forward", forward)
    table.index.name = "index"
    total = table["mean_s"].sum()
    table["share"] = table["mean_s"] / total if total else 0.0
    slowest_first = table["share"].sort_values(ascending=False, kind="stable")
    table["cumulative_share"] = slowest_first.cumsum()
    work = layer_work(recording, table["median_s"])
    return table.join(work).join(layer_memory(recording)).join(layer_device(recording))


def _totals(recording: Recording, layers_s: float) -> Totals:
    profiled = framework = None
    if recording.trial_ns is not None:
        profiled = describe(recording.trial_ns)
        framework = describe(recording.trial_ns - recording.self_ns.sum(axis=1))
    clean = describe(recording.clean_ns) if len(recording.clean_ns) else None
    trial = clean or profiled
    return Totals(
        layers_s=layers_s,
        profiled=profiled,
        clean=clean,
        framework=framework,
        overhead=_overhead(recording),
        fps=recording.settings.batchsize / trial.mean_s if trial and trial.mean_s else None,
    )


def _overhead(recording: Recording) -> Overhead | None:
    """Profiled over clean time, from neighbouring blocks, so that slow drift cancels.

    Clean and profiled trials alternate in blocks. Each clean block's median is compared with the
    median of the profiled trials next to it, half a block before and half a block behind; the
    median of these ratios is the result.
    """
    if recording.trial_ns is None or recording.start_ns is None or not len(recording.clean_ns):
        return None
    starts = np.concatenate([recording.start_ns, recording.clean_start_ns])
    times = np.concatenate([recording.trial_ns, recording.clean_ns])
    is_clean = np.repeat([False, True], [len(recording.start_ns), len(recording.clean_ns)])
    order = np.argsort(starts, kind="stable")
    times, is_clean = times[order], is_clean[order]
    edges = np.flatnonzero(np.diff(is_clean.astype(np.int8))) + 1
    blocks: list[NDArray[np.int64]] = np.split(times, edges)
    first_clean = 0 if is_clean[0] else 1
    ratios = []
    for at in range(first_clean, len(blocks), 2):
        before = blocks[at - 1] if at else blocks[at][:0]
        behind = blocks[at + 1] if at + 1 < len(blocks) else blocks[at][:0]
        # A block between two clean ones is shared by both: each takes its nearer half.
        before = before[len(before) // 2 :] if at > 1 else before
        behind = behind[: (len(behind) + 1) // 2] if at + 2 < len(blocks) else behind
        near = np.concatenate([before, behind])
        if len(near) and np.median(blocks[at]):
            ratios.append(float(np.median(near) / np.median(blocks[at])))
    if not ratios:
        return None
    added = np.array(ratios) - 1
    return Overhead(float(np.median(added)), *median_interval(added))
