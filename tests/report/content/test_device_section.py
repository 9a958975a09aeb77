"""What the terminal and the report say of a run on a GPU."""

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
from chainer_profile.report.content.device_section import (
    NO_HELD_TRIALS,
    device,
    explained,
    pace,
)
from chainer_profile.report.content.method import method_points
from chainer_profile.report.document import plain
from tests.report.devicing import (
    computing,
    launching,
    make_device_recording,
    make_device_training,
)
from tests.report.reading import Report, as_markdown, on_terminal, read, report_md
from tests.report.working import training, working


def section(summary: Summary) -> Report:
    return read(as_markdown(device(summary)))


def method(summary: Summary) -> str:
    return "\n".join(map(plain, method_points(summary)))


def figures(text: str) -> list[Decimal]:
    return [Decimal(number) for number in re.findall(r"([\d.]+) ms", text)]


# --- figures add up as they are shown


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


def test_phases_of_the_report_add_up() -> None:
    summary = summarise(make_device_training())
    head, *rows, whole = section(summary).tables[1]
    assert head[0] == "phase"
    assert [row[0] for row in rows] == ["forward", "backward", "update"]
    assert whole == ["all layers", "3.0000", "3.0000", "0.6000", "1.5000", "50.0"]
    for at in range(1, 5):
        assert sum(Decimal(row[at]) for row in rows) == Decimal(whole[at])
    assert rows[1] == ["backward", "1.8000", "1.8000", "0.0000", "0.9000", "50.0"]


# --- what sets the pace


def test_launch_bound_is_said_once_in_plain_words() -> None:
    assert (
        "Launch bound: the GPU waits for the host. The host needs 3.900 ms to launch what the GPU "
        "does in 600.0 us (15.0 % busy)."
    ) in section(launching()).text


def test_a_device_bound_run_is_not_called_launch_bound() -> None:
    assert "launch bound" not in on_terminal(computing())
    assert "Launch bound" not in report_md(computing())
    assert section(computing()).text[0] == (
        "The GPU sets the pace, busy for 97.4 % of it: when the host has launched all of a trial, "
        "which takes 3.900 ms, it waits for another 26.30 ms."
    )
    use = computing(n_held=0).device
    assert use is not None
    assert pace(use).startswith("The GPU sets the pace: when")


def test_without_held_trials_nothing_is_certain() -> None:
    summary = launching(n_held=0)
    assert dict(section(summary).tables[0])["GPU busy"] == NO_HELD_TRIALS
    text = on_terminal(summary)
    assert "It seems that the GPU waits" in text
    assert "busy" not in text.partition("#")[2].partition("\n")[0]
    report = section(summary)
    assert "A held trial on the GPU, median" not in report.words
    assert not re.search(r"\bnan\b", report_md(summary))
    step = summarise(make_device_training(n_held=0))
    assert section(step).tables[1][-1] == ["all layers", "3.0000", "3.0000", "0.6000", "-", "-"]


# --- words of a run on a GPU


def test_framework_is_what_is_beside_the_layers() -> None:
    text, report = on_terminal(launching()), read(report_md(launching()))
    for words in (text, report.words):
        assert "Sum of the layers, on the GPU" in words
        assert "Framework (beside the layers)" in words
        assert "between the functions" not in words
    assert (
        "It adds up: layers on the GPU 3.0000 ms + framework 1.0000 ms = profiled trial 4.0000 ms."
        in report.text
    )
    assert "median self time on the GPU" in report.words


def test_the_phases_of_a_gpu_are_the_devices() -> None:
    report = report_md(summarise(make_device_training()))
    assert "The times of a phase are the device's" in report
    assert "look at what the training loop does" not in report


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


def test_the_report_has_the_columns_by_layer() -> None:
    head, first, *_ = read(report_md(launching())).after("By layer")
    row = dict(zip(head, first, strict=True))
    found = [row[name] for name in ("mean [ms]", "host [ms]", "gap [ms]", "busy [ms]")]
    assert found == ["1.0000", "0.9000", "0.4000", "0.2000"]
    head, *_ = read(report_md(launching(n_held=0))).after("By layer")
    assert "gap [ms]" in head
    assert "busy [ms]" not in head


def test_environment_and_options_are_in_the_report() -> None:
    report = read(report_md(launching(settings={"dtype": "float16"})))
    rows = [row for table in report.tables[:2] for row in table]
    for row in (
        ["Data type", "float16"],
        ["GPU", "NVIDIA H200 (number 0)"],
        ["cuDNN", "8.9.7"],
    ):
        assert row in rows
    assert re.search("GPU before the trials +1,950 of 1,980 MHz", on_terminal(launching()))


def test_the_method_says_how_times_are_taken() -> None:
    points = method(launching())
    assert "an event is put into its queue" in points
    assert "one synchronisation at the end of each trial" in points
    assert "20 held trials came last" in points
    assert "what passes on the trial's wall clock beside the layers' time on the GPU" in points
    assert "held trial" not in method(launching(n_held=0))
    assert "That of a phase is" in method(summarise(make_device_training()))


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
