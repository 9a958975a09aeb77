from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile import summarise
from chainer_profile.report.content.pass_section import (
    limits_sentence,
    work,
    work_columns,
    work_rows,
)
from tests.conftest import make_recording
from tests.report.reading import as_markdown, report_md
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
    rows = work_rows(summary)
    shares = [float(columns["% of time"].cell(row)) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=0.06 * len(rows))
    assert {columns["phase"].cell(row) for row in rows} == {"forward", "backward", "update"}


def test_limits_of_a_gpu_have_no_threads():
    gpu = replace(LIMITS, device="gpu:0", half_flops_per_s=2e11)
    assert "Limits of this machine: 100.0" in limits_sentence(working(limits=gpu))
