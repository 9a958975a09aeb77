"""What findings say of gains in general is what the documents' tables say."""

from __future__ import annotations

import pytest

from chainer_profile.analyse.changes import KNOWN_GAINS
from tests import ROOT


def column(file: str, heading: str) -> list[float]:
    """The numbers of a table's column that begins with a word."""
    lines = [line.split("|") for line in (ROOT / file).read_text().splitlines()]
    at, begin = next(
        (cells.index(cell), row)
        for row, cells in enumerate(lines)
        for cell in cells
        if cell.strip() == heading
    )
    found = []
    for cells in lines[begin + 2 :]:
        if len(cells) <= at:
            break
        if cells[at].strip():
            found.append(float(cells[at]))
    return found


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("onnxruntime", "onnxruntime"),
        ("openvino", "openvino fp32"),
        ("numpy", "NumPy alone"),
        ("torch", "PyTorch's kernels"),
    ],
)
def test_gains_are_those_of_the_documents(name: str, heading: str) -> None:
    known = KNOWN_GAINS[name]
    numbers = column(known.source, heading)
    assert (known.least, known.most) == (min(numbers), max(numbers))
