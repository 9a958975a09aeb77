"""Summary -> the blocks of the report of an experiment, everything in it computed from the run.

Its parts are those that a course asks for: what was run, where, how, what came out, what to do
next, and an appendix with the command, the versions and the long tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_count, plural
from chainer_profile.report import csv_file as csv
from chainer_profile.report import layer_columns, links_csv
from chainer_profile.report.content.engine_words import engine_text
from chainer_profile.report.content.gpu_text import gpu_rows, option_rows
from chainer_profile.report.content.layer_section import MAX_ROWS
from chainer_profile.report.content.method import method_points
from chainer_profile.report.content.next_steps import next_steps
from chainer_profile.report.content.result_section import hotspots, result
from chainer_profile.report.document import Block, Heading, Table, Text, numbered, read_blocks
from chainer_profile.report.document import sections as by_section
from chainer_profile.report.markdown_syntax import (
    bullets,
    code,
    columns_table,
    link,
    properties,
    table,
    text,
)
from chainer_profile.report.rows import phases_of
from chainer_profile.report.text import (
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chainer_profile.analyse.summary import Summary

#: Hot layers that the result lists; the appendix has them all.
MAX_HOT = 20
_APPENDIX = "6 Appendix"
_LAYERS, _BY_LAYER, _WORK_BY_LAYER = "The layers", "By layer", "Work and memory by layer"
_HOTSPOTS = "Hotspots"
#: The sections of the result in their order; others come behind them, long ones in the appendix.
_RESULT = (
    "Kinds of trials",
    "On the GPU",
    "By phase",
    _LAYERS,
    _HOTSPOTS,
    "By function",
    "By block",
    "By link",
)
_LONG = (_BY_LAYER, _WORK_BY_LAYER)
#: A section whose table has more rows than this is for the appendix too.
_MAX_ROWS = 60
_CAPTIONS = {
    ("1 Experiment description", ""): "The experiment",
    ("2 Environment", ""): "The machine and its software",
    ("4 Result", ""): "A trial as a whole",
    ("On the GPU", ""): "A trial on the host and on the GPU",
    ("On the GPU", "phase"): "The phases on the GPU",
    ("Kinds of trials", "kind"): "The kinds of trials",
    ("By phase", "phase"): "Time by phase",
    ("By function", "function"): "Self time by function",
    ("By block", "block"): "Self time by block",
    ("By link", "link"): "Inclusive and exclusive time by link",
    ("Work and limits", "function"): "Work and what it reaches, by function",
    ("Memory", "phase"): "Memory by phase",
    ("Memory", "#"): "The layers with the highest peaks of memory",
    (_BY_LAYER, "#"): "Self time by layer",
    (_WORK_BY_LAYER, "#"): "Work and memory by layer",
    (_HOTSPOTS, "phase"): "Hot layers by phase",
    (_HOTSPOTS, "function"): "Hot layers by function",
    (_HOTSPOTS, "part of the network"): "Hot layers by part of the network",
}


@dataclass(frozen=True)
class ReportTitle:
    """What a report says of itself; nothing is printed for what is empty.

    Attributes:
        title: Its title; empty takes the network's name.
        author: Who wrote it.
        course: What it was written for.
        date: Its date, in the words of the writer.
    """

    title: str = ""
    author: str = ""
    course: str = ""
    date: str = ""

    def rows(self) -> list[Row]:
        """Author, course and date with their names, without what is empty."""
        rows = (("Author", self.author), ("Course", self.course), ("Date", self.date))
        return [(name, printable(value.strip())) for name, value in rows if value.strip()]


def heading_text(summary: Summary, title: ReportTitle) -> str:
    """The report's title, on one line."""
    given = printable(title.title.strip())
    return given or f"Layer-wise profile of {model_name(summary.recording.settings)}"


def blocks(
    summary: Summary,
    title: ReportTitle,
    *,
    plot: str,
    table: str,
    links: str,
    roofline: str,
    files: bool = True,
) -> list[Block]:
    """The report without its title and author, its tables and figures numbered.

    Args:
        summary: The summary of a run.
        title: What the report says of itself.
        plot: Address of the bar plot, as seen from the report.
        table: Address of the table of all layers.
        links: Address of the table of all links.
        roofline: Address of the roofline plot.
        files: Explain the columns of the two tables in the appendix.
    """
    body, long = _result(summary, plot=plot, roofline=roofline, layers=table, links=links)
    parts: list[Block] = [
        *_read(_notes(summary)),
        *_read(_experiment(summary)),
        *_read(_environment(summary)),
        *_read(_method(summary)),
        *body,
        *_read(_next_steps(summary)),
        *_read(_command_and_versions(summary)),
        # What is short comes before the long tables.
        *(long if files else ()),
        *_files(table, links, columns=files),
        *(() if files else long),
    ]
    return list(numbered(parts))


def _read(markdown: Iterable[str]) -> list[Block]:
    return read_blocks(markdown, _CAPTIONS)


def _notes(summary: Summary) -> Iterator[str]:
    recording = summary.recording
    for sentence in (*interruption(recording), *gaps(recording)):
        yield f"> **Note:** {text(sentence)}"


def _experiment(summary: Summary) -> Iterator[str]:
    recording = summary.recording
    settings = recording.settings
    yield "## 1 Experiment description"
    what = "each function call of the network takes"
    if len(phases_of(summary)) > 1:
        what = "each function takes in each phase of a trial"
    engine = engine_text(settings) if settings.engine else ""
    if engine:
        what = f"each node of {engine} takes"
    whole = ", and how long a whole trial takes" if recording.trial_ns is not None else ""
    yield f"Measured was how long {what}{whole}."
    yield properties(
        (
            ("Network", f"{model_name(settings)}, {weights_text(settings)}"),
            ("Trial", trial_text(recording)),
            _rows_of(summary),
            ("Input", input_text(settings)),
            ("Batch", plural(settings.batchsize, "image")),
            *((("Engine", engine),) if engine else ()),
            ("Device", settings.device),
            ("Mode", mode_text(settings)),
            *option_rows(settings),
            ("Trials", trials_text(recording)),
        ),
    )
    yield _mode_sentence(summary)


def _rows_of(summary: Summary) -> Row:
    """The number of layers, and of each phase where there are several."""
    layers = summary.layers
    if len(phases_of(summary)) == 1:
        engine = summary.recording.settings.engine
        return "Nodes" if engine else "Function calls", format_count(len(layers))
    counts = layers["phase"].value_counts(sort=False)
    phases = ", ".join(f"{format_count(int(n))} {phase}" for phase, n in counts.items())
    return "Layers", f"{format_count(len(layers))}: {phases}"


def _mode_sentence(summary: Summary) -> str:
    settings = summary.recording.settings
    if settings.engine:
        return "The engine computed what the network gives in inference."
    if settings.with_graph:
        mode = "train mode" if settings.train_mode else "test mode"
        return (
            f"The network ran in {mode} and with backprop (`chainer.config.enable_backprop` was "
            "on), for its forward takes gradients and fails without."
        )
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
    yield "## 3 Methodology"
    yield from _command(summary)
    yield bullets(method_points(summary))


def _command(summary: Summary) -> Iterator[str]:
    command = printable(summary.recording.settings.command)
    if command:
        yield code(command)
    else:
        yield "The run was not started by a command line."


def _result(
    summary: Summary, *, plot: str, roofline: str, layers: str, links: str
) -> tuple[list[Block], list[Block]]:
    """The part of the results, and the long tables by layer, which are for the appendix."""
    markdown = result(summary, plot=plot, roofline=roofline, layers=layers, links=links)
    first, *rest = _read(markdown)
    # The plot stands in the result, its table in the appendix.
    found = by_section(rest)
    by_layer = found[_BY_LAYER]
    found[_LAYERS] = [
        *by_layer[:1],
        Text(f"The appendix has a table of {_which_layers(summary)}."),
    ]
    found[_BY_LAYER] = by_layer[1:]
    _, *hot = hotspots(summary)
    found[_HOTSPOTS] = _with_hot_layers(summary, _read([f"### {_HOTSPOTS}", *hot])[1:])
    long = [name for name in found if name in _LONG or _is_long(found[name])]
    order = [name for name in _RESULT if name in found]
    order += [name for name in found if name and name not in _RESULT]
    order = [name for name in order if name not in long]
    return [first, *found[""], *_joined(found, order)], list(_joined(found, long))


def _is_long(blocks: Iterable[Block]) -> bool:
    tables = (block.markdown for block in blocks if isinstance(block, Table))
    return any(markdown.count("\n") - 1 > _MAX_ROWS for markdown in tables)


def _which_layers(summary: Summary) -> str:
    return "all layers" if len(summary.layers) <= MAX_ROWS else "the slowest layers"


def _joined(found: dict[str, list[Block]], names: Iterable[str]) -> Iterator[Block]:
    for name in names:
        yield Heading(3, name)
        yield from found[name]


def _with_hot_layers(summary: Summary, blocks: list[Block]) -> list[Block]:
    """The section of hotspots, the hot layers themselves before their sums."""
    hot = summary.layers[summary.layers["hot"]]
    if hot.empty:
        return blocks
    slowest = hot.sort_values("median_s", ascending=False, kind="stable").head(MAX_HOT)
    keys = [*layer_columns.WHICH, "median", "interval", "share", "cumulative_share"]
    if hot["ci_low_s"].isna().all():
        keys.remove("interval")
    columns = layer_columns.columns(keys, several_phases=len(phases_of(summary)) > 1)
    shown = columns_table(columns, list(slowest.itertuples()))
    # The rank is the first column: the number of a layer says when it is called.
    head, rule, *rows = shown.splitlines()
    ranked = [f"| {rank} {row}" for rank, row in enumerate(rows, 1)]
    caption = (
        f"The {format_count(len(slowest))} slowest of {plural(len(hot), 'hot layer')}"
        if len(slowest) < len(hot)
        else "The hot layers, slowest first"
    )
    listed = Table("\n".join([f"| rank {head}", f"| ---: {rule}", *ranked]), caption)
    at = next((i for i, block in enumerate(blocks) if isinstance(block, Table)), len(blocks))
    return [*blocks[:at], listed, *blocks[at:]]


def _next_steps(summary: Summary) -> Iterator[str]:
    yield "## 5 Next step for improvement"
    yield bullets(map(text, next_steps(summary)))
    if summary.findings:
        yield "What the checks of this run found:"
        yield bullets(
            f"**{text(finding.severity)}**: {text(finding.text)} {text(finding.advice)}"
            for finding in summary.findings
        )


def _command_and_versions(summary: Summary) -> Iterator[str]:
    yield f"## {_APPENDIX}"
    yield "### Command and versions"
    yield from _command(summary)
    software = versions(summary.recording.environment)
    if software:
        yield f"Versions: {text(', '.join(software))}."


def _files(layers: str, links: str, *, columns: bool) -> Iterator[Block]:
    yield Heading(3, "Files beside this report")
    if not columns:
        yield Text(
            f"All layers with all digits are in {link(layers)}, all links in {link(links)}; "
            "`recording.npz` holds every trial."
        )
        return
    yield Text(
        f"All layers with all digits are in {link(layers)}. "
        "Its columns (times are self times in milliseconds over the profiled trials):"
    )
    yield Table(_meanings(csv.COLUMNS), f"The columns of {text(layers)}")
    yield Text(
        f"All links are in {link(links)}. Its columns (times are means in milliseconds over the "
        "profiled trials):"
    )
    yield Table(_meanings(links_csv.COLUMNS), f"The columns of {text(links)}")


def _meanings(columns: dict[str, str]) -> str:
    rows = [(f"`{name}`", text(meaning)) for name, meaning in columns.items()]
    return table(("column", "meaning"), rows)
