"""The section of the counters pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Counters
from chainer_profile.report.content.counters_section import counters as section
from chainer_profile.report.tables import Table
from tests.conftest import make_recording, make_training
from tests.counting import counters


def blocks(recording, **more):
    return list(section(summarise(replace(recording, counters=counters(recording, **more)))))


def headings(table):
    return [column.name for column in table.columns]


def test_none_without_the_pass():
    assert list(section(summarise(make_recording()))) == []


def test_sentence_and_table():
    sentence, table = blocks(make_recording(3))
    said = "".join(map(str, sentence.words))
    assert said == (
        "In 4 trials made for this, the calling thread used 360.0 us of CPU time in 400.0 us. The "
        "system takes 10.0 % of it (36.00 us). A trial has 200 page faults of at least 100.0 ns "
        "each: 20.00 us. Other threads of BLAS are not in it."
    )
    assert isinstance(table, Table)
    assert headings(table) == [
        *("function", "wall ms", "cpu ms", "page faults", "waits", "preemptions"),
    ]
    cells = [[column.cell(row) for column in table.columns] for row in table.rows]
    assert sum(float(row[2]) for row in cells) == pytest.approx(0.27)


def test_a_recording_of_an_older_version_has_no_price_of_a_fault():
    recording = make_recording(3)
    now = counters(recording, fault_ns=None)
    # It has the system's time by layer, which is passed over.
    by_layer = tuple(
        replace(one, layers=(9,) * 3, framework=(9,) * len(recording.phases)) for one in now.counted
    )
    old = replace(recording, counters=replace(now, counted=by_layer))
    sentence, table = section(summarise(old))
    said = "".join(map(str, sentence.words))
    assert "A trial has 200 page faults. What one costs was not measured" in said
    assert not [name for name in headings(table) if "system" in name]
    assert set(summarise(old).layers["verdict"]) == {""}


def test_phases_have_a_table_of_their_own():
    _, by_function, by_phase = blocks(make_training())
    assert headings(by_phase)[0] == "phase"
    assert len(by_phase.rows) < len(by_function.rows)


def test_counters_of_the_processor_of_older_versions_are_passed_over():
    sentence, table = blocks(make_recording(3), cycles=100, instructions=250, cache_misses=7)
    now, its_table = blocks(make_recording(3))
    assert sentence.words == now.words
    assert headings(table) == headings(its_table)


def test_a_thread_s_time_alone():
    recording = make_recording(2)
    whole = counters(recording)
    alone = Counters(whole.trials, whole.counted[:2])
    sentence, table = section(summarise(replace(recording, counters=alone)))
    assert "system" not in "".join(map(str, sentence.words))
    assert headings(table) == ["function", "wall ms", "cpu ms"]
    nothing = Counters(whole.trials, tuple(replace(one, layers=(0, 0)) for one in whole.counted))
    _, table = section(summarise(replace(recording, counters=nothing)))
    assert [column.cell(table.rows[0]) for column in table.columns][1] == "0.0000"
