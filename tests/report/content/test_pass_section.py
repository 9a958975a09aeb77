"""What the passes beside the timed trials say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.analyse.roofline import work_by_function
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.content.pass_section import counters as counted
from chainer_profile.report.content.pass_section import (
    limits_sentence,
    memory,
    memory_on_page,
    memory_parts,
    memory_sentences,
    peak_columns,
    work,
    work_columns,
)
from chainer_profile.report.document import Boxes
from tests.conftest import make_recording
from tests.counting import counters
from tests.report.reading import as_markdown, read, report_md
from tests.report.working import LIMITS, training, working


def test_a_run_without_formulas_says_nothing():
    summary = summarise(make_recording())
    assert list(work(summary)) == []
    assert "Work and limits" not in report_md(summary)


def test_without_limits_there_is_no_verdict_and_no_plot():
    text = as_markdown(work(working(limits=None)))
    assert "GFLOP/s" in text
    assert "bound" not in text
    assert "roofline.png" not in text
    assert limits_sentence(working(limits=None)) == ""


@pytest.mark.parametrize("macs", [False, True])
def test_the_columns_add_up(macs):
    summary = training()
    columns = {column.name: column for column in work_columns(summary, macs)}
    assert ("MMAC" in columns) is macs
    assert ("MFLOP" in columns) is not macs
    rows = list(work_by_function(summary.layers).itertuples())
    shares = [float(columns["% of time"].cell(row)) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=0.06 * len(rows))
    assert {columns["phase"].cell(row) for row in rows} == {"forward", "backward", "update"}


def test_limits_of_a_gpu_have_no_threads():
    gpu = replace(LIMITS, device="gpu:0", half_flops_per_s=2e11)
    assert "Limits of this machine: 100.0" in limits_sentence(working(limits=gpu))


def test_none_without_the_pass():
    assert list(counted(summarise(make_recording()))) == []


def test_times_by_function_add_up_to_those_of_the_layers():
    recording = make_recording(3)
    _, table = counted(summarise(replace(recording, counters=counters(recording))))
    cells = [[column.cell(row) for column in table.columns] for row in table.rows]
    assert sum(float(row[2]) for row in cells) == pytest.approx(0.27)


def test_the_system_s_time_by_layer_of_older_versions_is_passed_over():
    recording = make_recording(3)
    now = counters(recording, fault_ns=None)
    by_layer = tuple(
        replace(one, layers=(9,) * 3, framework=(9,) * len(recording.phases)) for one in now.counted
    )
    old = summarise(replace(recording, counters=replace(now, counted=by_layer)))
    assert set(old.layers["verdict"]) == {""}


def boxes(summary: Summary) -> list[Boxes]:
    return [block for block in memory_on_page(summary) if isinstance(block, Boxes)]


def part(summary: Summary) -> str:
    return as_markdown(memory(summary))


def test_without_a_memory_pass_there_is_nothing() -> None:
    summary = summarise(make_recording())
    assert list(memory(summary)) == []
    assert memory_sentences(summary) == []


def test_the_whole_peak_of_a_step_is_told_in_parts() -> None:
    use = training().recording.memory
    assert use is not None
    summary = training(memory=replace(use, gradient_nbytes=3 << 20, state_nbytes=6 << 20))
    assert part(summary).startswith(
        "A trial has up to 10.0 MiB at once, in 1_Convolution2DFunction at /res/0/conv (forward): "
        "4.0 KiB of parameters, 3.0 MiB of gradients, 6.0 MiB of the optimizer's state, 2.0 KiB of "
        "input, and 1.0 MiB that it allocates beyond these."
    )
    found = memory_parts(summary)
    assert sum(nbytes for _, nbytes in found) == (10 << 20) + 4096 + 2048
    (picture,) = boxes(summary)
    assert len(picture.boxes) == len(picture.legend) == 5
    # Those of older versions are not known; nor are boxes.
    assert memory_parts(training()) == []
    assert not boxes(training())


def test_layers_of_the_same_peak_are_in_order() -> None:
    use = working().recording.memory
    assert use is not None
    summary = working(memory=replace(use, peak_nbytes=(5, 7, 7, 5, 7, 5)))
    (table,) = read(part(summary)).tables
    assert [row[0] for row in table[1:5]] == ["1", "2", "4", "0"]


def test_the_peak_stays_on_a_narrow_console() -> None:
    drops = {column.name: column.drop for column in peak_columns(training())}
    assert drops["peak"] == drops["function"] == 0 < drops["left allocated"] < drops["workspace"]
