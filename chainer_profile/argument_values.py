"""How values of the command line's options are read."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chainer_profile.choosing import split_names
from chainer_profile.errors import UsageError


def whole(minimum: int) -> Callable[[str], int]:
    """A parser of whole numbers from this one on."""

    def parse(text: str) -> int:
        # 18 digits are more than anything needs, and keep int() away from endless ones.
        if not re.fullmatch("-?[0-9]{1,18}", text) or int(text) < minimum:
            raise argparse.ArgumentTypeError(
                f"must be a whole number, {minimum} or more, not {text[:40]!r}"
            )
        return int(text)

    return parse


def positive_seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text[:40]!r}")
    return seconds


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """One of our parsers as argparse wants it."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def size(text: str) -> tuple[int, ...]:
    """A height and a width."""
    lengths = shape(text)
    if len(lengths) != 2:
        raise UsageError(f"not a height and a width: {text!r}; write them as 1024x2048")
    return lengths


def shape(text: str) -> tuple[int, ...]:
    """The shape of an input."""
    from chainer_profile.inputs import parse_shape

    return parse_shape(text)


def layer_columns(text: str) -> tuple[str, ...]:
    """Names of columns of the layer table."""
    from chainer_profile.renderers.layer_columns import choose_layer_columns

    return choose_layer_columns(split_names(text))


def folder(text: str) -> Path:
    """A folder's name."""
    if not text:
        raise argparse.ArgumentTypeError("must be the name of a folder, not ''")
    return Path(text)


def parse_device(text: str) -> int:
    """Number of the GPU, -1 for the CPU, from a device as Chainer names it.

    ``@cupy:0``, ``cupy:0``, ``gpu:0``, ``cuda:0`` and ``0`` are the first GPU; ``@numpy``,
    ``cpu`` and ``-1`` the CPU.

    Raises:
        UsageError: The text names no such device.
    """
    if text in ("@numpy", "numpy", "cpu", "-1"):
        return -1
    match = re.fullmatch(r"(?:(?:@?cupy|gpu|cuda):)?([0-9]{1,4})", text)
    if match is None:
        raise UsageError(
            f"{text[:40]!r} is no device that can be profiled: give @numpy for the CPU, or @cupy:0 "
            "for the first GPU"
        )
    return int(match[1])
