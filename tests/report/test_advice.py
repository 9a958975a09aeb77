"""The changes that were tried in a program, on its screen and in its report."""

from dataclasses import replace

from chainer_profile.advice.results import Speedup
from chainer_profile.report.content.advice import on_screen, report
from chainer_profile.report.writers import terminal
from tests.goldens.scenarios import BY_TURNS
from tests.report.documents import program_time


def test_combination_without_significant_gain_has_a_row_and_is_in_no_list():
    both, added, *others = BY_TURNS.tried
    single = replace(
        added, candidate=replace(both.candidate, name="one thread", change=added.candidate.against)
    )
    both = replace(both, wall=Speedup(1.33, 0.72, 2.44))
    advice = replace(BY_TURNS, tried=(single, added, both, *others))
    for blocks in (on_screen(advice, program_time()), report(advice, program_time())):
        shown = " ".join(terminal.written(blocks, 80).split())
        assert shown.count("0.72 to 2.44") == 1
        assert "all together 1.33x 0.72 to 2.44" in shown
