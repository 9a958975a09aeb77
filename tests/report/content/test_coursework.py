from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import Settings
from chainer_profile.report.content.coursework import ReportTitle, blocks, heading_text
from chainer_profile.report.content.layer_section import MAX_ROWS
from chainer_profile.report.document import (
    Block,
    Code,
    Figure,
    Heading,
    Table,
    Text,
    caption_text,
    numbered,
    read_blocks,
    sections,
)
from tests.conftest import make_recording, make_training

ADDRESSES = {"plot": "p.png", "table": "t.csv", "links": "l.csv", "roofline": "r.png"}
PARTS = [
    "1 Experiment description",
    "2 Environment",
    "3 Methodology",
    "4 Result",
    "5 Next step for improvement",
    "6 Appendix",
]


def report(summary: Summary, **more: bool) -> list[Block]:
    return blocks(summary, ReportTitle(), **ADDRESSES, **more)


def test_blocks_of_markdown() -> None:
    markdown = [
        "## Head",
        "words",
        "| a | b |\n| --- | --- |\n| 1 | 2 |",
        "![x](y.png)",
        "*What it shows.*",
        "![z](w.png)",
        "**Bold** words",
        "```\ncode\n```",
        "- point",
    ]
    assert read_blocks(markdown, {("Head", "a"): "Of a"}) == [
        Heading(2, "Head"),
        Text("words"),
        Table(markdown[2], "Of a"),
        Figure("![x](y.png)", "What it shows."),
        Figure("![z](w.png)"),
        Text("**Bold** words"),
        Code("```\ncode\n```"),
        Text("- point"),
    ]


def test_a_table_without_a_caption_has_its_headings() -> None:
    assert read_blocks(["### Of engines", "| a |\n| --- |"], {})[1] == Table(
        "| a |\n| --- |", "Of engines"
    )


def test_a_picture_at_the_end() -> None:
    assert read_blocks(["![x](y.png)"], {}) == [Figure("![x](y.png)")]


def test_tables_and_figures_are_numbered_each_by_itself() -> None:
    found = list(numbered([Table("a", "A"), Figure("b"), Text("c"), Table("d", "D."), Figure("e")]))
    assert [block.number for block in found if isinstance(block, Table)] == [1, 2]
    assert [block.number for block in found if isinstance(block, Figure)] == [1, 2]
    assert caption_text(found[3]) == ("Table 2.", "D.")  # type: ignore[arg-type]
    assert caption_text(found[0]) == ("Table 1.", "A.")  # type: ignore[arg-type]


def test_sections_keep_all_blocks_in_order() -> None:
    parts: list[Block] = [Text("a"), Heading(3, "x"), Text("b"), Heading(3, "y"), Text("c")]
    found = sections(parts)
    assert found == {"": [Text("a")], "x": [Text("b")], "y": [Text("c")]}


@pytest.mark.parametrize("recording", [make_recording(), make_training(), make_recording(1)])
@pytest.mark.parametrize("files", [True, False])
def test_the_parts_are_those_of_a_coursework_report(recording: object, files: bool) -> None:
    found = report(summarise(recording), files=files)  # type: ignore[arg-type]
    headings = [b for b in found if isinstance(b, Heading)]
    assert [h.markdown for h in headings if h.level == 2] == PARTS
    assert all(h.level in (2, 3) for h in headings)
    assert sum(isinstance(b, Figure) for b in found) == 1
    commands = [b for b in found if isinstance(b, Code)]
    assert len(commands) == 2


def test_the_long_tables_are_in_the_appendix() -> None:
    found = report(summarise(make_recording(40)))
    names = [b.markdown for b in found if isinstance(b, Heading)]
    assert names.index("By layer") > names.index("6 Appendix") > names.index("The layers")
    rows = {b.caption: b.markdown.count("\n") - 1 for b in found if isinstance(b, Table)}
    assert rows["Self time by layer"] == 40


def test_a_long_table_of_links_is_in_the_appendix_too() -> None:
    for count, place in ((40, "4 Result"), (400, "6 Appendix")):
        found = report(summarise(make_recording(count, n_trials=3)))
        parts = [b.markdown for b in found if isinstance(b, Heading)]
        before = [name for name in parts[: parts.index("By link")] if name in PARTS]
        assert before[-1] == place


def test_a_report_with_its_files_elsewhere_does_not_explain_their_columns() -> None:
    summary = summarise(make_recording())
    with_columns, without = report(summary), report(summary, files=False)
    captions = [
        [b.caption for b in found if isinstance(b, Table)] for found in (with_columns, without)
    ]
    assert set(captions[0]) - set(captions[1]) == {"The columns of t.csv", "The columns of l.csv"}
    assert without[-1] != with_columns[-1]
    assert "l.csv" in "".join(b.markdown for b in without)


def test_it_is_said_which_layers_the_appendix_has() -> None:
    for count, which in ((6, "all layers"), (MAX_ROWS + 1, "the slowest layers")):
        found = report(summarise(make_recording(count, n_trials=3)))
        assert Text(f"The appendix has a table of {which}.") in found


@pytest.mark.parametrize("model", ["chain", "", "\x1b[31m"])
def test_the_title_is_the_networks_unless_it_is_given(model: str) -> None:
    recording = make_recording()
    recording = replace(recording, settings=replace(recording.settings, model=model))
    shown = heading_text(summarise(recording), ReportTitle())
    assert shown.startswith("Layer-wise profile of ")
    assert shown.isprintable()
    assert heading_text(summarise(recording), ReportTitle(" Mine\n")) == "Mine"


def test_rows_of_a_title() -> None:
    assert ReportTitle().rows() == []
    assert ReportTitle("t", " ", "c\nd").rows() == [("Course", "c\\nd")]


def test_a_bare_recording_has_all_parts() -> None:
    bare = make_recording(2, n_trials=1, n_clean=0, settings=Settings(), trial_ns=None)
    bare = replace(bare, start_ns=None)
    found = report(summarise(bare))
    assert [b.markdown for b in found if isinstance(b, Heading) and b.level == 2] == PARTS
    assert sum(b.markdown.startswith("> **Note:**") for b in found) == 2
