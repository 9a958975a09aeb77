from __future__ import annotations

import pytest

from chainer_profile.record.recording import Layer
from chainer_profile.report.text import printable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("conv1", "conv1"),
        ("two words", "two words"),
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\ud800", "\\ud800"),
        ("é", "é"),
    ],
)
def test_printable_is_one_line(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert printable(name).isprintable()


FORWARD, BACKWARD, UPDATE, DATA = (
    Layer(0, "/", "ReLU", phase) for phase in ("forward", "backward", "update", "data")
)
