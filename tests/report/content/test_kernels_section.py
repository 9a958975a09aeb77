"""The report's section on what the GPU runs for every layer."""

from __future__ import annotations

from typing import Any

import pytest

from chainer_profile import summarise
from chainer_profile.record.recording import Kernel, Kernels, Recording
from chainer_profile.report.page import render
from chainer_profile.report.pictures import trace
from chainer_profile.report.writers import json_report
from tests.conftest import make_recording
from tests.report.devicing import DEVICE_BOUND, KERNELS, make_device_recording
from tests.report.reading import report_md
from tests.report.tracing import read

HEADING = "### Kernels\n"


def section(recording: Recording) -> str:
    text = report_md(summarise(recording))
    return text.partition(HEADING)[2].partition("\n### ")[0].partition("\n## ")[0]


def test_the_table_and_the_check() -> None:
    text = section(make_device_recording(kernels=KERNELS))
    assert (
        "Seen by cupti-python 13.4.0 in 2 trials behind all others: kernels, copies and fills run "
        "for 600.0 us a trial." in text
    )
    assert (
        "Those of the layers add up to 95.0 % of the time that the GPU is busy in the layers; the "
        "rest lies between kernels. 95.0 % of them have a layer." in text
    )
    assert "CUPTI had no room for 3 records: what they tell of is missing, or has no layer." in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    table = [row for row in rows if len(row) == 5 and row[0] != "layer" and row[2].strip("-:")]
    assert [row[2:] for row in table][:2] == [["1", "0.0300", "5.0"], ["4", "0.1600", "26.7"]]
    assert table[-1][0] == "(no layer)"
    assert len(table) == len(KERNELS.kernels)
    # The counts of a trial that has one in two.
    assert table[-1][2] == "0.5000"


def test_more_than_the_busy_time_is_said() -> None:
    twice = Kernels(1, (Kernel("gemm", 0, 1, 1_200_000),), method="it")
    text = section(make_device_recording(kernels=twice))
    assert "add up to 200.0 % of the time that the GPU is busy in the layers; that is more" in text
    alone = section(make_device_recording(DEVICE_BOUND, kernels=twice, n_held=0))
    assert "add up" not in alone


def test_a_reason_takes_the_place_of_the_table() -> None:
    recording = make_device_recording(kernels=Kernels(problem="it is not installed"))
    assert section(recording).strip() == "Not seen: it is not installed."
    assert HEADING not in report_md(summarise(make_device_recording()))
    assert HEADING not in report_md(summarise(make_recording()))


def test_long_names_are_cut_and_whole_in_json() -> None:
    name = "void gemm<" + "float, " * 100 + "1>(int)"
    recording = make_device_recording(kernels=Kernels(1, (Kernel(name, 0, 1, 5000),), method="it"))
    assert f"{name[:100]}..." in section(recording)
    assert name not in section(recording)
    (one,) = json_report.content(summarise(recording))["kernels"]["kernels"]
    assert one == {"layer_index": 0, "name": name, "count": 1.0, "time_s": 5e-06, "share": 1.0}


def test_it_is_on_the_page() -> None:
    shown = render(summarise(make_device_recording(kernels=KERNELS)))
    assert 'href="#kernels"' in shown
    assert "gemm&lt;float, 128&gt;" in shown
    assert 'href="#kernels"' not in render(summarise(make_device_recording()))


def test_the_trace_has_them_below_their_layers() -> None:
    recording = make_device_recording(kernels=KERNELS)
    found = read(trace.render(summarise(recording)))
    pid = found.pid(": device")
    below = found.tracks[pid, "kernels"]
    layers = {block.args["index"]: block for block in found.functions(pid)}
    rows = [one.row for one in KERNELS.kernels if one.row is not None]
    assert [block.name for block in below] == [one.name for one in KERNELS.kernels[:-1]]
    for block, row in zip(below, rows, strict=True):
        assert layers[row].begin <= block.begin <= block.end <= layers[row].end
    assert below[1].args == {"runs_in_a_trial": 4.0, "mean_us": 160.0}
    assert any("Kernels" in line for line in found.other["places"])
    plain = read(trace.render(summarise(make_device_recording())))
    assert (plain.pid(": device"), "kernels") not in plain.tracks


@pytest.mark.parametrize("change", [{"row": 6}, {"row": -1}, {"count": -1}, {"time_ns": -5}])
def test_a_file_that_no_run_has_written(change: dict[str, Any], tmp_path: Any) -> None:
    fields = {"name": "a", "row": 0, "count": 1, "time_ns": 5} | change
    recording = make_device_recording(kernels=Kernels(1, (Kernel(**fields),)))
    recording.save(tmp_path / "recording.npz")
    with pytest.raises(Exception, match="damaged recording"):
        Recording.load(tmp_path / "recording.npz")
