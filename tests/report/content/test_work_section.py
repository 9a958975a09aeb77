from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile import summarise
from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.content.work_section import (
    limits_sentence,
    work,
    work_columns,
    work_rows,
)
from chainer_profile.report.tables import meanings
from tests.conftest import make_recording
from tests.report.reading import as_markdown, layers_csv, report_md
from tests.report.working import LIMITS, training, working


def test_a_run_without_formulas_says_nothing():
    summary = summarise(make_recording())
    assert list(work(summary)) == []
    assert "Work and limits" not in report_md(summary)


def test_the_section_has_limits_functions_and_what_has_no_formula():
    text = as_markdown(work(working()))
    assert "100.0 GFLOP/s in a float32 matrix product, 20.00 GB/s over an array" in text
    assert "(8.000 GB/s in a copy into new memory)" in text
    assert "Limits of this machine with 2 BLAS threads" in text
    assert "| Convolution2DFunction | " in text
    assert "Without a formula, with their part of the layers' time: ReLU (" in text
    assert "![Roofline plot of the layers](roofline.png)" in text
    assert "from 5.000 operations a byte" in text


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


def test_the_report_holds_both_sections():
    text = report_md(working())
    order = ["### Work and limits", "### Memory", "### By layer", "### Work and memory by layer"]
    assert sorted(order, key=text.index) == order
    assert "roofline.png" in text
    assert "of this machine's matrix rate (100.0 GFLOP/s)" in text


def test_the_csv_holds_work_and_memory():
    lines = layers_csv(working()).splitlines()
    head = lines[0].split(",")
    assert head == list(meanings(LAYER_COLUMNS))
    first = dict(zip(head, lines[1].split(","), strict=True))
    assert (first["flops"], first["macs"]) == ("10000000", "5000000")
    assert (first["nbytes_read"], first["nbytes_written"]) == ("400000", "200000")
    seconds = float(first["median_ms"]) / 1e3
    assert float(first["gflops_per_s"]) == pytest.approx(0.01 / seconds)
    assert float(first["gbytes_per_s"]) == pytest.approx(0.0006 / seconds)
    assert float(first["intensity"]) == pytest.approx(10 / 0.6)
    assert float(first["reached_percent"]) == pytest.approx(100 * 1e-4 / seconds)
    assert (first["peak_nbytes"], first["retained_nbytes"]) == ("1024", "512")
    # By the shapes: 16x32x32 numbers of 4 bytes.
    assert (first["output_nbytes"], first["workspace_nbytes"]) == ("65536", "0")
    assert first["input_nbytes"] == first["parameter_nbytes"] == ""
    last = dict(zip(head, lines[-1].split(","), strict=True))
    for name in ("flops", "macs", "gflops_per_s", "intensity", "reached_percent", "verdict"):
        assert last[name] == ""


def test_limits_of_a_gpu_have_no_threads():
    gpu = replace(LIMITS, device="gpu:0", half_flops_per_s=2e11)
    assert "Limits of this machine: 100.0" in limits_sentence(working(limits=gpu))
