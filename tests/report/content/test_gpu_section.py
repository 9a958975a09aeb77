"""What is said of a run on a GPU, and of the GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import Environment, Gpu, Recording
from chainer_profile.report.content.gpu_section import device, explained, gpu_rows, on_gpu
from chainer_profile.report.content.method import method_points
from chainer_profile.report.document import plain
from tests.conftest import make_recording
from tests.report.devicing import GPU, launching, make_device_recording, make_device_training
from tests.report.reading import Report, as_markdown, on_terminal, read, report_md
from tests.report.working import training, working


def ran_on(gpu: Gpu | None, **changes: object) -> Recording:
    return make_device_recording(environment=Environment(gpu=gpu), **changes)


def test_names_cannot_break_lines() -> None:
    recording = ran_on(replace(GPU, name="a\nb"))
    assert dict(gpu_rows(recording))["GPU"] == "a\\nb (number 0)"


def test_a_cpu_has_none_of_it() -> None:
    recording = make_recording()
    assert gpu_rows(recording) == []
    assert on_gpu(summarise(recording)) == ""
    assert on_gpu(launching()) == " on the GPU"


def section(summary: Summary) -> Report:
    return read(as_markdown(device(summary)))


def method(summary: Summary) -> str:
    return "\n".join(map(plain, method_points(summary)))


def figures(text: str) -> list[Decimal]:
    return [Decimal(number) for number in re.findall(r"([\d.]+) ms", text)]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_the_shown_parts_add_up_whatever_the_times(seed: int, n_trials: int) -> None:
    rng = np.random.default_rng(seed)
    own, host, gaps = (rng.integers(0, 10**6, (n_trials, 6)) for _ in range(3))
    more, wait, rest = (rng.integers(0, 10**6, n_trials) for _ in range(3))
    launch = host.sum(axis=1) + more
    summary = summarise(
        make_device_recording(
            n_trials=n_trials,
            self_ns=own,
            host_ns=host,
            gap_ns=gaps,
            launch_ns=launch,
            trial_ns=launch + wait,
            span_ns=own.sum(axis=1) + gaps.sum(axis=1) + rest,
        )
    )
    rows = dict(section(summary).tables[0])
    assert sum(map(Decimal, re.findall(r"([\d.]+) %", rows["GPU busy"]))) == 100
    assert summary.totals.profiled is not None
    (wall,) = figures(rows["Wall time of a profiled trial"])
    assert float(wall) == pytest.approx(summary.totals.profiled.mean_s * 1e3, abs=6e-5)
    sums = [text for text in section(summary).text if " = " in text]
    assert len(sums) == 2
    for text in sums:
        *parts, whole = figures(text)
        assert sum(parts) == whole


@pytest.mark.parametrize("width", [80, 120, 200])
def test_columns_of_a_gpu_are_shown_where_they_fit(width: int) -> None:
    for summary in (launching(), summarise(make_device_training())):
        text = on_terminal(summary, width)
        assert max(map(len, text.splitlines())) <= width
        heads = [line for line in text.splitlines() if "median ms" in line and "path" in line]
        head = heads[0]
        assert {"host", "busy", "median"} <= set(head.split())
        flat = " ".join(text.split())
        named = re.search(r"Not shown at this width: ([^(]*)", flat)
        assert ("gap" in head.split()) == (width > 80) == (not named or "gap" not in named[1])
        assert "Times are self times on the GPU in ms" in flat
        assert "busy is the time on the device when it never waits for the host." in flat


def test_what_the_columns_mean() -> None:
    assert explained(["mean ms", "%"]) == ""
    assert explained(["host"]) == "Host is the time of the host in the layer's call."
    assert explained(["busy", "gap"]) == (
        "Gap is the time on the device between the layer before and this one, busy is the time on "
        "the device when it never waits for the host."
    )


@pytest.mark.parametrize("make", [working, training])
def test_nothing_of_a_gpu_is_said_of_a_cpu(make: Any) -> None:
    summary = make()
    # That one might do it better is said.
    summary = replace(summary, findings=tuple(one for one in summary.findings if one.code != "gpu"))
    text, report = on_terminal(summary, 200), report_md(summary)
    report = report.partition("### Files beside this report")[0]
    for words in (text, report):
        assert not re.search(r"GPU|\bdevice's|host \[|\bbusy\b|\bheld\b|launch bound", words)
    assert list(device(summary)) == []
