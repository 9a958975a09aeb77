"""Summary -> the blocks of a run's page: the answer first, then its picture and the hot layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.analyse.findings import NOTE, WARNING
from chainer_profile.basics.units import format_percent
from chainer_profile.report.columns import (
    ABOUT,
    LAYER_COLUMNS,
    layer_columns,
    tree_columns,
)
from chainer_profile.report.content import boxes
from chainer_profile.report.content.advice import section as tried
from chainer_profile.report.content.answer import answer
from chainer_profile.report.content.budget import section as program
from chainer_profile.report.content.layer_section import bars
from chainer_profile.report.content.memory_section import memory
from chainer_profile.report.content.profile import sections, subject
from chainer_profile.report.content.result_section import (
    whole_trial,
)
from chainer_profile.report.content.spreads import spreads
from chainer_profile.report.document import (
    HOT,
    MEMORY,
    Figure,
    Fold,
    Heading,
    Lines,
    Text,
    strong,
    text,
)
from chainer_profile.report.rows import hot_marks, layer_anchor, link_anchor, tree_rows
from chainer_profile.report.tables import Table, with_content
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.content.profile import Beside, Own
    from chainer_profile.report.document import Block
    from chainer_profile.report.tables import Column

_HOTTEST = 8
#: Links deeper than any.
_ALL_LEVELS = 10**9
#: Columns of the two tables of layers.
_HOT_COLUMNS = ("path", "median", "share", "function", "phase")
_COLUMNS = (
    *("index", "path", "function", "phase", "median", "interval", "share", "verdict"),
    *("mean", "p5", "p95", "std", "calls", "output_shapes", "host", "gap", "busy"),
    *("flops", "moved", "intensity", "gflops", "gbytes", "reached"),
    *("peak", "workspace", "retained"),
)
#: Those that are there whatever they say.
_ALWAYS = ("index", "path", "function", "phase")
#: The sections below the first screen.
_SECTIONS = (
    *("What to do next", "What was tried", "A trial as a whole", "By phase", "All layers"),
    *("By function", "By block", "Tree of links", "In time", "Hotspots", "On the GPU"),
    *("Work and limits", "CPU time and page faults", "Inside the layers", "Memory", "Experiment"),
    *("Environment", "Method", "Command and versions", "Columns"),
)


def page(summary: Summary, beside: Beside | None = None) -> Iterator[Block]:
    """The page of a run: what a reader wants first comes first."""
    advice, budget = (None, None) if beside is None else (beside.advice, beside.budget)
    yield Heading(1, subject(summary, budget))
    if budget is not None:
        yield from boxes.program(budget)
        yield from program(budget, summary)
        yield Heading(2, "A trial")
    said = list(answer(summary, advice))
    yield from (block for block in said if not block.note)
    yield from bars(summary)
    yield _hottest(summary)
    yield from _found(summary, [block for block in said if block.note])
    own: Own = {
        "What was tried": lambda: tried(advice) if advice is not None else (),
        "A trial as a whole": lambda: [*boxes.parts(summary), *whole_trial(summary)],
        "All layers": lambda: _layers(summary),
        "Tree of links": lambda: _links(summary),
        "In time": lambda: boxes.timeline(summary),
        "Memory": lambda: _memory(summary),
        "Columns": lambda: [_glossary(summary)],
    }
    for name, blocks in sections(summary, _SECTIONS, own).items():
        yield Heading(2, name)
        yield from blocks


def words_of(summary: Summary) -> dict[str, str]:
    """What pointing at a bar says, by the anchor of its row."""
    said = {
        layer_anchor(row.Index): f"{printable(row.label)} at {printable(row.path)}: "
        f"{LAYER_COLUMNS['median'].cell(row)} ms, {format_percent(row.share)}"
        for row in summary.layers.itertuples()
    }
    for row in summary.links.itertuples():
        anchor = link_anchor(summary, str(row.Index))
        said[anchor] = f"{printable(str(row.Index))}: {format_percent(row.share)}"
    return said


def _hottest(summary: Summary) -> Block:
    layers = summary.slowest.head(_HOTTEST)
    columns = layer_columns(_HOT_COLUMNS, several_phases=summary.several_phases)
    return Table(
        columns,
        list(layers.itertuples()),
        "The hottest layers",
        hot_marks(layers),
        [("", f"Hot are {summary.hotspots.rule}.")],
        leads=[layer_anchor(at) for at in layers.index],
    )


def _found(summary: Summary, notes: Sequence[Text]) -> Iterator[Block]:
    """What makes the answer doubtful, and what else was found: a line each, which opens."""
    yield from (note for note in notes if note.words[0] != f"{WARNING}: ")
    for severity in (WARNING, NOTE):
        for found in summary.findings:
            if found.severity == severity:
                line = (strong(severity.capitalize()), f" {found.text}")
                more = [part for part in (found.evidence, found.to_do) if part]
                yield Fold(line, list(map(text, more)), severity == WARNING)


def _layers(summary: Summary) -> Iterator[Block]:
    rows = list(summary.layers.itertuples())
    yield Table(
        _layer_columns(summary),
        rows,
        "All layers",
        hot_marks(summary.layers),
        [
            ("", "A heading sorts. Beside each layer how often its times came, and how they went."),
            *([("", ABOUT)] if summary.layers["work_is_about"].any() else []),
        ],
        anchors=[layer_anchor(row.Index) for row in rows],
        spreads=spreads(summary),
    )


def _layer_columns(summary: Summary) -> list[Column]:
    columns = layer_columns(_COLUMNS, several_phases=summary.several_phases)
    known = with_content(columns, summary.layers)
    return [column for column in columns if column.key in _ALWAYS or column in known]


def _links(summary: Summary) -> Iterator[Block]:
    links, beside = tree_rows(summary, _ALL_LEVELS)
    if len(links) < 2:
        return
    for at, (name, picture) in enumerate(boxes.links(summary)):
        yield Fold((name,), [picture]) if at else picture
    rows = [*links, *beside]
    yield Table(
        tree_columns(summary.phase_names, rows, indent=False),
        rows,
        "Links with all links below them, and by themselves",
        [HOT if row.hot else "" for row in rows],
        [("", "Inclusive times are those of a link with all links below it.")],
        anchors=[link_anchor(summary, row.path) for row in rows],
        depths=[row.depth for row in rows],
    )


def _memory(summary: Summary) -> Iterator[Block]:
    if summary.recording.memory is None:
        return
    yield from boxes.memory(summary)
    yield Figure(
        MEMORY,
        "Memory that every layer allocates",
        "Bars: the most that is allocated within a layer beyond what is there at its begin. Line: "
        "what it leaves allocated. What is freed between the layers is known for whole phases "
        "only, so this is no running total; dashed is the most in a phase beyond what was there at "
        "the trial's begin.",
    )
    yield from memory(summary)


def _glossary(summary: Summary) -> Block:
    return Lines([(column.title, column.meaning) for column in _layer_columns(summary)])
