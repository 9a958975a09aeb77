"""The types that :func:`.summaries.summarise` fills from a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chainer_profile.analyse.device_use import DeviceUse
from chainer_profile.analyse.findings import Finding
from chainer_profile.analyse.grouping import OUTSIDE, group
from chainer_profile.analyse.hotspots import Hotspots
from chainer_profile.analyse.inside import InsideParts
from chainer_profile.basics.describe import Statistics
from chainer_profile.basics.views import Displayable
from chainer_profile.record.recording import Recording


@dataclass(frozen=True)
class Overhead:
    """The time that the recorder adds to a trial."""

    fraction: float  #: Added time as a fraction of an unprofiled trial.
    low: float  #: Lower end of its 95 % interval; NaN for fewer than 6 pairs of blocks.
    high: float  #: Upper end.


@dataclass(frozen=True)
class Totals:
    """A trial as a whole; the means add up: ``layers_s + framework.mean_s = profiled.mean_s``."""

    #: Sum of the layers' mean self times, in seconds; None for inclusive times, which add up to no
    #: trial.
    layers_s: float | None
    #: Wall time of the profiled trials; None where only functions were timed.
    profiled: Statistics | None
    #: Wall time of the trials without hooks; None without such trials.
    clean: Statistics | None
    #: Framework time of the profiled trials; None where only functions were timed.
    framework: Statistics | None
    overhead: Overhead | None  #: None without profiled or unprofiled trials.
    #: Inputs per second in unprofiled trials (profiled ones without those), batch / mean.
    fps: float | None

    @property
    def trial(self) -> Statistics | None:
        """Statistics of the unprofiled trials, or else of the profiled ones, as in a program.

        Their median is the latency to quote.
        """
        return self.clean or self.profiled

    @property
    def framework_share(self) -> float | None:
        """Framework time as a fraction of a profiled trial."""
        if self.framework is None or self.profiled is None or not self.profiled.mean_s:
            return None
        return self.framework.mean_s / self.profiled.mean_s


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Displayable):
    """The content of all reports; a pure function of a recording and a rule for hotspots.

    Attributes:
        recording: The recording that it was made from.
        layers: One row per layer in the order of the calls, indexed by it. Columns: ``label``,
            ``path``, ``function``, ``phase``, ``input_shapes``, ``output_shapes``, ``dtype``,
            ``calls``, ``forward`` (index of the call that a backward goes back through, or None);
            ``trials`` and the statistics of the self time in seconds (``mean_s``, ``std_s``,
            ``ci_low_s``, ``ci_high_s``, ``min_s``, ``p5_s``, ``median_s``, ``p95_s``, ``p99_s``,
            ``max_s``); ``share``, its mean as a fraction of the mean trial;
            ``cumulative_share``, the same for this and all slower layers together; ``hot``;
            ``verdict`` (:func:`.verdicts.verdicts`); and the columns of
            :func:`.roofline.layer_work` (operations, bytes, limits), of
            :func:`.summaries.layer_memory` (allocated bytes, sizes of arrays), of
            :func:`.device_use.layer_device` (host and device of a GPU) and of
            :func:`.counted.layer_counters` (CPU time, page faults and so on).
        functions: One row per function name, slowest first; see :func:`.grouping.group`, which
            groups by link, block and shape as well (:meth:`group`).
        phases: One row per phase; they add up to the trial. See :func:`.grouping.phase_table`.
        links: The tree of links with inclusive and exclusive times; see
            :func:`.grouping.link_tree`.
        totals: A trial as a whole.
        hotspots: The rule, and the layers that it chose.
        findings: Things to know or to do; one list, which all reports show.
        device: How a trial uses the GPU; None for a run on the host.
        inside: Parts of the layers' and the framework's time; None without the pass inside layers.
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
    inside: InsideParts | None = None

    @property
    def phase_names(self) -> list[str]:
        """The phases of a trial, in the order in which they begin."""
        return [str(phase) for phase in self.phases.index if phase != OUTSIDE]

    @property
    def several_phases(self) -> bool:
        """Whether a trial has more than one phase."""
        return len(self.phase_names) > 1

    @property
    def slowest(self) -> pd.DataFrame:
        """The layers, slowest first."""
        return self.layers.sort_values("mean_s", ascending=False, kind="stable")

    @property
    def launch_bound(self) -> bool:
        """Whether launching sets the pace of a run on a GPU."""
        return self.device is not None and self.device.launch_bound

    def group(self, by: str) -> pd.DataFrame:
        """The layers added up by ``function``, ``link``, ``block`` or ``shape``."""
        return group(self.layers, self.recording, by)

    def plot(self) -> Any:
        """The bar plot of the layers, which a notebook shows; its ``figure`` is Matplotlib's."""
        return self.view("plot")

    def save(
        self,
        folder: str | Path,
        formats: Sequence[str] = (),
        *,
        title: str = "",
        author: str = "",
        course: str = "",
    ) -> list[Path]:
        """Write a run's files: the recording, tables, pictures, ``report.md``, ``report.html``.

        Args:
            folder: The folder, created if necessary. Files of an earlier save are replaced.
            formats: Additional files: ``json``, ``trace``, ``folded`` or ``all``.
            title: Title of the report.
            author: Who wrote it.
            course: The course it was written for.

        Returns:
            list[Path]: The files.

        Raises:
            UsageError: There is no such format, or somebody else's file has the name of one of
                these.
            ProfileError: A file cannot be written.
        """
        report_title = {"title": title, "author": author, "course": course}
        files: list[Path] = self.view("save", folder, formats, **report_title)
        return files
