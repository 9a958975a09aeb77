"""What is profiled and what it is called with, in all forms that a caller may give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import chainer

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import plural
from chainer_profile.record.recording import Shape

_FORMS = (
    "give an array or Variable, a tuple of arguments, a list of arrays (one argument), or a "
    "dict of arguments by name"
)


@dataclass(frozen=True)
class Arguments:
    """Arguments of a network, by position and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, x: Any) -> Arguments:
        """What a caller gives as a network's input, in any of :data:`_FORMS`."""
        # A list is one argument: Chainer's recurrent links take a list of sequences.
        arguments = (
            cls((), x) if isinstance(x, dict) else cls(x if isinstance(x, tuple) else (x,), {})
        )
        if not all(isinstance(name, str) for name in arguments.kwargs):
            raise UsageError(f"x has an argument whose name is not a string: {_FORMS}")
        if not arguments.arrays:
            held = "None" if x is None else f"a {type(x).__name__} without an array"
            raise UsageError(f"x is {held}: {_FORMS}")
        return arguments

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        """All arrays in them, in order, and those of Variables."""
        return arrays_in((self.args, self.kwargs))

    def with_floats(self, dtype: Any) -> Arguments:
        """The same with floats of another data type."""

        def of_dtype(array: Any) -> Any:
            return array.astype(dtype, copy=False) if array.dtype.kind == "f" else array

        return self.converted(of_dtype)

    def converted(self, convert: Callable[[Any], Any]) -> Arguments:
        """The same with what a function makes of each array; Variables stay as they are."""
        return Arguments(*_converted((self.args, self.kwargs), convert))

    @property
    def shape(self) -> Shape:
        """Shape of the first array."""
        return tuple(int(n) for n in self.arrays[0].shape)

    @property
    def batchsize(self) -> int:
        """Length of the first argument with an array in it: of its first axis, or of the list."""
        value: Any = (self.args, self.kwargs)
        while isinstance(value, tuple | dict):
            parts = value.values() if isinstance(value, dict) else value
            value = next(part for part in parts if arrays_in(part))
        if isinstance(value, list):
            return len(value)
        return self.shape[0] if self.shape else 1

    @property
    def description(self) -> str:
        """What they are beside the shape of the first array, in words; empty if that is all."""
        n_arrays = len(self.arrays)
        return "" if n_arrays < 2 else f"the first of {plural(n_arrays, 'array')}"


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _converted(part, convert) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_converted(part, convert) for part in value)
    is_array = hasattr(value, "dtype") and not isinstance(value, chainer.Variable)
    return convert(value) if is_array else value


def arrays_in(value: Any) -> tuple[Any, ...]:
    """The arrays, and those of Variables, in tuples, lists and dicts; other values are none."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return tuple(array for part in value for array in arrays_in(part))
    array = getattr(value, "array", value)
    return (array,) if hasattr(array, "shape") and hasattr(array, "dtype") else ()


class FunctionLink(chainer.Link):
    """A plain function as a network without links: all that it calls is the network's own."""

    def __init__(self, function: Callable[..., Any], arrays: tuple[Any, ...]) -> None:
        super().__init__()
        self.function = function
        self.to_device(chainer.backend.get_device_from_array(*arrays))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def as_network(model: Any, arrays: tuple[Any, ...]) -> chainer.Link:
    """A network, or a function as one."""
    if isinstance(model, chainer.Link):
        return model
    if isinstance(model, type):
        raise UsageError(f"{model.__name__} is a class: give an instance of it")
    if not callable(model):
        raise UsageError(f"a network is a chainer.Link or a function, not {type(model).__name__}")
    return FunctionLink(model, arrays)


def network_name(network: Any) -> str:
    """Name of the class of a network; of a function its own, and that it has no links."""
    if not isinstance(network, FunctionLink):
        return type(network).__name__
    function = network.function
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name} (a function, no links)"
