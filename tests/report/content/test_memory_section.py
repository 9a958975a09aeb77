from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.content.pass_section import (
    memory,
    memory_on_page,
    memory_parts,
    memory_sentences,
    peak_columns,
)
from chainer_profile.report.document import Boxes
from tests.conftest import make_recording
from tests.report.reading import as_markdown, read
from tests.report.working import training, working


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
