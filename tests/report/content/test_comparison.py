from __future__ import annotations

import csv
import io

import pytest

from chainer_profile.comparison.compare import Side, compare
from chainer_profile.comparison.significance import FASTER, SAME, SLOWER, UNKNOWN
from chainer_profile.report import document
from chainer_profile.report.content import comparison as module
from chainer_profile.report.content.comparison import (
    Gate,
    change,
    failures,
    file_rows,
    gate_line,
    layer_columns,
    machine_line,
    notes,
    shown_layers,
    verdict,
)
from chainer_profile.report.document import Figure, Heading, Points, Text, plain
from chainer_profile.report.tables import Table, to_csv
from tests.comparing import run, scaled
from tests.comparison.test_comparison import conditions
from tests.fusing import chainer_run, engine_run

SLOW = {3: 1.5, 7: 0.6}


def compared(**changes):
    return compare(Side("A", (run(1),)), Side("B", (scaled(run(2, **changes), SLOW),)))


@pytest.mark.parametrize(
    ("ratio", "verdict", "text"),
    [
        (1.05, SLOWER, "1.05x slower"),
        (0.9, FASTER, "1.11x faster"),
        (1.2, SAME, "not significant"),
        (0.5, UNKNOWN, "2.00x faster"),
        (float("nan"), UNKNOWN, "-"),
        (float("inf"), UNKNOWN, "-"),
    ],
)
def test_a_change_in_words(ratio, verdict, text):
    assert change(ratio, verdict) == text


def test_layers_are_sorted():
    comparison = compared()
    both = {"change": [3, 7], "time": [3, 7], "index": [3, 7], "path": [3, 7]}
    for sort in ("change", "time", "index", "path"):
        found = shown_layers(comparison, sort=sort, everything=False).index.tolist()
        assert sorted(found) == both[sort]
        everything = shown_layers(comparison, sort=sort, everything=True)
        assert sorted(everything.index) == list(range(24))
    assert shown_layers(comparison, sort="index", everything=True).index.tolist() == list(range(24))
    by_change = shown_layers(comparison, sort="change", everything=True)
    differences = (by_change["after_s"] - by_change["before_s"]).abs()
    assert differences.is_monotonic_decreasing
    by_path = shown_layers(comparison, sort="path", everything=True)
    assert by_path["path"].is_monotonic_increasing


def fused(nodes, **changes):
    chainer = chainer_run()
    engine = engine_run(chainer_run(2), nodes, **changes)
    return compare(Side("A", (chainer,)), Side("B", (engine,)))


def test_a_place_of_many_layers_is_short():
    every_other = fused([tuple(range(0, 24, 2))])
    place = layer_columns(every_other)[0].cell(next(every_other.layers.itertuples()))
    assert place == "0, 2, 4, 6,…"


def test_the_verdict_comes_first_and_doubts_behind_it():
    comparison = compared(conditions=conditions(1.4))
    first, *rest = module.compared(comparison)
    assert first == document.text(document.strong(verdict(comparison)))
    kinds = [type(block) for block in rest]
    assert kinds.index(Table) == kinds.count(Text) == len(kinds) - 3
    assert [block.caption for block in rest if isinstance(block, Table)] == [
        "Whole trials", "The layers",
    ]  # fmt: skip
    assert [plain(block.words) for block in rest if isinstance(block, Text) and block.note] == [
        machine_line(comparison)
    ]
    assert isinstance(rest[-1], Points)
    # Without verdicts that is to be known first.
    few = [b for b in module.compared(compared(n_trials=2)) if isinstance(b, Text) and b.note]
    assert [plain(block.words) for block in few] == list(notes(compared(n_trials=2)))


def test_changed_rows_are_marked():
    table = [b for b in module.compared(compared(), sort="index") if isinstance(b, Table)][-1]
    assert [table.mark(at) for at in range(len(table.rows))] == [document.SLOWER, document.FASTER]
    every = module.compared(compared(), sort="index", everything=True)
    table = [b for b in every if isinstance(b, Table)][-1]
    marks = [table.mark(at) for at in range(24)]
    assert [at for at, mark in enumerate(marks) if mark] == [3, 7]


def test_a_gate_stands_below_the_verdict():
    _, said, failed, *_ = module.compared(compared(), gate=Gate(0.05))
    assert plain(said.words) == gate_line(compared(), Gate(0.05))
    assert list(map(plain, failed.items)) == failures(compared(), Gate(0.05))
    _, said, behind, *_ = module.compared(compared(), gate=Gate(0.9))
    assert plain(said.words) == gate_line(compared(), Gate(0.9))
    assert not isinstance(behind, Points)


def test_a_report_of_several_has_a_part_for_each():
    one, other = compared(), compare(Side("A", (run(1),)), Side("C", (run(3),)))
    blocks = module.report([one, other], ["b.png", "c.png"])
    found = [block.text for block in blocks if isinstance(block, Heading)]
    assert found == ["B, C compared with A", "B", "C"]
    assert [block.file for block in blocks if isinstance(block, Figure)] == ["b.png", "c.png"]
    assert plain(blocks[-1].words) == "All layers, with all digits: comparison.csv"
    alone = module.report([one], ["b.png"])
    assert [block.level for block in alone if isinstance(block, Heading)] == [1]


def test_what_is_not_known_is_empty_in_the_file():
    lines = csv.DictReader(io.StringIO(to_csv(module.COLUMNS, file_rows([compared(n_trials=1)]))))
    row = list(lines)[4]
    assert row["ci95_low"] == row["ci95_high"] == ""
    assert row["verdict"] == "not known"
