"""Changes that were tried: on the screen of a program, and in reports."""

from dataclasses import replace

from chainer_profile.advice.changes import CPU, UNCHANGED, WALL
from chainer_profile.advice.results import LossChange, Speedup, best_of
from chainer_profile.analyse.program import ProgramTime
from chainer_profile.report.content import budget
from chainer_profile.report.content.advice import (
    how_to_keep,
    report,
    screen_blocks,
    section,
    verdict,
    what_helped,
)
from chainer_profile.report.document import Block, Text, plain
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import terminal
from tests.conftest import make_training
from tests.goldens.scenarios import ADVICE, BY_TURNS
from tests.report.documents import program, program_time


def test_combination_without_significant_gain_has_a_row_and_is_in_no_list():
    both, added, *others = BY_TURNS.tried
    single = replace(
        added, candidate=replace(both.candidate, name="one thread", change=added.candidate.against)
    )
    both = replace(both, wall=Speedup(1.33, 0.72, 2.44))
    advice = replace(BY_TURNS, tried=(single, added, both, *others))
    for blocks in (screen_blocks(advice, program_time()), report(advice, program_time())):
        shown = " ".join(terminal.written(blocks, 80).split())
        assert shown.count("0.72 to 2.44") == 1
        assert "all together 1.33x 0.72 to 2.44" in shown


def test_advice_names_the_budget_that_was_asked_for() -> None:
    for budget_s, took_s, named in (
        (100.0, 88.0, "88 of the 100 s allowed."),
        (90.0, 92.4, "92 of the 90 s allowed."),
        (180.0, 172.0, "2.9 of the 3 min allowed."),
        (150.0, 95.0, "95 of the 150 s allowed."),
    ):
        blocks = section(replace(ADVICE, budget_s=budget_s, took_s=took_s))
        texts = [plain(block.content) for block in blocks if isinstance(block, Text)]
        assert texts[-1].endswith(f"this took {named}")


def test_answer_of_advice_shows_the_gain_of_the_times_next_to_it() -> None:
    best = best_of(ADVICE.tried)
    assert best is not None
    for decides, gains in (
        (CPU, "2.50x as fast (CPU time, 95 % interval 2.40 to 2.60; wall time 2.40x)"),
        (WALL, "2.40x as fast (wall time, 95 % interval 2.20 to 2.60)"),
    ):
        tried = replace(best, candidate=replace(best.candidate, decides=decides))
        words = verdict(replace(ADVICE, tried=(tried,)))
        assert words.endswith(f" is {gains}: 24.00 ms an input before, 10.00 ms after.")


def test_program_has_the_same_table_if_changes_are_tried() -> None:
    whole = ProgramTime(program(), {("iterations", ""): [make_training()]})
    lines = 30

    def fits(blocks: list[Block]) -> bool:
        return terminal.count_of_lines(blocks, 80) <= lines

    alone = budget.overview(whole, None, fits=fits)
    tried = budget.overview(whole, None, advice=BY_TURNS, fits=fits)
    tables = [[b for b in blocks if isinstance(b, Table)][-1] for blocks in (alone, tried)]
    assert tables[0].rows == tables[1].rows
    assert len(tables[0].rows) > 12


def test_advice_to_keep_a_change_has_no_empty_parentheses() -> None:
    words = "".join(map(str, what_helped(BY_TURNS)))
    assert "Start it with: " in words
    assert "()" not in words.replace("accelerate()", "")
    best = best_of(BY_TURNS.tried)
    assert best is not None
    bare = replace(best, candidate=replace(best.candidate, reason="", against=UNCHANGED))
    assert how_to_keep(bare)[1:] == ("",)


def test_change_in_loss_is_unknown_if_the_losses_vary_too_much() -> None:
    for high, shown in ((0.099, "none above 9.9 %"), (2.1, "unknown")):
        tried = replace(BY_TURNS.tried[0], loss=LossChange(0.0, -high, high))
        blocks = screen_blocks(replace(BY_TURNS, tried=(tried,)), program_time())
        table = next(block for block in blocks if isinstance(block, Table))
        (column,) = (column for column in table.columns if column.key == "loss")
        assert column.value is not None
        assert column.value(tried) == shown
