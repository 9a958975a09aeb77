"""Networks, functions and arguments as callers pass them, in a common form."""

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
    """Arguments of a network, by position and by name.

    :meth:`with_floats` does not convert the arrays in ``typed``.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    typed: tuple[Any, ...] = ()

    @classmethod
    def from_input(cls, x: Any) -> Arguments:
        """Convert a network's input, in any of the forms that :data:`_FORMS` lists.

        Raises:
            UsageError: It has another form, or no array.
        """
        # A list is one argument: Chainer's recurrent links take a list of sequences.
        arguments = (
            cls((), x) if isinstance(x, dict) else cls(x if isinstance(x, tuple) else (x,), {})
        )
        if not all(isinstance(name, str) for name in arguments.kwargs):
            raise UsageError(f"x has an argument whose name is not a string: {_FORMS}")
        if not arguments.arrays:
            problem = "None" if x is None else f"a {type(x).__name__} without an array"
            raise UsageError(f"x is {problem}: {_FORMS}")
        return arguments

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        """All arrays in order, including arrays of Variables."""
        return arrays_in((self.args, self.kwargs))

    def with_floats(self, dtype: Any) -> Arguments:
        """Convert arrays of floats to another data type, but not :attr:`typed` ones."""
        kept = set(map(id, self.typed))

        def to_dtype(array: Any) -> Any:
            converts = array.dtype.kind == "f" and id(array) not in kept
            return array.astype(dtype, copy=False) if converts else array

        return self.converted(to_dtype)

    def converted(self, convert: Callable[[Any], Any]) -> Arguments:
        """Replace each array by ``convert(array)``; Variables stay, and ``typed`` becomes empty."""
        return Arguments(*_converted((self.args, self.kwargs), convert))

    @property
    def shape(self) -> Shape:
        """Shape of the first array."""
        return tuple(int(n) for n in self.arrays[0].shape)

    @property
    def batchsize(self) -> int:
        """Length of the first list of arrays or of the first array, whichever comes first.

        It is 1 for an array without axes.
        """
        value: Any = (self.args, self.kwargs)
        while isinstance(value, tuple | dict):
            items = value.values() if isinstance(value, dict) else value
            value = next(item for item in items if arrays_in(item))
        if isinstance(value, list):
            return len(value)
        return self.shape[0] if self.shape else 1

    @property
    def description(self) -> str:
        """Text that qualifies :attr:`shape` if there are several arrays; empty for one array."""
        n_arrays = len(self.arrays)
        return "" if n_arrays < 2 else f"the first of {plural(n_arrays, 'array')}"


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Replace arrays in nested dicts, lists and tuples; other values stay."""
    if isinstance(value, dict):
        return {name: _converted(item, convert) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_converted(item, convert) for item in value]
        # The class of a named tuple takes its items one by one.
        return getattr(type(value), "_make", type(value))(items)
    is_array = hasattr(value, "dtype") and not isinstance(value, chainer.Variable)
    return convert(value) if is_array else value


def arrays_in(value: Any) -> tuple[Any, ...]:
    """Find all arrays in nested tuples, lists and dicts, including arrays of Variables."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return tuple(array for item in value for array in arrays_in(item))
    array = getattr(value, "array", value)
    return (array,) if hasattr(array, "shape") and hasattr(array, "dtype") else ()


class FunctionLink(chainer.Link):
    """A network without child links that calls a plain function."""

    def __init__(self, function: Callable[..., Any], arrays: tuple[Any, ...]) -> None:
        super().__init__()
        self.function = function
        self.to_device(chainer.backend.get_device_from_array(*arrays))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def as_network(model: Any, arrays: tuple[Any, ...]) -> chainer.Link:
    """Return a network, or wrap a function as one, on the device of ``arrays``.

    Raises:
        UsageError: ``model`` is neither a link nor a function.
    """
    if isinstance(model, chainer.Link):
        return model
    if isinstance(model, type):
        raise UsageError(f"{model.__name__} is a class: give an instance of it")
    if not callable(model):
        raise UsageError(f"a network is a chainer.Link or a function, not {type(model).__name__}")
    return FunctionLink(model, arrays)


def network_name(network: Any) -> str:
    """Class name of a network, or the name of a function with a note that it has no links."""
    if not isinstance(network, FunctionLink):
        return type(network).__name__
    function = network.function
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name} (a function, no links)"
