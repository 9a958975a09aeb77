"""Summary -> ``report.md``: the report of an experiment, with everything computed from the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.renderers import csv, links_csv
from chainer_profile.renderers.gpu_text import gpu_rows, option_rows
from chainer_profile.renderers.markdown_syntax import bullets, code, link, properties, table, text
from chainer_profile.renderers.method import method_points
from chainer_profile.renderers.next_steps import next_steps
from chainer_profile.renderers.result_section import hotspots, result
from chainer_profile.renderers.rows import phases_of
from chainer_profile.renderers.text import (
    Row,
    environment_rows,
    gaps,
    input_text,
    interruption,
    mode_text,
    model_name,
    printable,
    trial_text,
    trials_text,
    versions,
    weights_text,
)
from chainer_profile.units import format_count, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.summaries import Summary


def render(
    summary: Summary,
    *,
    plot: str = "layers.png",
    table: str = "layers.csv",
    links: str = "links.csv",
    roofline: str = "roofline.png",
) -> str:
    """The report as Markdown (GitHub's tables).

    Args:
        summary: The summary of a run.
        plot: Address of the bar plot, as seen from the report.
        table: Address of the table of all layers, as seen from the report.
        links: Address of the table of all links, as seen from the report.
        roofline: Address of the roofline plot, as seen from the report.
    """
    parts = (
        _top(summary),
        _experiment(summary),
        _environment(summary),
        _method(summary),
        result(summary, plot=plot, roofline=roofline, layers=table, links=links),
        hotspots(summary),
        _next_steps(summary),
        _appendix(summary, table, links),
    )
    return "\n\n".join(block for part in parts for block in part) + "\n"


def _top(summary: Summary) -> Iterator[str]:
    recording = summary.recording
    yield f"# Layer-wise profile of {text(model_name(recording.settings))}"
    for sentence in (*interruption(recording), *gaps(recording)):
        yield f"> **Note:** {text(sentence)}"


def _experiment(summary: Summary) -> Iterator[str]:
    recording = summary.recording
    settings = recording.settings
    yield "## 1 Experiment"
    yield properties(
        (
            ("Network", f"{model_name(settings)}, {weights_text(settings)}"),
            ("Trial", trial_text(recording)),
            _rows_of(summary),
            ("Input", input_text(settings)),
            ("Batch", plural(settings.batchsize, "image")),
            ("Device", settings.device),
            ("Mode", mode_text(settings)),
            *option_rows(settings),
            ("Trials", trials_text(recording)),
        ),
    )
    what = "each function call of the network takes"
    if len(phases_of(summary)) > 1:
        what = "each function takes in each phase of a trial"
    whole = ", and how long a whole trial takes" if recording.trial_ns is not None else ""
    yield f"Measured was how long {what}{whole}."
    yield _mode_sentence(summary)


def _rows_of(summary: Summary) -> Row:
    """The number of layers, and of each phase where there are several."""
    layers = summary.layers
    if len(phases_of(summary)) == 1:
        return "Function calls", format_count(len(layers))
    counts = layers["phase"].value_counts(sort=False)
    phases = ", ".join(f"{format_count(int(n))} {phase}" for phase, n in counts.items())
    return "Layers", f"{format_count(len(layers))}: {phases}"


def _mode_sentence(summary: Summary) -> str:
    settings = summary.recording.settings
    training = len(phases_of(summary)) > 1 or settings.phase != "forward"
    if training and settings.train_mode:
        return (
            "The network ran in train mode (`chainer.config.train` was on), as training does: "
            "batch normalisation computes the statistics of the batch, dropout drops, and the "
            "forward pass keeps what the backward pass needs. These are not the times of inference."
        )
    if training:
        return "The network ran in test mode (`chainer.config.train` was off)."
    if settings.train_mode:
        return (
            "The network ran on purpose in train mode (`chainer.config.train` was on): batch "
            "normalisation computes the statistics of the batch and dropout drops. Inference is "
            "test mode, so these are not the times of inference."
        )
    fixed = "FixedBatchNormalization" in summary.functions.index
    return (
        "The network ran as in inference: in test mode (`chainer.config.train` was off) and "
        "without backprop"
        + (
            ", so batch normalisation used its stored averages (`FixedBatchNormalization`)."
            if fixed
            else "."
        )
    )


def _environment(summary: Summary) -> Iterator[str]:
    yield "## 2 Environment"
    rows = environment_rows(summary.recording.environment) + gpu_rows(summary.recording)
    yield properties(rows) if rows else "Nothing was recorded about the machine."


def _method(summary: Summary) -> Iterator[str]:
    yield "## 3 Method"
    yield from _command(summary)
    yield bullets(method_points(summary))


def _command(summary: Summary) -> Iterator[str]:
    command = printable(summary.recording.settings.command)
    if command:
        yield code(command)
    else:
        yield "The run was not started by a command line."


def _next_steps(summary: Summary) -> Iterator[str]:
    yield "## 6 What to do next"
    yield bullets(map(text, next_steps(summary)))
    if summary.findings:
        yield "What the checks of this run found:"
        yield bullets(
            f"**{text(finding.severity)}**: {text(finding.text)} {text(finding.advice)}"
            for finding in summary.findings
        )


def _appendix(summary: Summary, layers: str, links: str) -> Iterator[str]:
    yield "## 7 Appendix"
    yield (
        f"All layers with all digits are in {link(layers)}. "
        "Its columns (times are self times in milliseconds over the profiled trials):"
    )
    yield _meanings(csv.COLUMNS)
    yield (
        f"All links are in {link(links)}. Its columns (times are means in milliseconds over the "
        "profiled trials):"
    )
    yield _meanings(links_csv.COLUMNS)
    yield from _command(summary)
    software = versions(summary.recording.environment)
    if software:
        yield f"Versions: {text(', '.join(software))}."


def _meanings(columns: dict[str, str]) -> str:
    rows = [(f"`{name}`", text(meaning)) for name, meaning in columns.items()]
    return table(("column", "meaning"), rows)
