"""The report of an experiment: its parts, and where in them the tables stand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.content.answer import answer
from chainer_profile.report.content.layer_section import MAX_ROWS
from chainer_profile.report.content.method import experiment_rows, has_rate_of_zero
from chainer_profile.report.content.profile import ReportTitle, heading_text, report
from chainer_profile.report.document import Block, Code, Figure, Heading, Lines, Text, pieces, text
from chainer_profile.report.tables import Table
from tests.conftest import make_recording, make_training
from tests.report.devicing import launching
from tests.report.working import training

PARTS = [
    "1 Experiment description",
    "2 Environment",
    "3 Methodology",
    "4 Result",
    "5 Next step for improvement",
    "6 Appendix",
]


def headings(blocks: list[Block], level: int = 0) -> list[str]:
    found = [block for block in blocks if isinstance(block, Heading)]
    return [block.text for block in found if level in (0, block.level)]


def tables(blocks: list[Block]) -> dict[str, Table]:
    return {block.caption: block for block in blocks if isinstance(block, Table)}


@pytest.mark.parametrize("recording", [make_recording(), make_training(), make_recording(1)])
@pytest.mark.parametrize("files", [True, False])
def test_the_parts_are_those_of_a_coursework_report(recording: Recording, files: bool) -> None:
    found = report(summarise(recording), files=files)
    assert headings(found, 2) == PARTS
    assert isinstance(found[0], Heading)
    assert found[0].level == 1
    assert {b.level for b in found[1:] if isinstance(b, Heading)} == {2, 3}
    assert sum(isinstance(block, Figure) for block in found) == 1
    assert sum(isinstance(block, Code) for block in found) == 2


def test_the_answer_comes_first() -> None:
    summary = summarise(make_training())
    sentences = list(answer(summary))
    assert report(summary)[1 : 1 + len(sentences)] == sentences
    by_whom = report(summary, ReportTitle(author="A"))
    assert by_whom[1] == Lines([("Author", "A")])
    assert by_whom[2 : 2 + len(sentences)] == sentences


@pytest.mark.parametrize("summary", [training(), launching()], ids=["training", "gpu"])
def test_tables_and_figures_are_numbered_and_say_what_they_show(summary: object) -> None:
    found = report(summary)  # type: ignore[arg-type]
    for kind in (Table, Figure):
        shown = [block for block in found if isinstance(block, kind)]
        assert [block.number for block in shown] == list(range(1, len(shown) + 1))
        assert all(block.caption for block in shown)
        assert len({block.caption for block in shown}) == len(shown)


def test_the_long_tables_are_in_the_appendix() -> None:
    found = report(summarise(make_recording(40)))
    names = headings(found)
    assert names.index("By layer") > names.index("6 Appendix") > names.index("The layers")
    assert len(tables(found)["Self time by layer"].rows) == 40


def test_a_long_table_of_links_is_in_the_appendix_too() -> None:
    for count, place in ((40, "4 Result"), (400, "6 Appendix")):
        names = headings(report(summarise(make_recording(count, n_trials=3))))
        before = [name for name in names[: names.index("By link")] if name in PARTS]
        assert before[-1] == place


def test_a_report_with_its_files_elsewhere_does_not_explain_their_columns() -> None:
    summary = summarise(make_recording())
    with_columns, without = report(summary), report(summary, files=False)
    explained = {"The columns of layers.csv", "The columns of links.csv"}
    assert set(tables(with_columns)) - set(tables(without)) == explained
    texts = [block for block in without if isinstance(block, Text)]
    links = {piece.link for block in texts for piece in pieces(block.words)}
    assert {"layers.csv", "links.csv"} <= links


def test_it_is_said_which_layers_the_appendix_has() -> None:
    for count, which in ((6, "all layers"), (MAX_ROWS + 1, "the slowest layers")):
        found = report(summarise(make_recording(count, n_trials=3)))
        assert text(f"The appendix has a table of {which}.") in found


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
    found = report(summarise(replace(bare, start_ns=None)))
    assert headings(found, 2) == PARTS
    notes = [block for block in found if isinstance(block, Text) and block.note]
    assert len(notes) >= 2


def test_nobody_asked_for_the_weights_and_the_batch_of_a_program() -> None:
    training = make_training()
    calls, iteration = np.ones_like(training.self_ns), np.arange(training.n_trials) + 1
    program = replace(training, calls=calls, iteration=iteration)
    rows = [dict(experiment_rows(summarise(one))) for one in (training, program)]
    assert [row["Batch"].split()[1].rstrip("s") for row in rows] == ["image", "example"]
    assert ["weights" in row["Network"] for row in rows] == [True, False]


OURS = "python profile.py --phase train"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(phase="train", optimizer="MomentumSGD", command=OURS), True),
        (Settings(phase="train", optimizer="Adam", command=OURS), False),
        (Settings(phase="forward-backward", command=OURS), False),
        (Settings(phase="train", optimizer="MomentumSGD"), False),
        # A training of one's own, whose extension recorded its command.
        (Settings(phase="train", optimizer="MomentumSGD", command="python train.py"), False),
        (
            Settings(phase="train", optimizer="MomentumSGD", command="python t.py x profile.py"),
            False,
        ),
    ],
)
def test_the_rate_of_zero_is_that_of_our_own_optimizer(settings: Settings, expected: bool) -> None:
    assert has_rate_of_zero(settings) == expected
