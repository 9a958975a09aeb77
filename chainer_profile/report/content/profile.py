"""Summary -> the blocks of the report of an experiment, everything in it computed from the run.

Its parts are those that a course asks for: what was run, where, how, what came out, what to do
next, and an appendix with the command, the versions and the long tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from chainer_profile.analyse.findings import NOTE, STEP, WARNING
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
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from chainer_profile.advice.results import Advice
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.budget import Budget
    from chainer_profile.report.document import Block, Words

    #: Sections that a form of the report shows in a way of its own.
    Own = Mapping[str, Callable[[], Iterable[Block]]]

_BY_LAYER = "By layer"
_WORK_BY_LAYER = "Work and memory by layer"
_LONG = (_BY_LAYER, _WORK_BY_LAYER)
#: The sections of the result.
_RESULT = (
    *("On the GPU", "By phase", "The layers", "Hotspots", "By function", "Inside the layers"),
    *("By block", "By link", "Work and limits", "CPU time and page faults", "Memory", "By node"),
)
_NOTHING = "All layers took less than the clock can show, so nothing follows from this run."
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
    """What was tried on a run's network, and the time of the program that it is of, if known."""

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
    advice, budget = (beside.advice, beside.budget) if beside else (None, None)
    found = sections(summary, (*_RESULT, _BY_LAYER, _WORK_BY_LAYER))
    long = [name for name in found if name in _LONG or _is_long(found[name])]
    # What a PDF has no room for is in the CSV.
    appended = _under(found, [name for name in long if files or name != _WORK_BY_LAYER])
    parts: list[Block] = [
        Heading(1, heading_text(summary, title, budget)),
        *([Lines(by_whom)] if by_whom else []),
        *(program(budget, summary) if budget is not None else []),
        *answer(summary, advice),
        Heading(2, "1 Experiment description"),
        *experiment(summary),
        Heading(2, "2 Environment"),
        *environment(summary),
        Heading(2, "3 Methodology"),
        command(summary),
        *method(summary),
        Heading(2, "4 Result"),
        *whole_trial(summary),
        *_under(found, [name for name in found if name not in long]),
        Heading(2, "5 Next step for improvement"),
        *(list(steps(summary)) or [text(_NOTHING)]),
        *_checked(summary),
        *([Heading(3, "What was tried"), *tried(advice)] if advice is not None else []),
        Heading(2, "6 Appendix"),
        Heading(3, "Command and versions"),
        *command_and_versions(summary),
        # What is short comes before the long tables.
        *(appended if files else ()),
        *_files(columns=files),
        *(() if files else appended),
    ]
    return list(numbered(parts))


def sections(
    summary: Summary, names: Iterable[str], own: Own = MappingProxyType({})
) -> dict[str, list[Block]]:
    """The sections of these names, in this order, without those that have nothing to say.

    Args:
        summary: The summary of a run.
        names: Those that a form of the report has.
        own: What it shows in a way of its own.
    """
    made = {name: list(own[name]() if name in own else _SECTIONS[name](summary)) for name in names}
    return {name: found for name, found in made.items() if found}


def _under(sections: Mapping[str, list[Block]], names: Iterable[str]) -> list[Block]:
    return [block for name in names for block in (Heading(3, name), *sections[name])]


def _is_long(blocks: Iterable[Block]) -> bool:
    return any(isinstance(block, Table) and len(block.rows) > _MAX_ROWS for block in blocks)


def _layers(summary: Summary) -> Iterator[Block]:
    yield from bars(summary)
    which = "all layers" if len(summary.layers) <= MAX_ROWS else "the slowest layers"
    yield text(f"The appendix has a table of {which}.")


def experiment(summary: Summary) -> Iterator[Block]:
    """What was measured, of what, and in which mode."""
    recording = summary.recording
    settings = recording.settings
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


def environment(summary: Summary) -> Iterator[Block]:
    """The machine and its software."""
    rows = environment_rows(summary.recording.environment) + gpu_rows(summary.recording)
    if rows:
        yield properties(rows, "The machine and its software")
    else:
        yield text("Nothing was recorded about the machine.")


def command(summary: Summary) -> Block:
    """What makes the run again."""
    said = printable(summary.recording.settings.command)
    return Code(said) if said else text("The run was not started by a command line.")


def method(summary: Summary) -> Iterator[Block]:
    """How it was measured."""
    yield points(method_points(summary))


def steps(summary: Summary) -> Iterator[Block]:
    """What to do next, with the numbers that it follows from."""
    found = [finding_words(one, full=True) for one in summary.findings if one.severity == STEP]
    if found:
        yield points(found)


def checks(summary: Summary, severities: Sequence[str]) -> Iterator[Block]:
    """What else was found."""
    found = [
        (strong(one.severity), ": ", *finding_words(one, full=True))
        for one in summary.findings
        if one.severity in severities
    ]
    if found:
        yield points(found)


def _checked(summary: Summary) -> Iterator[Block]:
    found = list(checks(summary, (WARNING, NOTE)))
    if found:
        yield text("What the checks of this run found:")
        yield from found


def command_and_versions(summary: Summary) -> Iterator[Block]:
    """What makes the run again, and with which software."""
    yield command(summary)
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


#: The sections that all forms of a run's report choose from.
_SECTIONS: dict[str, Callable[[Summary], Iterable[Block]]] = {
    "What to do next": steps,
    "A trial as a whole": whole_trial,
    "By phase": phases,
    "The layers": _layers,
    "Hotspots": hotspots,
    "By function": by_function,
    "By block": by_block,
    "By link": by_link,
    "Inside the layers": inside,
    "On the GPU": device,
    "Work and limits": work,
    "CPU time and page faults": counters,
    "Memory": memory,
    "By node": by_node,
    _BY_LAYER: by_layer,
    _WORK_BY_LAYER: work_by_layer,
    "Experiment": experiment,
    "Environment": environment,
    "Method": method,
    "Command and versions": command_and_versions,
}
