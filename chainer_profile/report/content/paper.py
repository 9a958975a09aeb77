"""Summary -> the tables of a run for a paper or a thesis, by the names of their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_count, plural
from chainer_profile.report.columns import (
    PHASES,
    WHICH,
    group_columns,
    layer_columns,
    properties,
)
from chainer_profile.report.content.gpu_text import gpu_rows, on_gpu
from chainer_profile.report.content.layer_section import MAX_ROWS, SLOWEST
from chainer_profile.report.content.profile import experiment_rows
from chainer_profile.report.content.totals import total_rows
from chainer_profile.report.rows import group_rows, hot_marks, phase_rows, shortened
from chainer_profile.report.tables import Table
from chainer_profile.report.text import environment_rows, model_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.analyse.summary import Summary

#: Layers of the short table; functions of the table by function.
TOP, MAX_FUNCTIONS = 10, 20


def prefix(summary: Summary) -> str:
    """What tells the labels of one run from those of others: ``resnet20-b32-train``."""
    settings = summary.recording.settings
    phase = "" if settings.phase == "forward" else f"-{settings.phase}"
    return f"{model_name(settings)}-b{settings.batchsize}{phase}"


def tables(summary: Summary) -> Iterator[tuple[str, Table]]:
    """What was run and where, times, phases, functions, the slowest layers, all layers."""
    recording = summary.recording
    settings, of = recording.settings, f"of {model_name(recording.settings)}"
    experiment = experiment_rows(summary)
    if settings.command:
        experiment.append(("Command", settings.command))
    yield "experiment", properties(experiment, f"The experiment: profile {of}.")
    environment = environment_rows(recording.environment) + gpu_rows(recording)
    if environment:
        caption = f"Machine and software of the profile {of}."
        yield "environment", properties(environment, caption)
    yield "times", properties(total_rows(summary), f"A trial {of}.")
    if summary.several_phases:
        yield "phases", Table(PHASES, phase_rows(summary), f"Time by phase {of}.")
    yield (
        "functions",
        Table(
            group_columns("function", summary.phase_names),
            shortened(group_rows(summary, "function"), MAX_FUNCTIONS),
            f"Self time by function {of}{on_gpu(summary)}, in ms a trial.",
        ),
    )
    yield from _by_layer(summary, of)


def _by_layer(summary: Summary, of: str) -> Iterator[tuple[str, Table]]:
    """The slowest layers, and all of them, or the slowest of very many."""
    layers = summary.layers
    # As many as fit between the margins of the article class.
    keys = [*WHICH, "median", "ci", "share"]
    if not summary.has_intervals:
        keys.remove("ci")
    columns = layer_columns(keys, several_phases=summary.several_phases)
    count = format_count(len(layers))
    if len(layers) > TOP:
        caption = f"The {TOP} slowest of {count} layers {of}{on_gpu(summary)}."
        yield "slowest", Table(columns, list(summary.slowest.head(TOP).itertuples()), caption)
    shown, which = layers, f"All {plural(len(layers), 'layer')}"
    if len(layers) > MAX_ROWS:
        shown = layers.loc[summary.slowest.head(SLOWEST).index.sort_values()]
        which = f"The {SLOWEST} slowest of {count} layers"
    interval = (
        "± is half of the 95 % interval of the median."
        if summary.has_intervals
        else "the trials are too few for intervals."
    )
    caption = f"{which} {of}{on_gpu(summary)}; hot layers are bold, and {interval}"
    yield "layers", Table(columns, list(shown.itertuples()), caption, hot_marks(shown))
