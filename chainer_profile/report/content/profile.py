"""Summary -> the blocks of the report of an experiment, everything in it computed from the run.

Its parts are those that a course asks for: what was run, where, how, what came out, what to do
next, and an appendix with the command, the versions and the long tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.analyse.findings import STEP
from chainer_profile.basics.units import format_count, plural
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, properties
from chainer_profile.report.content.advice import section as tried
from chainer_profile.report.content.answer import answer, finding_words
from chainer_profile.report.content.budget import script_name
from chainer_profile.report.content.budget import section as program
from chainer_profile.report.content.counters_section import counters
from chainer_profile.report.content.device_section import device
from chainer_profile.report.content.gpu_text import gpu_rows, option_rows
from chainer_profile.report.content.inside_section import inside
from chainer_profile.report.content.layer_section import (
    MAX_ROWS,
    bars,
    by_layer,
    by_node,
    work_by_layer,
)
from chainer_profile.report.content.memory_section import memory
from chainer_profile.report.content.method import method_points
from chainer_profile.report.content.result_section import (
    by_block,
    by_function,
    by_link,
    hotspots,
    phases,
    whole_trial,
)
from chainer_profile.report.content.work_section import work
from chainer_profile.report.document import (
    LAYERS,
    LINKS,
    Code,
    Heading,
    Lines,
    Text,
    code,
    file,
    numbered,
    points,
    strong,
    text,
)
from chainer_profile.report.tables import Column, Table, columns
from chainer_profile.report.text import (
    Row,
    engine_text,
    environment_rows,
    input_text,
    mode_text,
    model_name,
    printable,
    trial_text,
    trials_text,
    versions,
    weights_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from chainer_profile.advice.results import Advice
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.budget import Budget
    from chainer_profile.report.document import Block, Words

_BY_LAYER = "By layer"
_WORK_BY_LAYER = "Work and memory by layer"
_LONG = (_BY_LAYER, _WORK_BY_LAYER)
#: A section whose table has more rows than this is for the appendix too.
_MAX_ROWS = 60


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


@dataclass(frozen=True)
class Beside:
    """What there is in a run's folder beside its recording.

    Attributes:
        advice: What was tried on its network; None where nothing was.
        budget: The time of the whole program that it is of; None for a run that was nothing else.
    """

    advice: Advice | None = None
    budget: Budget | None = None


def heading_text(summary: Summary, title: ReportTitle, budget: Budget | None = None) -> str:
    """The report's title, on one line; it names the program that the run is of, if there is one."""
    given = printable(title.title.strip())
    return given or f"Layer-wise profile of {subject(summary, budget)}"


def subject(summary: Summary, budget: Budget | None = None) -> str:
    """The network, or the program and its network."""
    model = model_name(summary.recording.settings)
    return model if budget is None else f"{script_name(budget)} ({model})"


def report(
    summary: Summary,
    title: ReportTitle | None = None,
    *,
    files: bool = True,
    beside: Beside | None = None,
) -> list[Block]:
    """The report, its tables and figures numbered.

    Args:
        summary: The summary of a run.
        title: What the report says of itself.
        files: Explain the columns of the two tables beside it in the appendix.
        beside: What else is known.
    """
    title = title or ReportTitle()
    by_whom = title.rows()
    sections = _sections(summary)
    advice, budget = (beside.advice, beside.budget) if beside else (None, None)
    long = [name for name in sections if name in _LONG or _is_long(sections[name])]
    # What a PDF has no room for is in the CSV.
    appended = _under(sections, [name for name in long if files or name != _WORK_BY_LAYER])
    parts: list[Block] = [
        Heading(1, heading_text(summary, title, budget)),
        *([Lines(by_whom)] if by_whom else []),
        *(program(budget, summary) if budget is not None else []),
        *answer(summary, advice),
        *_experiment(summary),
        *_environment(summary),
        *_method(summary),
        Heading(2, "4 Result"),
        *whole_trial(summary),
        *_under(sections, [name for name in sections if name not in long]),
        *_next_steps(summary),
        *([Heading(3, "What was tried"), *tried(advice)] if advice is not None else []),
        *_command_and_versions(summary),
        # What is short comes before the long tables.
        *(appended if files else ()),
        *_files(columns=files),
        *(() if files else appended),
    ]
    return list(numbered(parts))


def _sections(summary: Summary) -> dict[str, list[Block]]:
    """The sections of the result in their order, without those that have nothing to say."""
    sections = {
        "On the GPU": device(summary),
        "By phase": phases(summary),
        "The layers": _layers(summary),
        "Hotspots": hotspots(summary),
        "By function": by_function(summary),
        "Inside the layers": inside(summary),
        "By block": by_block(summary),
        "By link": by_link(summary),
        "Work and limits": work(summary),
        "CPU time and page faults": counters(summary),
        "Memory": memory(summary),
        "By node": by_node(summary),
        "By layer": by_layer(summary),
        _WORK_BY_LAYER: work_by_layer(summary),
    }
    made = {name: list(found) for name, found in sections.items()}
    return {name: found for name, found in made.items() if found}


def _under(sections: Mapping[str, list[Block]], names: Iterable[str]) -> list[Block]:
    return [block for name in names for block in (Heading(3, name), *sections[name])]


def _is_long(blocks: Iterable[Block]) -> bool:
    return any(isinstance(block, Table) and len(block.rows) > _MAX_ROWS for block in blocks)


def _layers(summary: Summary) -> Iterator[Block]:
    yield from bars(summary)
    which = "all layers" if len(summary.layers) <= MAX_ROWS else "the slowest layers"
    yield text(f"The appendix has a table of {which}.")


def _experiment(summary: Summary) -> Iterator[Block]:
    recording = summary.recording
    settings = recording.settings
    yield Heading(2, "1 Experiment description")
    what = "each function call of the network takes"
    if summary.several_phases:
        what = "each function takes in each phase of a trial"
    engine = engine_text(settings) if settings.engine else ""
    if engine:
        what = f"each node of {engine} takes"
    whole = ", and how long a whole trial takes" if recording.trial_ns is not None else ""
    yield text(f"Measured was how long {what}{whole}.")
    yield properties(experiment_rows(summary), "The experiment")
    yield Text(_mode_sentence(summary))


def experiment_rows(summary: Summary) -> list[Row]:
    """What was run and how, one row each."""
    recording = summary.recording
    settings = recording.settings
    network, example = f"{model_name(settings)}, {weights_text(settings)}", "image"
    if recording.of_program:  # a program's: nobody asked for weights, or for a batch
        network, example = model_name(settings), "example"
    rows = [
        ("Network", network),
        ("Trial", trial_text(recording)),
        _rows_of(summary),
        ("Input", input_text(settings)),
        ("Batch", plural(settings.batchsize, example)),
        ("Engine", engine_text(settings) if settings.engine else ""),
        ("Device", settings.device),
        ("Mode", mode_text(settings)),
        *option_rows(settings),
        ("Trials", trials_text(recording)),
    ]
    return [(name, printable(value)) for name, value in rows if value]


def _rows_of(summary: Summary) -> Row:
    """The number of layers, and of each phase where there are several."""
    layers = summary.layers
    if not summary.several_phases:
        engine = summary.recording.settings.engine
        return "Nodes" if engine else "Function calls", format_count(len(layers))
    counts = layers["phase"].value_counts(sort=False)
    phases = ", ".join(f"{format_count(int(n))} {phase}" for phase, n in counts.items())
    return "Layers", f"{format_count(len(layers))}: {phases}"


def _mode_sentence(summary: Summary) -> Words:
    settings = summary.recording.settings
    if settings.engine:
        return ("The engine computed what the network gives in inference.",)
    train = code("chainer.config.train")
    if settings.with_graph:
        mode = "train mode" if settings.train_mode else "test mode"
        return (
            f"The network ran in {mode} and with backprop (",
            code("chainer.config.enable_backprop"),
            " was on), for its forward takes gradients and fails without.",
        )
    training = summary.several_phases or settings.phase != "forward"
    if training and settings.train_mode:
        return (
            "The network ran in train mode (",
            train,
            " was on), as training does: batch normalisation computes the statistics of the batch, "
            "dropout drops, and the forward pass keeps what the backward pass needs. These are not "
            "the times of inference.",
        )
    if training:
        return "The network ran in test mode (", train, " was off)."
    if settings.train_mode:
        return (
            "The network ran on purpose in train mode (",
            train,
            " was on): batch normalisation computes the statistics of the batch and dropout drops. "
            "Inference is test mode, so these are not the times of inference.",
        )
    said: Words = (
        "The network ran as in inference: in test mode (",
        train,
        " was off) and without backprop",
    )
    if "FixedBatchNormalization" in summary.functions.index:
        fixed = code("FixedBatchNormalization")
        return *said, ", so batch normalisation used its stored averages (", fixed, ")."
    return *said, "."


def _environment(summary: Summary) -> Iterator[Block]:
    yield Heading(2, "2 Environment")
    rows = environment_rows(summary.recording.environment) + gpu_rows(summary.recording)
    if rows:
        yield properties(rows, "The machine and its software")
    else:
        yield text("Nothing was recorded about the machine.")


def _method(summary: Summary) -> Iterator[Block]:
    yield Heading(2, "3 Methodology")
    yield _command(summary)
    yield points(method_points(summary))


def _command(summary: Summary) -> Block:
    command = printable(summary.recording.settings.command)
    return Code(command) if command else text("The run was not started by a command line.")


def _next_steps(summary: Summary) -> Iterator[Block]:
    yield Heading(2, "5 Next step for improvement")
    found = summary.findings
    steps = [finding_words(one, full=True) for one in found if one.severity == STEP]
    yield (
        points(steps)
        if steps
        else text("All layers took less than the clock can show, so nothing follows from this run.")
    )
    checked = [
        (strong(one.severity), ": ", *finding_words(one, full=True))
        for one in found
        if one.severity != STEP
    ]
    if checked:
        yield text("What the checks of this run found:")
        yield points(checked)


def _command_and_versions(summary: Summary) -> Iterator[Block]:
    yield Heading(2, "6 Appendix")
    yield Heading(3, "Command and versions")
    yield _command(summary)
    software = versions(summary.recording.environment)
    if software:
        yield text(f"Versions: {', '.join(software)}.")


def _files(*, columns: bool) -> Iterator[Block]:
    yield Heading(3, "Files beside this report")
    if not columns:
        yield text(
            "All layers with all digits are in ",
            file(LAYERS),
            ", all links in ",
            file(LINKS),
            "; ",
            code("recording.npz"),
            " holds every trial.",
        )
        return
    yield text(
        "All layers with all digits are in ",
        file(LAYERS),
        ". Its columns (times are self times in milliseconds over the profiled trials):",
    )
    yield _meanings(LAYER_COLUMNS, LAYERS)
    yield text(
        "All links are in ",
        file(LINKS),
        ". Its columns (times are means in milliseconds over the profiled trials):",
    )
    yield _meanings(LINK_COLUMNS, LINKS)


_MEANINGS = columns("csv | column | code\nmeaning | | text")


def _meanings(described: Mapping[str, Column], name: str) -> Table:
    rows = [column for column in described.values() if column.csv]
    return Table(_MEANINGS, rows, f"The columns of {name}")
