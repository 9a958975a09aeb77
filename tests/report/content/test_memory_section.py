from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import PhaseMemory
from chainer_profile.report.content import boxes
from chainer_profile.report.content.memory_section import (
    memory,
    memory_parts,
    memory_sentences,
    peak_columns,
)
from tests.conftest import make_recording
from tests.report.reading import as_markdown, read
from tests.report.working import training, working


def part(summary: Summary) -> str:
    return as_markdown(memory(summary))


def test_without_a_memory_pass_there_is_nothing() -> None:
    summary = summarise(make_recording())
    assert list(memory(summary)) == []
    assert memory_sentences(summary) == []


def test_memory_names_the_high_water_and_the_highest_peaks() -> None:
    text = part(working())
    assert "One trial allocates up to 1.0 MiB beyond what is there at its begin, in 1_" in text
    assert "Parameters take 4.0 KiB, the input 2.0 KiB." in text
    assert "for the backward phase" not in text
    assert "By phase" not in text
    (table,) = read(text).tables
    assert table[0] == ["#", "path", "function", "peak", "workspace", "left allocated"]
    assert [row[0] for row in table[1:]] == ["5", "4", "3", "2", "1", "0"]
    assert table[1][3:] == ["6.0 KiB", "0 B", "-512 B"]


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
    (picture,) = boxes.memory(summary)
    assert len(picture.boxes) == len(picture.legend) == 5
    # Those of older versions are not known; nor are boxes.
    assert memory_parts(training()) == []
    assert not list(boxes.memory(training()))


def test_memory_of_a_training_step_says_what_is_kept() -> None:
    use = training().recording.memory
    assert use is not None
    use = replace(use, kept_for_backward_nbytes=3 << 20, high_water_layer=None)
    text = part(training(memory=use))
    assert "The forward phase leaves 3.0 MiB of activations for the backward phase." in text
    assert "between the layers" in text


def test_memory_by_phase() -> None:
    phases, peaks = read(part(training())).tables
    assert phases == [
        ["phase", "high water", "left allocated"],
        ["forward", "1.0 MiB", "1.0 KiB"],
        ["backward", "512.0 KiB", "-1.0 KiB"],
        ["update", "256.0 KiB", "-3.0 KiB"],
    ]
    assert peaks[0][3] == "phase"
    assert len(peaks) == 11


def test_older_recordings_have_no_phases() -> None:
    use = training().recording.memory
    assert use is not None
    assert "By phase" not in part(training(memory=replace(use, phases=())))


def test_a_phase_may_run_below_the_begin() -> None:
    use = training().recording.memory
    assert use is not None
    phases = (PhaseMemory("a|b", -2048, 0), PhaseMemory("b", 0, -1))
    (first, second), _ = [
        t[1:] for t in read(part(training(memory=replace(use, phases=phases)))).tables
    ]
    assert first == ["a|b", "-2.0 KiB", "0 B"]
    assert second == ["b", "0 B", "-1 B"]


@pytest.mark.parametrize("name", ["a|b", "*x*", "<b>", "_y_", "a\nb"])
def test_any_name(name: str) -> None:
    summary = working()
    layers = tuple(replace(layer, path=f"/{name}") for layer in summary.recording.layers)
    shown = read(part(working(layers=layers)))
    assert shown.html == []
    path = "/" + name.replace("\n", "\\n")
    assert f"at {path} (forward)" in shown.words
    assert {row[1] for row in shown.tables[0][1:]} == {path}


def test_layers_of_the_same_peak_are_in_order() -> None:
    use = working().recording.memory
    assert use is not None
    summary = working(memory=replace(use, peak_nbytes=(5, 7, 7, 5, 7, 5)))
    (table,) = read(part(summary)).tables
    assert [row[0] for row in table[1:5]] == ["1", "2", "4", "0"]


def test_the_peak_stays_on_a_narrow_console() -> None:
    drops = {column.name: column.drop for column in peak_columns(training())}
    assert drops["peak"] == drops["function"] == 0 < drops["left allocated"] < drops["workspace"]
