"""Words and rows of a run of several engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chainer_profile.basics.units import NOT_KNOWN, format_scientific
from chainer_profile.engines.results import EngineResult, OutputDifference, speedup
from chainer_profile.report import document
from chainer_profile.report.content.engines import (
    about_lines,
    crowded,
    factor_text,
    next_steps,
    note_lines,
    other_lines,
    overview,
    report,
    table_columns,
    verdict,
    warnings,
    wrong_lines,
)
from chainer_profile.report.document import Heading, Text, plain, strong, text
from chainer_profile.report.tables import Table
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings, result


def test_what_was_run() -> None:
    first, second = about_lines(make_run(MISSING))
    assert first == "chain under 2 engines"
    assert second.endswith("batch 1, cpu, test mode, 1 thread; 60 trials of each, in turn")


def test_what_makes_times_doubtful_is_said() -> None:
    assert warnings(make_run()) == []
    ended, busy = warnings(make_run(ended="interrupted by SIGINT", other_cpu=1.5))
    assert ended == (
        "The trials ended before all were made (interrupted by SIGINT): 60 to 60 of each engine."
    )
    assert busy.startswith("Other programs kept 1.5 of 2 cores busy")


def test_engines_that_did_not_run_say_why_and_how_to_get_them() -> None:
    bad = EngineResult("bad", error="no such function: Roll")
    assert other_lines(make_run(MISSING, bad)) == [
        "openvino: not installed: pip install openvino",
        "bad: no such function: Roll",
    ]


def test_wrong_outputs_are_no_speed_up() -> None:
    run = make_run(WRONG)
    assert factor_text(WRONG, run.engines[0]) == "wrong outputs"
    assert factor_text(run.engines[1], run.engines[0]) == "10.00x"
    assert factor_text(run.engines[0], run.engines[0]) == ""
    assert wrong_lines(run) == [
        "hasty: wrong outputs: they differ by up to 5.0e-01, which is 2.5e-01 of the largest "
        "output (2.000), above the tolerance of 1.0e-04; the first layer that differs is "
        "3_Convolution2DFunction at /res2/1/conv1"
    ]


def test_the_fastest_right_engine_is_recommended() -> None:
    steps = list(next_steps(make_run(WRONG, MISSING)))
    assert steps[0].startswith("Do not use hasty as it is")
    assert steps[1].startswith("Take fast: it is 10.00x as fast as chainer. ")
    assert steps[2] == "openvino was not tried; pip install openvino installs it."
    assert len(steps) == 3


def test_chainer_s_faster_kernels_are_named_beside_a_faster_engine() -> None:
    *_, last = next_steps(make_run(result("chainer-fast", 500)))
    assert last.startswith(
        "Where nothing may be installed beside Chainer, chainer-fast gives 2.00x"
    )


def test_an_engine_that_cannot_be_told_from_the_best_is_named_too() -> None:
    *_, last = next_steps(make_run(result("onnxruntime", 100)))
    assert last.startswith("onnxruntime is as fast as far as these trials can tell")


def test_where_nothing_is_faster_chainer_stays() -> None:
    run = make_run()
    slow = replace(run, engines=(run.engines[0], result("slow", 1000)))
    assert list(next_steps(slow)) == [
        "No engine is faster than chainer here beyond doubt: stay with it."
    ]
    assert list(next_steps(replace(run, engines=run.engines[:1]))) == []


def test_small_numbers() -> None:
    assert [format_scientific(x) for x in (0.0, 1.24e-6, float("inf"))] == [
        "0",
        "1.2e-06",
        "infinite",
    ]
    nothing = OutputDifference(0.0, 0.0)
    assert format_scientific(nothing.relative) == "0"


# --- the verdict, and what comes behind it


def test_the_verdict_names_the_fastest_right_engine() -> None:
    assert verdict(make_run(WRONG, MISSING, result("chainer-fast", 500))) == (
        "fast is 10.00x as fast as chainer: 1.000 ms a trial, and 100.0 us, 95 % interval 10.00x "
        "to 10.00x."
    )


def test_the_verdict_where_nothing_is_faster() -> None:
    run = make_run()
    slow = replace(run, engines=(run.engines[0], result("slow", 1000)))
    said = "No engine is faster than chainer beyond doubt: 1.000 ms a trial."
    assert verdict(slow) == said
    # Wrong outputs are no speed-up.
    assert "hasty" not in verdict(replace(run, engines=(run.engines[0], WRONG)))
    alone = replace(run, engines=run.engines[:1])
    assert verdict(alone) == "No other engine ran beside chainer: 1.000 ms a trial."
    others = replace(run, engines=run.engines[1:])
    assert verdict(others) == "1 engine ran, and Chainer did not."


@pytest.mark.parametrize("show", [report, overview])
def test_the_verdict_comes_first_and_doubts_behind_it(show: Callable[..., Any]) -> None:
    run = make_run(WRONG, other_cpu=1.5)
    blocks = list(show(run, recordings()))
    at = blocks.index(text(strong(verdict(run))))
    assert all(isinstance(block, (Heading, Text)) for block in blocks[:at])
    doubts = [*warnings(run), *wrong_lines(run)]
    notes = blocks[at + 1 : at + 1 + len(doubts)]
    assert [plain(block.words) for block in notes] == doubts
    assert all(block.note for block in notes)
    assert sum(isinstance(block, Text) and block.note for block in blocks) == len(doubts)
    table = next(block for block in blocks if isinstance(block, Table))
    marks = [table.mark(row) for row in range(3)]
    assert marks == ["", "", document.WRONG]


def test_an_engine_that_may_be_fastest_hides_none_that_is_faster_for_sure() -> None:
    run = make_run()
    baseline, sure = run.engines[0], run.engines[1]
    # Thirty times as fast in 17 of 30 rounds, and a third as fast in the others.
    seventeen = np.arange(60) // 2 < 17
    times_ns = np.where(seventeen, baseline.clean_ns // 30, baseline.clean_ns * 3)
    unsure = replace(sure, name="unsure", clean_ns=times_ns)
    found = replace(run, engines=(baseline, sure, unsure))
    gain = speedup(unsure, baseline)
    assert gain is not None
    assert gain.factor > 10
    assert gain.low <= 1
    assert verdict(found).startswith(f"{sure.name} is ")
    assert next(next_steps(found)).startswith(f"Take {sure.name}: ")


def test_while_others_keep_the_cores_no_engine_is_advised() -> None:
    alone, crowd = make_run(), make_run(other_cpu=1.9)
    assert any("Take fast" in step for step in next_steps(alone))
    assert not any("Take" in step for step in next_steps(crowd))
    assert "95 % interval" in verdict(alone)
    assert verdict(crowd).endswith(
        "while other programs kept the cores: how it is without them is not known."
    )
    intervals = [
        ["95 %" in column.name for column in table_columns(run)].count(True)
        for run in (alone, crowd)
    ]
    assert intervals == [1, 0]
    # A program beside an engine of one thread, on two cores.
    assert not crowded(make_run(other_cpu=1.1))


def test_memory_is_shown_where_it_is_known() -> None:
    run = make_run()
    first, *others = run.engines
    known = replace(run, engines=(replace(first, memory_nbytes=3 << 20), *others))
    without, table = (
        next(block for block in overview(one, {}) if isinstance(block, Table))
        for one in (run, known)
    )
    assert "Memory" not in without.head
    assert "Memory is by" not in without.notes()
    at = table.head.index("Memory")
    assert [row[at] for row in table.cells()] == ["3.0 MiB", NOT_KNOWN]
    assert "Memory is by how much the process grew" in table.notes()


def test_several_runs_at_a_time_are_told_of() -> None:
    run = make_run()
    first, fast, *others = run.engines
    served = replace(fast, jobs=2, served_per_s=19_000.0)
    assert note_lines(run) == []
    assert note_lines(replace(run, engines=(first, served, *others))) == [
        "fast: 2 runs at a time: 19,000 iterations/s, 1.90x as many as one by one"
    ]
