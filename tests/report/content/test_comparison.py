from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.comparison.compare import Side, compare
from chainer_profile.comparison.significance import FASTER, SAME, SLOWER, UNKNOWN
from chainer_profile.record.recording import Conditions
from chainer_profile.report import document
from chainer_profile.report.content import comparison as module
from chainer_profile.report.content.comparison import (
    Gate,
    change,
    counts_line,
    differences_line,
    failures,
    fusion_line,
    gate_line,
    interval,
    layer_columns,
    machine_line,
    notes,
    shown_layers,
    side_text,
    towards,
    unmatched_lines,
    verdict,
    words_of,
)
from chainer_profile.report.document import Figure, Heading, Points, Text, plain
from chainer_profile.report.tables import Table
from tests.comparing import run, scaled
from tests.comparison.test_comparison import conditions
from tests.fusing import chainer_run, engine_run, in_threes

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


def test_the_interval_is_of_the_factor():
    assert interval(1.05, 1.04, 1.06) == "1.04-1.06"
    assert interval(0.5, 0.4, 0.8) == "1.25-2.50"
    assert interval(0.5, float("nan"), float("nan")) == "-"
    assert towards(1.0) == "1.00x slower"


def test_what_was_compared():
    started = replace(run(1).environment, started="2026-01-02T03:04:05Z", commit="abc")
    side = Side("a\nb", (run(1, environment=started), run(2)))
    text = side_text(side)
    assert text.startswith("a\\nb: chain, random image, seed 0, shape 1x16x32x32, batch 1, cpu")
    assert "2 runs of 200 profiled trials" in text
    assert text.endswith("2026-01-02T03:04:05Z, commit abc")
    assert "100 + 200" in side_text(Side("x", (run(1, n_trials=100), run(2))))


def test_what_differs_is_one_line():
    assert differences_line(compared()) == "Settings and environments are the same."
    other = run(2)
    other = replace(
        other,
        settings=replace(other.settings, model="x" * 99, batchsize=2),
        environment=replace(other.environment, processor="", cupy="1"),
    )
    line = differences_line(compare(run(1), other))
    assert line.startswith("Different machines. What differs: network (chain, now xxx")
    assert "…" in line
    assert "batch (1, now 2)" in line
    assert "CuPy (none, now 1)" in line
    assert "processor (A processor, now none)" in line
    many = replace(
        other,
        settings=replace(other.settings, phase="x", dtype="x", device="x", loss="x", optimizer="x"),
    )
    assert ", and 1 more." in differences_line(compare(run(1), many))


def test_the_machine_is_one_line():
    line = machine_line(compared())
    assert line == (
        "The machine itself was as fast: a fixed matrix product took 1.00x the time (1.00 to 1.00 "
        "by the moment), a fixed copy took 1.00x the time (1.00 to 1.00 by the moment)."
    )
    line = machine_line(compared(conditions=conditions(1.5, other_cpu=1.6)))
    assert line.startswith("The machine itself moved: a fixed matrix product took 1.50x the time")
    assert "other programs kept 0.0 and 1.6 cores busy" in line
    assert "not known" in machine_line(compared(conditions=Conditions()))
    gpu = run(2)
    gpu = replace(gpu, settings=replace(gpu.settings, device="gpu:0"))
    assert "is not compared" in machine_line(compare(run(1), gpu))
    other = run(2, conditions=conditions(2))
    other = replace(other, environment=replace(other.environment, processor="Z"))
    assert machine_line(compare(run(1), other)).startswith("On the two machines, devices or BLAS")


def test_notes():
    (note,) = notes(compared())
    assert note.startswith("One run of each")
    several = compare(Side("A", (run(1), run(3))), Side("B", (run(2), run(4))))
    (note,) = notes(several)
    assert note.startswith("Noise from run to run is measured")
    assert "compared with itself" in next(notes(compare(run(1), run(1))))
    (note,) = notes(compared(n_trials=1))
    assert "times but no verdicts" in note
    other = replace(run(2), settings=replace(run(2).settings, phase="train"))
    assert "trials are not the same (forward, and train)" in next(notes(compare(run(1), other)))


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


def test_counts():
    assert counts_line(compared()) == (
        "2 of 24 matched layers changed: 1 slower, 1 faster; the other 22 not significantly."
    )
    assert counts_line(compare(run(1), run(1))) == "0 of 24 matched layers changed significantly."
    assert counts_line(compared(n_trials=2)) == "24 matched layers, without verdicts."
    few = compared(n_trials=2)
    assert len(shown_layers(few, sort="time", everything=False)) == 24


def test_unmatched_layers_are_counted_and_some_named():
    long = replace(run(2, 36))
    (line,) = unmatched_lines(compare(Side("A", (run(1),)), Side("B", (long,))))
    assert line.startswith("Only in B: 12 layers, 1.7")
    assert "24_Convolution2DFunction at /res4/2/conv1" in line
    assert line.endswith(", and 7 more.")
    assert not list(unmatched_lines(compared()))


def test_the_gate_in_words():
    comparison = compared()
    assert gate_line(comparison, Gate(0.05)) == "Gate: FAILED, 1 slower by more than 5.0 %."
    (line,) = failures(comparison, Gate(0.05))
    assert line.startswith("3_Convolution2DFunction at /res2/1/conv1: 1.5")
    assert "(95 % interval 1." in line
    assert gate_line(comparison, Gate(0.9)).startswith("Gate: passed")
    assert "not judged" in gate_line(compared(n_trials=2), Gate(0.05))
    moved = compared(conditions=conditions(1.2))
    assert gate_line(moved, Gate(0.05)).endswith("The machine itself moved: try again.")


def fused(nodes, **changes):
    chainer = chainer_run()
    engine = engine_run(chainer_run(2), nodes, **changes)
    return compare(Side("A", (chainer,)), Side("B", (engine,)))


def test_what_an_engine_does_together_is_said_in_one_line():
    comparison = fused([(), *in_threes()[:-1], (21, 22)])
    expected = "24 layers of chainer became 9 nodes of onnxruntime 1.31.1; compared as 8 groups."
    assert fusion_line(comparison) == expected
    assert expected in list(notes(comparison))
    assert counts_line(comparison).startswith("8 of 8 matched groups changed")
    back = compare(comparison.after, run(1))
    assert fusion_line(back).startswith("9 nodes of onnxruntime 1.31.1 and 24 layers of chainer;")
    assert fusion_line(compared()) == ""
    assert fusion_line(fused([(at,) for at in range(24)])) == ""


def test_names_of_several_layers_are_short():
    comparison = fused([(), *in_threes()[:-1], (21, 22)])
    row = next(comparison.layers.itertuples())
    assert words_of(comparison, "a")["a-0"].startswith("0-2_Convolution2D + 2 fused at /res2/0")
    place, path, function = (column.cell(row) for column in layer_columns(comparison)[:3])
    assert (place, path, function) == ("0-2", "/res2/0/conv1", "Convolution2D + 2 fused")
    before, after = unmatched_lines(comparison)
    assert before.startswith("Only in A: 1 layer, ")
    assert before.endswith(": 23_ReLU at /res4/1.")
    assert after.endswith(": 0_Reorder at reorder.")


def test_a_place_of_many_layers_is_short():
    every_other = fused([tuple(range(0, 24, 2))])
    place = layer_columns(every_other)[0].cell(next(every_other.layers.itertuples()))
    assert place == "0, 2, 4, 6,…"


# --- the verdict, and what comes behind it


@pytest.mark.parametrize(
    ("whole", "n_clean", "begin"),
    [
        (1.5, 40, "The clean trial is 1.51x slower: "),
        (0.5, 40, "The clean trial is 1.99x faster: "),
        (1.0, 40, "No change of the clean trial can be told: "),
        (1.5, 2, "No verdict on the clean trial: "),
    ],
)
def test_the_verdict_is_that_of_the_table_of_totals(whole, n_clean, begin):
    comparison = compare(run(1), scaled(run(2, n_clean=n_clean), {}, whole))
    said = verdict(comparison)
    assert said.startswith(begin)
    table = Table(module._TOTALS, comparison.totals)
    name, before, after, changed, within = table.cells()[0]
    assert name == "clean trial"
    assert f": {before}, now {after}" in said
    assert changed.partition(",")[0] in said
    if begin.startswith("The"):
        assert said.endswith(f", 95 % interval of the factor {within}.")


def test_a_change_that_may_be_the_machines_is_no_verdict():
    moved = compare(run(1), scaled(run(2, conditions=conditions(1.4)), {}, 1.5))
    assert ", by the machine or the code: " in verdict(moved)


def test_the_verdict_on_what_else_was_timed():
    untimed = [replace(run(seed, n_clean=0), trial_ns=None, start_ns=None) for seed in (1, 2)]
    slow = scaled(run(2), dict.fromkeys(range(24), 1.5))
    slow = replace(slow, clean_ns=slow.clean_ns[:0], clean_start_ns=slow.clean_start_ns[:0])
    assert verdict(compare(run(1, n_clean=0), slow)).startswith("The profiled trial is 1.")
    slow = replace(slow, trial_ns=None, start_ns=None)
    assert verdict(compare(untimed[0], slow)).startswith("The sum of the layers is 1.50x slower: ")
    other = replace(run(2), settings=replace(run(2).settings, phase="train"))
    comparison = compare(run(1), other)
    assert verdict(comparison) == counts_line(comparison)


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


def test_rows_that_are_not_shown_are_counted():
    table = [b for b in module.compared(compared(), limit=1) if isinstance(b, Table)][-1]
    assert len(table.rows) == 1
    assert table.legend[0] == ("", "1 row not shown.")
    table = [b for b in module.compared(compared()) if isinstance(b, Table)][-1]
    assert not any("not shown" in note for _, note in table.legend)


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
