"""Whole programs are compared by their time, its parts, and the means of their iterations."""

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.comparison.compare import compare
from chainer_profile.comparison.programs import WHOLE
from chainer_profile.comparison.sides import Side
from chainer_profile.comparison.significance import FASTER, ONCE, SAME, SLOWER, UNKNOWN
from chainer_profile.comparison.totals import PROFILED
from chainer_profile.record.budget import (
    IMPORTS,
    ITERATIONS,
    PROFILER,
    REST,
    RUNNING,
    SAVE_NPZ,
    SAVE_NPZ_PLAIN,
    SNAPSHOTS,
    Budget,
    Spent,
)
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.content.comparison import comparison_blocks
from chainer_profile.report.content.comparison_tables import COLUMNS, file_rows
from chainer_profile.report.content.comparison_words import verdict
from chainer_profile.report.content.gate import Gate, failure_lines, gate_line, why_not_judged
from chainer_profile.report.tables import to_csv
from chainer_profile.report.writers import terminal
from tests.comparing import run, scaled
from tests.refusing import refusal

S = 10**9


def iterations(seed=0, slow=0, factor=1.0):
    """Make the iterations of a program; the first ``slow`` of every ten take 20 times as long."""
    recording = run(seed, n_clean=0)
    times = np.where(np.arange(recording.n_trials) % 10 < slow, 20.0, factor)
    self_ns = np.rint(recording.self_ns * times[:, None]).astype(np.int64)
    return replace(
        recording,
        self_ns=self_ns,
        trial_ns=self_ns.sum(axis=1) + 50_000,
        calls=np.ones_like(self_ns),
        iteration=np.arange(len(self_ns)),
    )


def budget(outcome=COMPLETE, script="train.py --epoch 2", **parts_s):
    """Make the time of a program from the seconds of its parts, and one second of profiling."""
    names = {"imports": IMPORTS, "iterations": ITERATIONS, "own": REST}
    spent = [
        Spent(names[name], "", round(S * seconds), 600 * (name == "iterations"))
        for name, seconds in parts_s.items()
        if name in names
    ]
    for name, snapshot in (("compressed", SAVE_NPZ), ("plain", SAVE_NPZ_PLAIN)):
        if name in parts_s:
            spent.append(Spent(SNAPSHOTS, snapshot, round(S * parts_s[name]), 3))
    spent.append(Spent(PROFILER, "around", S))
    wall_ns = sum(each.ns for each in spent)
    return Budget(script, "2000", "2100", outcome, wall_ns, tuple(spent))


def side(name, *programs, **fields):
    runs = tuple(iterations(10 * len(name) + ord(name) + i, **fields) for i in range(len(programs)))
    return Side(name, runs, programs)


def shown(comparison, **more):
    return terminal.written(comparison_blocks(comparison, **more), 100)


def test_program_that_takes_twice_as_long_is_slower_though_its_median_iteration_is_faster():
    before = side("A", budget(imports=0.4, iterations=4.0))
    after = side("B", budget(imports=0.4, iterations=8.1), slow=2, factor=0.8)
    comparison = compare(before, after)
    assert (
        verdict(comparison)
        == "The whole program is 1.93x slower: 4.400 s, now 8.500 s (one run each)."
    )
    medians = [np.median(run.trial_ns) for side in (before, after) for run in side.runs]
    assert medians[1] < 0.9 * medians[0]
    assert comparison.totals.index[0] == WHOLE
    assert comparison.totals["ratio"][PROFILED] == pytest.approx(0.8 * 0.8 + 0.2 * 20, rel=0.05)
    assert comparison.layers["ratio"].between(4, 5).all()
    assert "Times are means in ms." in shown(comparison, everything=True)
    # The comparison is the same with the sides swapped.
    assert verdict(compare(after, before)).startswith("The whole program is 1.93x faster: 8.500 s,")


def test_snapshots_that_are_not_compressed_show_as_their_part_and_in_the_whole():
    rest = {"imports": 1.0, "iterations": 12.0, "own": 0.5}
    before, after = budget(**rest, compressed=1.67), budget(**rest, plain=0.47)
    comparison = compare(side("A", before), side("B", after))
    parts = comparison.parts
    assert parts.index[0] == SNAPSHOTS
    assert parts["ratio"][SNAPSHOTS] == pytest.approx(0.47 / 1.67)
    assert parts["ratio"].drop(SNAPSHOTS).tolist() == [1.0] * 3
    text = shown(comparison)
    assert "The whole program is 1.09x faster: 15.17 s, now 13.97 s (one run each)." in text
    rows = [line.split() for line in text.splitlines()]
    assert [
        "whole",
        "program",
        "15.17",
        "s",
        "13.97",
        "s",
        "-1.200",
        "s",
        "1.09x",
        "faster",
    ] in rows
    expected = ["snapshots", "3", "1.670", "s", "470.0", "ms", "-1.200", "s", "3.55x", "faster"]
    assert expected in rows
    assert "train.py's own code" in text


@pytest.mark.parametrize("runs", [1, 3])
def test_parts_add_up_to_the_whole_program(runs):
    rng = np.random.default_rng(runs)
    sides = [
        side(name, *(budget(imports=a, iterations=b, own=c) for a, b, c in rng.random((runs, 3))))
        for name in "AB"
    ]
    comparison = compare(*sides)
    for column in ("before_s", "after_s"):
        whole = comparison.totals[column][WHOLE]
        assert comparison.parts[column].sum() == pytest.approx(whole)


def test_one_run_of_each_program_has_no_interval_and_no_p_value():
    comparison = compare(side("A", budget(imports=1)), side("B", budget(imports=3)))
    for table in (comparison.totals.head(1), comparison.parts):
        assert table[["low", "high", "p_value"]].isna().all(axis=None)
        assert set(table["verdict"]) == {ONCE}
    text = shown(comparison)
    assert "Each program ran once, so it is unknown how much" in " ".join(text.split())
    rows = to_csv(COLUMNS, file_rows([comparison])).splitlines()
    assert [row.split(",")[2:4] for row in rows[1:3]] == [["total", WHOLE], ["part", IMPORTS]]
    assert rows[1].endswith(",3,,,,one run each")


def test_several_runs_of_each_program_have_a_verdict():
    steady = [budget(imports=1 + i / 1000, iterations=10 + i / 100) for i in range(3)]
    slower = [budget(imports=1.001 - i / 1000, iterations=11 + i / 100) for i in range(3)]
    for sides, of_whole, of_iterations in (
        ((steady, slower), SLOWER, SLOWER),
        ((slower, steady), FASTER, FASTER),
        ((steady, steady), SAME, SAME),
    ):
        comparison = compare(side("A", *sides[0]), side("B", *sides[1]))
        assert comparison.totals["verdict"][WHOLE] == of_whole
        assert comparison.parts["verdict"][ITERATIONS] == of_iterations
        assert comparison.parts["verdict"][IMPORTS] == SAME
        row = comparison.totals.loc[WHOLE]
        assert row["low"] < row["ratio"] < row["high"]


def test_part_that_one_program_does_not_have_is_new_or_gone():
    before, after = budget(imports=1, compressed=2), budget(imports=1, own=3)
    for count in (1, 2):
        comparison = compare(side("A", *[before] * count), side("B", *[after] * count))
        assert set(comparison.parts["verdict"][[SNAPSHOTS, REST]]) == {UNKNOWN}
        rows = [line.split() for line in shown(comparison).splitlines()]
        assert any(row[:1] == ["snapshots"] and "gone" in row for row in rows)
        assert any(row[-2:] == ["s", "new"] or "new" in row for row in rows)


def test_runs_of_networks_have_no_whole_program():
    program, network = side("A", budget(imports=1)), Side("B", (run(5),))
    for sides in ((program, network), (network, network)):
        comparison = compare(*sides)
        assert WHOLE not in comparison.totals.index
        assert not len(comparison.parts)
        assert "whole program" not in shown(comparison)


def test_other_programs_and_ends_are_differences():
    before, after = budget(imports=1), budget(imports=1, script="other.py", outcome=RUNNING)
    text = " ".join(shown(compare(side("A", before), side("B", after))).split())
    assert "program (train.py --epoch 2, now other.py)" in text
    assert "end of the program (complete, now killed)" in text
    assert "A: train.py --epoch 2, chain" in text
    mixed = side("A", before, after)
    message = "A: its runs differ in program: train.py --epoch 2 and other.py"
    assert refusal(compare, mixed, side("B", before)) == message


GATE = Gate(0.05)


def test_gate_is_not_judged_by_one_run_of_a_program_that_is_slower():
    before = side("A", budget(imports=1))
    slower = compare(before, side("B", budget(imports=2)))
    assert list(failure_lines(slower, GATE)) == []
    assert "whole program is 2.00x slower, but each program ran once" in why_not_judged(
        slower, GATE
    )
    assert gate_line(slower, GATE).startswith("Gate: not judged. The whole program is 2.00x slower")
    for other in (budget(imports=1.01), budget(imports=0.5)):
        assert gate_line(compare(before, side("B", other)), GATE).startswith("Gate: passed")


def test_gate_fails_for_iterations_and_layers_of_one_run_and_for_programs_of_several():
    before = side("A", budget(imports=1))
    once = compare(before, side("B", budget(imports=2), factor=1.5))
    message = list(failure_lines(once, GATE))
    assert message[0].startswith(f"{PROFILED}: 1.5")
    assert len(message) == 1 + 24
    several = [
        side(name, *[budget(imports=s + index / 100) for index in range(3)])
        for name, s in (("A", 1), ("B", 2))
    ]
    assert next(failure_lines(compare(*several), GATE)).startswith(f"{WHOLE}: 1.9")


def test_layers_of_a_program_are_compared_by_their_means():
    """A layer that is slow in a tenth of the iterations has an unchanged median."""
    before, after = iterations(1), iterations(2)
    self_ns = after.self_ns.copy()
    self_ns[::10, 3] *= 11
    comparison = compare(before, replace(after, self_ns=self_ns))
    assert comparison.layers["ratio"][3] == pytest.approx(2, rel=0.05)
    assert comparison.layers["verdict"][3] == SLOWER
    assert set(comparison.layers["verdict"].drop(3)) == {SAME}
    share = self_ns[:, 3].mean() / self_ns.mean(axis=0).sum()
    assert comparison.layers["after_share"][3] == pytest.approx(share)
    plain = compare(scaled(run(1), {}), scaled(run(2), {3: 1.0}))
    assert not plain.by_means
