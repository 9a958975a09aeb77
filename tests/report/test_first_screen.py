"""The first screens of programs and networks: rows that fit, names, headlines and next steps."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.advice.results import Advice
from chainer_profile.analyse.largest_parts import MAX_ROWS
from chainer_profile.analyse.program import ProgramTime
from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics import units
from chainer_profile.record.budget import Sampled, Spent
from chainer_profile.record.recording import (
    Recording,
    Settings,
)
from chainer_profile.report.content import (
    budget,
    profile,
)
from chainer_profile.report.content.first_screen import first_screen
from chainer_profile.report.content.layer_section import TableOptions
from chainer_profile.report.content.profile import RelatedResults
from chainer_profile.report.document import (
    FULL,
    Block,
    blocks_in_form,
    text,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import terminal
from tests import ROOT
from tests.conftest import make_recording, make_training
from tests.recordings import with_all_fields
from tests.report.documents import S, program
from tests.report.reading import report_md, table_of

SAMPLE = ROOT / "reports" / "samples" / "resnet20-cpu-b1" / "recording.npz"


def test_headline_of_a_program_is_the_mean_that_its_parts_add_up_to() -> None:
    training = make_training()
    for longest_ms, mean, message in (
        (4, "3.808 ms", ""),
        (900, "26.21 ms", "They take 3.700 ms to 900.0 ms; only the mean adds up to the program."),
    ):
        trial_ns = np.full(training.n_trials, 3_700_000)
        trial_ns[-1] = longest_ms * 1_000_000
        of_program = {"calls": np.ones_like(training.self_ns), "trial_ns": trial_ns}
        of_program |= dict.fromkeys(("clean_ns", "clean_start_ns"), np.zeros(0, np.int64))
        recording = replace(training, iteration=np.arange(len(trial_ns)) + 1, **of_program)
        # Two iterations are not in rows.
        whole_ns = round(float(trial_ns.mean()) * 42) + 4_200_000
        spent = replace(program(), spent=(Spent("iterations", "", whole_ns, 42),), wall_ns=whole_ns)
        whole = ProgramTime(spent, {("iterations", ""): [recording]})
        shown = report_md(summarise(recording), related=profile.RelatedResults(program=whole))
        headline = f"A training step takes {mean} (mean of 42 iterations; median 3.700 ms, "
        assert headline in shown.replace("**", "")
        assert ("They take" in shown) == bool(message)
        assert message in shown
        # The first sentence and the table have the same figure.
        assert f"{mean} each" in shown
        assert re.search(rf"^\| \**iterations\**.* \**{mean}\** \|$", shown, re.MULTILINE)


def test_headline_of_changed_iterations_counts_only_iterations_in_rows() -> None:
    """The mean of all iterations would be less than the mean of any iterations without a change."""
    training = make_training()
    spent = replace(program(), spent=(Spent("iterations", "", 10**9, 1000),), wall_ns=10**9)
    assert training.trial_ns is not None
    changed = replace(training, trial_ns=training.trial_ns // 100)
    of_program = dict.fromkeys(("clean_ns", "clean_start_ns"), np.zeros(0, np.int64))
    of_program["iteration"] = np.arange(training.n_trials) + 1
    recording = replace(training, calls=np.ones_like(training.self_ns), **of_program)
    whole = ProgramTime(spent, {("iterations", ""): [recording, changed]})
    shown = report_md(summarise(recording), related=profile.RelatedResults(program=whole))
    mean = units.format_duration(float(training.trial_ns.mean()) * 1e-9)
    message = f"takes {mean} (mean of {recording.n_trials} of 1,000 iterations;"
    assert message in shown.replace("**", "")


def test_shortened_function_name_keeps_its_end_and_has_an_error() -> None:
    name = "a_program_with_a_long_name_for_a_file.py:11 plot"
    sampled = Sampled("the script's own code", "", "other", name, 9_000_000_000, 400)
    spent = (Spent("the script's own code", "", 10_000_000_000, 0),)
    long = replace(program(), wall_ns=10_000_000_000, spent=spent, sampled=(sampled,))
    names = [row.name for row in budget.budget_rows(ProgramTime(long), name_width=40)]
    assert names[1].endswith("_for_a_file.py:11 plot")
    assert len(names[1]) < len(name)
    (table,) = (block for block in budget.overview(ProgramTime(long)) if isinstance(block, Table))
    assert table.columns[0].heading == "part (~ sampled: 1 s within 0.3 s)"


def test_first_screen_has_as_many_rows_as_fit_with_any_command() -> None:
    long = replace(program(), script="train.py" + " --option value" * 20)
    whole = ProgramTime(long, {("iterations", ""): [make_training()]})

    def rows(lines: int, width: int = 80) -> int:
        def fits(blocks: list[Block]) -> bool:
            return terminal.count_of_lines(blocks, width) <= lines

        blocks = budget.overview(whole, None, [text("Written to here")], width=width, fits=fits)
        (table,) = (block for block in blocks if isinstance(block, Table))
        assert fits(blocks) or len(table.rows) <= 12
        # The command takes two lines; every name fits on one.
        assert terminal.count_of_lines(blocks[:1], 80) == 2
        assert terminal.count_of_lines([table], width) == len(table.rows) + 2
        return len(table.rows)

    assert 16 < rows(100) <= MAX_ROWS
    assert 12 <= rows(20) < rows(100)
    assert rows(10) in (11, 12)


def test_first_screen_leaves_out_rows_before_a_step() -> None:
    """A step that would have saved a third of a program used to be left out for small rows."""
    wall_ns = 20 * S
    parts = [
        Spent("iterations", "", 5 * S, 4),
        Spent("snapshots", "save_hdf5", 3 * S, 4),
        Spent("evaluation", "validation", 2 * S, 2),
        *(Spent("extensions", f"extension {n}", 6 * S // 10, 4) for n in range(16)),
    ]
    rest = Spent("the script's own code", "", wall_ns - sum(spent.ns for spent in parts))
    long = ProgramTime(replace(program(), wall_ns=wall_ns, spent=(*parts, rest)))

    def shown(lines: int) -> tuple[int, int]:
        """The numbers of rows and of steps on a screen."""

        def fits(blocks: list[Block]) -> bool:
            return terminal.count_of_lines(blocks, 80) <= lines

        blocks = budget.overview(long, fits=fits)
        (table,) = (block for block in blocks if isinstance(block, Table))
        words = str(blocks)
        return len(table.rows), words.count("'Next: '") + words.count("'Also: '")

    sizes = [shown(lines) for lines in range(5, 40)]
    assert (8, 2) in sizes
    assert sizes[-1][0] > 12
    assert all(rows >= (8 if steps == 2 else 12) for rows, steps in sizes)
    assert sizes == sorted(sizes, key=lambda size: size[1])


def test_first_screen_has_the_table_inside_the_layers_if_asked() -> None:
    summary = summarise(with_all_fields(make_recording(n_layers=3)))
    caption = "Inside the functions: the parts of their time"
    assert table_of(list(first_screen(summary, tables=["inside"])), caption).rows


@pytest.mark.parametrize("named", ["function", "path", "label"])
def test_chosen_columns_keep_the_names_of_other_rows_and_the_marks(named: str) -> None:
    summary = summarise(make_recording())
    shown = TableOptions(columns=(named, "median", "share"))
    table = table_of(list(first_screen(summary, None, shown, tables=["layers"])), "The layers")
    cells = [list(row) for row in table.cells()]
    assert [column.key for column in table.columns] == ["hot", named, "median", "share"]
    assert [row[1] for row in cells[-2:]] == ["framework", "whole trial"]
    marked = [row for row in cells if row[0] == "*"]
    assert len(marked) == int(summary.layers["hot"].sum())
    assert table.legend[0].startswith("* marks hot layers")


def test_text_of_a_summary_fits_a_screen() -> None:
    summary = summarise(Recording.load(SAMPLE))
    assert len(str(summary).splitlines()) <= terminal.SCREEN


def test_change_that_was_tried_is_not_a_next_step() -> None:
    settings = Settings(command="python profile.py", trials=100)
    summary = summarise(make_recording(settings=settings))
    advised = [finding for finding in summary.findings if " advise " in finding.command]
    assert advised
    tried = RelatedResults(Advice((), settings=settings))
    words = plain_words(blocks_in_form(FULL, profile.sections(summary)))
    left = plain_words(blocks_in_form(FULL, profile.sections(summary, tried)))
    assert " advise " in words
    assert " advise " not in left


def plain_words(blocks: Iterator[Block]) -> str:
    return terminal.written(blocks)
