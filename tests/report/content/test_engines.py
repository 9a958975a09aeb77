"""Words and rows of a run of several engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chainer_profile.analyse.checks import check
from chainer_profile.analyse.findings import takes_options
from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.units import NOT_KNOWN, format_scientific
from chainer_profile.engines.results import OutputDifference
from chainer_profile.record.recording import BlasLibrary, Environment
from chainer_profile.report import document
from chainer_profile.report.content.engines import (
    OWN_STEPS,
    crowded,
    fusion_text,
    main_functions,
    next_steps,
    overview,
    report,
    table_columns,
    verdict,
    warnings,
    wrong_lines,
)
from chainer_profile.report.document import Heading, Text, plain, strong, text
from chainer_profile.report.tables import Table
from chainer_profile.report.text import engine_text
from chainer_profile.report.writers import terminal
from tests.engines.fake_engines import WRONG, make_run, recordings, result
from tests.goldens.words import fast


def test_small_numbers() -> None:
    assert [format_scientific(x) for x in (0.0, 1.24e-6, float("inf"))] == [
        "0",
        "1.2e-06",
        "infinite",
    ]
    nothing = OutputDifference(0.0, 0.0)
    assert format_scientific(nothing.relative) == "0"


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


@pytest.mark.parametrize("width", [50, 72, 100])
def test_a_narrow_terminal_shows_fewer_columns_and_always_chainer(width: int) -> None:
    run = make_run(WRONG, result("third", 77))
    lines = terminal.written(overview(run, recordings()), width).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("engine "))
    assert max(map(len, lines[at : at + 6])) <= max(width, 60)
    assert "vs chainer" in lines[at]
    assert "vs fast" not in lines[at]
    assert "10.00x" in lines[at + 3]
    assert "vs fast" in " ".join(lines[at + 6 :]).partition("Not shown at this width: ")[2]


def test_the_main_function_stands_for_a_node() -> None:
    found = recordings()
    names = main_functions(found["fast"], found["chainer"])
    assert names == ["Convolution2DFunction", OWN_STEPS, "Convolution2DFunction"]
    assert main_functions(found["fast"], None) == names
    assert main_functions(found["chainer"], found["chainer"])[1] == "FixedBatchNormalization"


def test_what_an_engine_s_own_clock_adds_is_said() -> None:
    recorded, run = recordings()["fast"], make_run()
    assert recorded.trial_ns is not None
    clean_ns = np.full(20, int(np.median(recorded.trial_ns)) * 4 // 5, np.int64)
    slowed = replace(recorded, clean_ns=clean_ns, clean_start_ns=clean_ns)
    assert fusion_text(run, slowed, None).endswith("; its own clock adds 25.0 % to a trial")
    for ns in (clean_ns[:0], recorded.trial_ns * 99 // 100):
        alike = replace(recorded, clean_ns=ns, clean_start_ns=ns)
        assert "clock" not in fusion_text(run, alike, None)


def test_checks_name_no_options_and_no_threads_of_blas() -> None:
    blas = Environment(blas=(BlasLibrary("openblas", "0.3", 4),))
    recording = fast(environment=blas)
    assert not takes_options(recording.settings)
    assert "threads" not in {finding.code for finding in check(summarise(recording))}
    few = fast(**{n: getattr(recording, n)[:5] for n in ("self_ns", "trial_ns")})
    (finding,) = (f for f in check(summarise(few)) if f.code == "few-trials")
    assert "--" not in finding.advice
    own = replace(recordings()["chainer"], environment=blas)
    assert "threads" not in {f.code for f in check(summarise(own))}  # they were chosen


def test_a_precision_that_is_not_known_is_left_out() -> None:
    settings = replace(fast().settings, precision="")
    assert engine_text(settings) == "fast 1.0"
