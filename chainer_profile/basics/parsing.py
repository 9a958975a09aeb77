"""Parsers for the values of command-line options."""

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


def integer_at_least(minimum: int) -> Callable[[str], int]:
    """Make a parser of whole numbers of at least ``minimum``."""

    def parse(text: str) -> int:
        # No option needs 18 digits. The bound protects int() from very long texts.
        if not re.fullmatch("-?[0-9]{1,18}", text) or int(text) < minimum:
            raise UsageError(f"must be a whole number, {minimum} or more, not {text[:40]!r}")
        return int(text)

    return parse


def usable_cores() -> int | None:
    """Logical cores that this process may use; None if unknown."""
    numbers = usable_core_numbers()
    return os.cpu_count() if numbers is None else len(numbers)


def usable_core_numbers() -> set[int] | None:
    """Numbers of the logical cores that this process may use; None if unknown."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def check_threads(threads: int | None) -> None:
    """Refuse more BLAS threads than there are cores: they would wait for one another."""
    cores = usable_cores()
    if threads is not None and cores and threads > cores:
        raise UsageError(f"{threads:,} threads are too many for {plural(cores, 'core')}")


def thread_count(text: str) -> int:
    """Parse a number of BLAS threads, at most the number of usable cores."""
    threads = integer_at_least(1)(text)
    check_threads(threads)
    return threads


def number(
    description: str, maximum: float = sys.float_info.max, unit: str = ""
) -> Callable[[str], float]:
    """Make a parser of numbers above 0 and at most ``maximum``; a unit may follow them.

    The error message quotes the ``description`` of this range.
    """

    def parse(text: str) -> float:
        try:
            value = float(text.removesuffix(unit))
        except ValueError:
            value = 0.0
        if not 0.0 < value <= maximum:
            raise UsageError(f"must be {description}, not {text[:40]!r}")
        return value

    return parse


positive_seconds = number("a number of seconds above 0")
fraction = number("a number above 0 up to 1, such as 1e-4", maximum=1.0)


def duration(text: str) -> float:
    """Parse a time such as ``90s`` or ``3m`` into seconds."""
    unit, seconds = ("m", 60) if text.endswith("m") else ("s", 1)
    return seconds * number("a time such as 90s or 3m", unit=unit)(text)


def every(text: str) -> int:
    """Parse a number of iterations from ``every=100``."""
    match = re.fullmatch("every=([1-9][0-9]{0,17})", text)
    if match is None:
        raise UsageError(f"must be every=N with N iterations, 1 or more, not {text[:40]!r}")
    return int(match[1])


def folder(text: str) -> Path:
    if not text:
        raise UsageError("must be the name of a folder, not ''")
    return Path(text)


def executor(text: str) -> str:
    """Check the name of a sweep's executor: ``local``, ``local:4`` or ``dask://HOST:PORT``."""
    if re.fullmatch(r"local(:[1-9][0-9]{0,3})?|dask://[^\s/]+:[0-9]{1,5}/?", text):
        return text
    raise UsageError(f"{text[:60]!r} is not an executor: give local, local:N or dask://HOST:PORT")


def parse_device(text: str) -> int:
    """Parse a device as Chainer names it, such as ``@cupy:0``, into a GPU number; -1 is the CPU."""
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
    """Parse a shape such as ``3,32,32`` or ``3x32x32``."""
    sizes = [size.strip() for size in re.split("[,xX]", text)]
    # No axis needs nine digits. The bound protects int() from very long texts.
    if not all(re.fullmatch("[0-9]{1,9}", size) for size in sizes):
        raise UsageError(f"not a shape: {text!r}; write whole numbers such as 3,32,32 or 3x32x32")
    shape = tuple(int(size) for size in sizes)
    if 0 in shape:
        raise UsageError(f"not a shape: {text!r}; every number must be at least 1")
    return shape


def named_device(gpu: int) -> str:
    """Name of a device in recordings, ``cpu`` or ``gpu:0``, from :func:`parse_device`'s number."""
    return "cpu" if gpu < 0 else f"gpu:{gpu}"


def gpu_number(device: str) -> int | None:
    """Number of the GPU in a recording's device name; None for the CPU."""
    match = re.fullmatch(r"gpu:([0-9]+)", device)
    return int(match[1]) if match else None


def input_shape(args: argparse.Namespace, usual: tuple[int, ...] | None) -> tuple[int, ...]:
    """Shape of an input without the batch axis: ``--input-shape``, or the network's usual shape.

    If a network takes several arguments, this is the shape of the first. Two numbers are height and
    width if the usual shape has channels, too.
    """
    option = args.input_shape
    shape: tuple[int, ...] | None = option[0].shape if option else usual
    if shape is None:
        raise UsageError(
            f"--model {args.model}: give the shape of its input, such as --input-shape 3x32x32"
        )
    is_size = usual is not None and len(usual) == 3 and len(shape) == 2
    return (usual[0], *shape) if usual is not None and is_size else shape


def is_file_of_arrays(name: str) -> bool:
    """Whether ``--input`` names a file that holds arrays."""
    return name.endswith((".npy", ".npz"))


def asks_for_more(args: argparse.Namespace) -> bool:
    """Whether ``--input-shape`` describes anything but a single plain array of floats."""
    specs = args.input_shape or []
    return len(specs) > 1 or any(spec != InputSpec(spec.shape) for spec in specs)


def check_names(specs: Sequence[InputSpec] | None) -> None:
    """Raise UsageError if two arguments of a network have the same name."""
    names = [spec.name for spec in specs or [] if spec.name]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"--input-shape {twice}= is given twice: give each argument once")


def cifar10_index(name: str) -> int | None:
    """Index of the first test image in ``cifar10:INDEX``; None for another kind of input."""
    match = re.fullmatch("cifar10(?::([0-9]{1,9}))?", name)
    return None if match is None else int(match[1] or 0)


# -- arguments of a network

_FORM = (
    "write [NAME=]SHAPE[:DTYPE[:RANGE]], such as 3x224x224, t=one:int32:1000, 20:int32:0..9999 or "
    "5..20x128 for sequences of 5 to 20 steps"
)
_FLOATS = ("float16", "float32", "float64")
_DTYPES = (*_FLOATS, *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
#: Stands for the shape of an argument with one number per input, such as a label.
ONE = "one"


@dataclass(frozen=True)
class InputSpec:
    """A random argument of a network.

    Attributes:
        shape: Shape without the batch axis; a sequence has the shape of one step.
        lengths: Least and largest length of a sequence. The argument is then a list with one array
            for every input of the batch.
        dtype: Data type; empty for floats of Chainer's ``config.dtype``.
        values: Least and largest integer.
        name: Name of a keyword argument.
    """

    shape: tuple[int, ...]
    lengths: tuple[int, int] | None = None
    dtype: str = ""
    values: tuple[int, int] = (0, 1)
    name: str = ""

    @property
    def is_float(self) -> bool:
        return self.dtype in ("", *_FLOATS)


def parse_input(text: str) -> InputSpec:
    """Parse ``[NAME=]SHAPE[:DTYPE[:RANGE]]``; see :data:`_FORM`."""
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
    if dtype is not None and dtype not in _DTYPES:
        known = ", ".join(_DTYPES)
        raise UsageError(f"not an input: {text!r}; {dtype} is not a data type: choose {known}")
    if values is not None and dtype is None:
        raise UsageError(f"not an input: {text!r}; {_FORM}")
    if values is not None and dtype in _FLOATS:
        raise UsageError(f"not an input: {text!r}; a range is for integers")
    return InputSpec(shape, lengths, dtype or "", parse_range(values or "2"), name or "")


def parse_range(text: str) -> tuple[int, int]:
    """Parse a range of integers: ``1000`` means 0 to 999, ``1..10`` includes both ends."""
    match = re.fullmatch(r"(?:(-?[0-9]{1,18})\.\.)?(-?[0-9]{1,18})", text)
    if match is None:
        raise UsageError(f"not a range: {text!r}; write 1000 for 0 to 999, or 1..10")
    minimum = int(match[1] or 0)
    maximum = int(match[2]) - (match[1] is None)
    if maximum < minimum:
        raise UsageError(f"not a range: {text!r}; it contains no number")
    return minimum, maximum


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error on one line.

    ``check`` gets the parsed values, and raises an error if some contradict each other.
    """

    def __init__(
        self, check: Callable[[argparse.Namespace], None] | None = None, **kwargs: Any
    ) -> None:
        # Abbreviations would change their meaning with every new option.
        super().__init__(allow_abbrev=False, **kwargs)
        self._check = check

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; suggest the nearest option for an unknown one."""
        values, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = next((arg for arg in unknown if arg.startswith("--")), "").partition("=")[0]
            nearest = difflib.get_close_matches(name, self._option_string_actions, n=1, cutoff=0.7)
            hint = f" (did you mean {nearest[0]}?)" if name and nearest else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        if self._check is not None:
            self._check(values)
        return values

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError instead of printing the usage and exiting."""
        raise UsageError(f"{message} (see {self.prog} --help)")


# -- names of columns

_MAX_UNKNOWN_NAMES = 3
_MAX_NAME_CHARACTERS = 40


def split_names(text: str) -> list[str]:
    """Split ``a, b,c`` into names."""
    return [name.strip() for name in text.split(",")]


def choose_names(
    names: Sequence[str], columns: Collection[str], table: str, also: Collection[str] = ()
) -> tuple[str, ...]:
    """Check names of columns, and drop repeated ones.

    A name in ``also`` is accepted without being mentioned in the error message.
    """
    unknown = [name for name in names if name not in columns and name not in also]
    if unknown or not names:
        listed = ", ".join(with_nearest(name, columns) for name in unknown[:_MAX_UNKNOWN_NAMES])
        raise UsageError(
            f"unknown column of {table}: {listed or 'none given'}; known are {', '.join(columns)}"
        )
    return tuple(dict.fromkeys(names))


def with_nearest(name: str, names: Collection[str]) -> str:
    """Quote a mistyped name, and suggest the nearest of ``names`` if one is similar."""
    short = name[:_MAX_NAME_CHARACTERS]
    quoted = repr(short) if name.isprintable() else ascii(short)
    nearest = difflib.get_close_matches(short.lower(), names, n=1)
    return f"{quoted} (did you mean {nearest[0]}?)" if nearest else quoted
