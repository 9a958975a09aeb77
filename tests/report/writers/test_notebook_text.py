import dataclasses

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.units import format_duration
from chainer_profile.comparison.compare import Side, compare
from chainer_profile.record.recording import Settings
from chainer_profile.report.writers.notebook_text import (
    WIDTH,
    comparison_line,
    comparison_text,
    recording_line,
    summary_line,
    summary_text,
)
from tests.conftest import make_recording, make_training


def test_a_recording_in_a_line():
    assert recording_line(make_recording()) == (
        "<Recording of chain: 6 layers x 100 trials, forward pass, batch 1, cpu>"
    )
    cut = dataclasses.replace(make_training(), ended="interrupted")
    assert recording_line(cut).endswith(", batch 4, cpu, interrupted>")
    assert repr(cut) == recording_line(cut)
    assert str(cut) == recording_line(cut)


def test_a_summary_in_a_line():
    summary = summarise(make_recording())
    slowest = summary.layers["median_s"].idxmax()
    row = summary.layers.loc[slowest]
    line = summary_line(summary)
    assert line.startswith(
        f"<Summary of chain: {format_duration(summary.totals.clean.median_s)} a "
    )
    assert f"slowest {row['label']} at {row['path']} (" in line
    assert repr(summary) == line
    untimed = summarise(
        make_recording(
            trial_ns=None,
            start_ns=None,
            clean_ns=np.zeros(0, np.int64),
            clean_start_ns=np.zeros(0, np.int64),
        )
    )
    assert "trials not timed" in summary_line(untimed)


@pytest.mark.parametrize("name", ["a\nb\x1b[31m", "x\u202ey", "\ud800"])
def test_lines_stay_lines(name):
    layers = tuple(
        dataclasses.replace(layer, path=f"/{name}", function=name)
        for layer in make_recording().layers
    )
    settings = Settings(model=name, device=name, optimizer=name)
    recording = make_recording(layers=layers, settings=settings, ended=name)
    comparison = compare(Side(name, (recording,)), recording)
    for line in (
        repr(recording),
        repr(summarise(recording)),
        comparison_line(comparison),
    ):
        assert line.isprintable()


def test_a_comparison_in_a_line():
    before = make_recording(n_layers=12, n_trials=200)
    after = dataclasses.replace(
        before,
        self_ns=before.self_ns * 2,
        trial_ns=before.trial_ns * 2,
        clean_ns=before.clean_ns * 2,
    )
    line = comparison_line(compare(Side("old", (before,)), Side("new", (after,))))
    assert line.startswith("<Comparison of old with new: clean trial 2.00x slower, 12 of 12 ")
    other = dataclasses.replace(after, settings=dataclasses.replace(after.settings, phase="train"))
    assert "trial" not in comparison_line(compare(before, other)).partition(": ")[2]


def test_str_is_what_the_terminal_shows():
    summary = summarise(make_training())
    text = str(summary)
    assert text == summary_text(summary)
    assert max(map(len, text.split("\n"))) <= WIDTH
    assert all(line == line.rstrip() for line in text.split("\n"))
    assert "\x1b" not in text
    assert "profiled trial" in text
    assert "Convolution2DFunction" in text
    narrow = summary_text(summary, width=60, group_by="block", tree=True, depth=1)
    assert max(map(len, narrow.split("\n"))) <= 60
    assert "incl. ms" in narrow


def test_a_comparison_as_the_terminal_shows_it():
    recording = make_recording()
    text = comparison_text(compare(recording, recording))
    assert "A run stands on both sides" in text
    assert "\x1b" not in text
