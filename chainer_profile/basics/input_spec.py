"""Arguments of a network, as they are asked for on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import parse_shape

_FORM = (
    "write [NAME=]SHAPE[:DTYPE[:RANGE]], such as 3x224x224, t=one:int32:1000, 20:int32:0..9999 or "
    "5..20x128 for sequences of 5 to 20 steps"
)
#: A shape of nothing beside the batch: a number for every input, such as a label.
ONE = "one"


@dataclass(frozen=True)
class InputSpec:
    """An argument that is made at random.

    Attributes:
        shape: Shape of one input without the batch; of a sequence that of one step.
        lengths: Least and most steps of a sequence: the argument is a list of arrays, one for every
            input of the batch. None for one array of all of them.
        dtype: Data type of integers; empty for floats, which are of Chainer's ``config.dtype``.
        values: Least and largest of integers.
        name: Name of the argument; empty for one by position.
    """

    shape: tuple[int, ...]
    lengths: tuple[int, int] | None = None
    dtype: str = ""
    values: tuple[int, int] = (0, 1)
    name: str = ""


def parse_input(text: str) -> InputSpec:
    """Reads ``[NAME=]SHAPE[:DTYPE[:RANGE]]``.

    ``SHAPE`` is ``3x32x32``, ``one`` for a number of every input, or ``5..20`` and ``5..20x128``
    for a list of sequences. ``RANGE`` is for integers: ``1000`` for 0 to 999, or ``1..10``.
    """
    match = re.fullmatch(r"(?:([^\W\d]\w*)=)?([^:=]+)(?::(\w+))?(?::([^:]+))?", text.strip())
    if match is None:
        raise UsageError(f"not an input: {text!r}; {_FORM}")
    name, size, dtype, values = match.groups()
    lengths = None
    steps = re.fullmatch(r"([0-9]{1,9})\.\.([0-9]{1,9})(?:[xX](.+))?", size)
    if steps is not None:
        lengths = int(steps[1]), int(steps[2])
        if not 1 <= lengths[0] <= lengths[1]:
            raise UsageError(f"not an input: {text!r}; a sequence has 1 step or more: {_FORM}")
        size = steps[3] or ONE
    shape = () if size == ONE else parse_shape(size)
    integers = dtype or ""
    if integers.startswith("float"):
        if values is not None:
            raise UsageError(f"not an input: {text!r}; a range is for integers")
        integers = ""
    elif integers and not re.fullmatch(r"u?int(8|16|32|64)", integers):
        raise UsageError(f"not an input: {text!r}; {dtype} is no data type: {_FORM}")
    if values is not None and dtype is None:
        raise UsageError(f"not an input: {text!r}; {_FORM}")
    return InputSpec(shape, lengths, integers, parse_range(values or "2"), name or "")


def parse_range(text: str) -> tuple[int, int]:
    """Reads ``1000``, which is 0 to 999, or ``1..10``."""
    match = re.fullmatch(r"(?:(-?[0-9]{1,18})\.\.)?(-?[0-9]{1,18})", text)
    if match is None:
        raise UsageError(f"not a range: {text!r}; write 1000 for 0 to 999, or 1..10")
    least = int(match[1] or 0)
    most = int(match[2]) - (match[1] is None)
    if most < least:
        raise UsageError(f"not a range: {text!r}; it holds no number")
    return least, most
