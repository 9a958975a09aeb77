"""How values of the command line's options are read."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import plural


def whole(minimum: int) -> Callable[[str], int]:
    """A parser of whole numbers of at least ``minimum``."""

    def parse(text: str) -> int:
        # 18 digits are more than anything needs, and keep int() away from endless ones.
        if not re.fullmatch("-?[0-9]{1,18}", text) or int(text) < minimum:
            raise UsageError(f"must be a whole number, {minimum} or more, not {text[:40]!r}")
        return int(text)

    return parse


def usable_cores() -> int | None:
    """Logical cores that this process may use; None if unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def check_threads(threads: int | None) -> None:
    """Refuse more BLAS threads than there are cores: they would wait for one another."""
    cores = usable_cores()
    if threads is not None and cores and threads > cores:
        raise UsageError(f"{threads:,} threads are too many for {plural(cores, 'core')}")


def thread_count(text: str) -> int:
    """A number of threads, at most that of the cores."""
    threads = whole(1)(text)
    check_threads(threads)
    return threads


def number(
    description: str, most: float = sys.float_info.max, unit: str = ""
) -> Callable[[str], float]:
    """A parser of numbers above 0 and at most ``most``; a unit may follow them."""

    def parse(text: str) -> float:
        try:
            value = float(text.removesuffix(unit))
        except ValueError:
            value = 0.0
        if not 0.0 < value <= most:
            raise UsageError(f"must be {description}, not {text[:40]!r}")
        return value

    return parse


positive_seconds = number("a number of seconds above 0")
fraction = number("a number above 0 up to 1, such as 1e-4", most=1.0)


def duration(text: str) -> float:
    """Seconds from a time such as ``90s`` or ``3m``."""
    unit, seconds = ("m", 60) if text.endswith("m") else ("s", 1)
    return seconds * number("a time such as 90s or 3m", unit=unit)(text)


def every(text: str) -> int:
    """A number of iterations, from ``every=100``."""
    match = re.fullmatch("every=([1-9][0-9]{0,17})", text)
    if match is None:
        raise UsageError(f"must be every=N with N iterations, 1 or more, not {text[:40]!r}")
    return int(match[1])


def folder(text: str) -> Path:
    if not text:
        raise UsageError("must be the name of a folder, not ''")
    return Path(text)


def executor(text: str) -> str:
    """The name of an executor of a sweep."""
    if re.fullmatch(r"local(:[1-9][0-9]{0,3})?|dask://[^\s/]+:[0-9]{1,5}/?", text):
        return text
    raise UsageError(f"{text[:60]!r} is not an executor: give local, local:N or dask://HOST:PORT")


def parse_device(text: str) -> int:
    """Number of the GPU, -1 for the CPU, from a device as Chainer names it (``@cupy:0``)."""
    if text in ("@numpy", "numpy", "cpu", "-1"):
        return -1
    match = re.fullmatch(r"(?:(?:@?cupy|gpu|cuda):)?([0-9]{1,4})", text)
    if match is None:
        raise UsageError(
            f"{text[:40]!r} is not a device that can be profiled: give @numpy for the CPU, or "
            "@cupy:0 for the first GPU"
        )
    return int(match[1])


def parse_shape(text: str) -> tuple[int, ...]:
    """Reads a shape as ``3,32,32`` or ``3x32x32``."""
    parts = [part.strip() for part in re.split("[,xX]", text)]
    # Nine digits are more than any side has, and keep int() away from endless ones.
    if not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        raise UsageError(f"not a shape: {text!r}; write whole numbers such as 3,32,32 or 3x32x32")
    shape = tuple(int(part) for part in parts)
    if 0 in shape:
        raise UsageError(f"not a shape: {text!r}; every number must be at least 1")
    return shape


def named_device(gpu: int) -> str:
    """A device as recordings name it, from what :func:`parse_device` gives: ``cpu``, ``gpu:0``."""
    return "cpu" if gpu < 0 else f"gpu:{gpu}"


def gpu_number(device: str) -> int | None:
    """Number of the GPU that a recording names; None for another device."""
    match = re.fullmatch(r"gpu:([0-9]+)", device)
    return int(match[1]) if match else None


def input_shape(args: argparse.Namespace, usual: tuple[int, ...] | None) -> tuple[int, ...]:
    """Shape of an input without the batch: by ``--input-shape``, or the network's usual one."""
    asked = args.input_shape
    # If a network takes several arguments, the shape is that of the first.
    shape: tuple[int, ...] | None = (asked[0].shape if isinstance(asked, list) else asked) or usual
    if shape is None:
        raise UsageError(
            f"--model {args.model}: give the shape of its input, such as --input-shape 3x32x32"
        )
    is_size = usual is not None and len(usual) == 3 and len(shape) == 2
    return (usual[0], *shape) if usual is not None and is_size else shape


_ARRAY_DTYPES = ("float32", "float16", "float64", "int32", "int64")


def parse_array(text: str) -> tuple[tuple[int, ...], str]:
    """Reads ``SHAPE[:DTYPE]``, such as ``20:int32``; floats of 32 bits by default."""
    shape, _, dtype = text.partition(":")
    if dtype not in ("", *_ARRAY_DTYPES):
        raise UsageError(f"unknown data type {dtype!r}: choose {', '.join(_ARRAY_DTYPES)}")
    return parse_shape(shape), dtype or _ARRAY_DTYPES[0]


def cifar10_index(name: str) -> int | None:
    """Number of the first test image in ``cifar10:INDEX``; None for another kind of input."""
    match = re.fullmatch("cifar10(?::([0-9]{1,9}))?", name)
    return None if match is None else int(match[1] or 0)


# -- arguments of a network

_FORM = (
    "write [NAME=]SHAPE[:DTYPE[:RANGE]], such as 3x224x224, t=one:int32:1000, 20:int32:0..9999 or "
    "5..20x128 for sequences of 5 to 20 steps"
)
#: The shape of an argument with a number for every input, such as a label.
ONE = "one"


@dataclass(frozen=True)
class InputSpec:
    """A random argument of a network: its shape without the batch, for a sequence that of a step.

    A sequence has its least and its largest length: the argument is then a list of arrays, an array
    for every input of the batch. Without a ``dtype`` of integers it holds floats of Chainer's
    ``config.dtype``; ``values`` are the least and the largest integer.
    """

    shape: tuple[int, ...]
    lengths: tuple[int, int] | None = None
    dtype: str = ""
    values: tuple[int, int] = (0, 1)
    name: str = ""


def parse_input(text: str) -> InputSpec:
    """Reads ``[NAME=]SHAPE[:DTYPE[:RANGE]]``; see :data:`_FORM`."""
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
        raise UsageError(f"not an input: {text!r}; {dtype} is not a data type: {_FORM}")
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
        raise UsageError(f"not a range: {text!r}; it contains no number")
    return least, most


class Parser(argparse.ArgumentParser):
    """A parser with errors of one line; ``check`` refuses values that do not go together."""

    def __init__(
        self, check: Callable[[argparse.Namespace], None] | None = None, **kwargs: Any
    ) -> None:
        # Shortened names would change their meaning with every new option.
        super().__init__(allow_abbrev=False, **kwargs)
        self._check = check

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The values of the options; a mistyped option is refused with the nearest one."""
        values, left = self.parse_known_args(args, namespace)
        if left:
            name = next((word for word in left if word.startswith("--")), "").partition("=")[0]
            nearest = difflib.get_close_matches(name, self._option_string_actions, n=1, cutoff=0.7)
            hint = f" (did you mean {nearest[0]}?)" if name and nearest else ""
            self.error(f"unrecognized arguments: {' '.join(left)}{hint}")
        if self._check is not None:
            self._check(values)
        return values

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError in place of printing the usage."""
        raise UsageError(f"{message} (see {self.prog} --help)")


# -- names of columns

_MAX_WRONG_NAMES = 3
_MAX_NAME_CHARACTERS = 40


def split_names(text: str) -> list[str]:
    """The names in ``a, b,c``."""
    return [name.strip() for name in text.split(",")]


def choose_names(
    names: Sequence[str], columns: Collection[str], table: str, also: Collection[str] = ()
) -> tuple[str, ...]:
    """The columns asked for, each of them once."""
    unknown = [name for name in names if name not in columns and name not in also]
    if unknown or not names:
        wrong = ", ".join(with_nearest(name, columns) for name in unknown[:_MAX_WRONG_NAMES])
        raise UsageError(
            f"unknown column of {table}: {wrong or 'none given'}; known are {', '.join(columns)}"
        )
    return tuple(dict.fromkeys(names))


def with_nearest(name: str, names: Collection[str]) -> str:
    """A mistyped name in quotes, and the nearest of ``names``, if any is near."""
    begin = name[:_MAX_NAME_CHARACTERS]
    shown = repr(begin) if name.isprintable() else ascii(begin)
    nearest = difflib.get_close_matches(begin.lower(), names, n=1)
    return f"{shown} (did you mean {nearest[0]}?)" if nearest else shown
