"""How values of options are read."""

from __future__ import annotations

import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import parse_device
from chainer_profile.cli.machine import parser as machine_parser
from chainer_profile.cli.profile import parser as run_parser


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((name, -1) for name in ("@numpy", "numpy", "cpu", "-1")),
        *((name, 0) for name in ("@cupy:0", "cupy:0", "gpu:0", "cuda:0", "0")),
        ("@cupy:13", 13),
    ],
)
def test_devices(text, number):
    assert parse_device(text) == number


@pytest.mark.parametrize(
    "text", ["", "@cupy", "-2", "@intel64", "native", "cpu:0", "0x1", "1" * 50]
)
def test_no_devices(text):
    with pytest.raises(UsageError, match="is no device that can be profiled") as caught:
        parse_device(text)
    assert len(str(caught.value)) < 160


@pytest.mark.parametrize("parser", [run_parser, machine_parser])
def test_a_device_is_a_gpus_number(parser):
    assert parser().parse_args([]).gpu == -1
    assert parser().parse_args(["-g", "1"]).gpu == 1
    assert parser().parse_args(["--device", "@cupy:2"]).gpu == 2
    assert parser().parse_args(["-d", "@numpy"]).gpu == -1
    # The last one counts, as with any option.
    assert parser().parse_args(["-g", "1", "-d", "@cupy:3"]).gpu == 3
