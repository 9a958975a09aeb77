"""``optimize(model)``: the same Chainer network, folded, for inference.

It is a chain of the network's own class with the same links and parameters, so that Chainer's
serializers save and load it, and read what they saved of the network itself. Called in test mode it
runs a :class:`~.plan.Plan` in place of Chainer's functions.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import chainer
from chainer.serializer import Deserializer

from chainer_profile.engines.fold import fold, nodes_of
from chainer_profile.engines.plan import Plan
from chainer_profile.engines.trace import Trace, require_static

#: Plans for so many shapes of inputs are kept.
_KEPT = 8


def optimize(model: Any) -> Any:
    """A copy of a network that runs faster in test mode, with Chainer and NumPy (or CuPy) alone.

    Batch normalizations, and scalars that are added or multiplied as Fixup has them, are folded
    into convolutions and linear layers; activations and sums are done in place; there are no type
    checks and no graph; memory is taken at the first call for inputs of a shape, and used again.

    The first call makes two passes of the network itself, to learn its calls and to see that they
    do not depend on the data. Folding starts from the parameters at that time; they are looked at
    again after loading with a serializer, a change of device and a call in train mode. After
    changing numbers of a parameter in place call ``refold()``.

    A call in train mode, with keyword arguments, with other arguments than arrays and variables,
    or with a variable that needs a gradient, is the network's own.

    Args:
        model: The network, a :class:`chainer.Link`; it stays as it is.

    Returns:
        The copy, of a subclass of the network's class.

    Raises:
        EngineError: At a call: the network fails, or its calls depend on the data.
    """
    folded = copy.deepcopy(model)
    if not isinstance(model, FoldedLink):
        folded.__class__ = _folded_class(type(model))
    folded.refold()
    return folded


class FoldedLink:
    """What :func:`optimize` adds to a network's class."""

    _folded_plain: type
    _folded_plans: OrderedDict[Any, _Planned]

    def refold(self) -> None:
        """Forget what was folded: the next call folds the parameters as they are then."""
        vars(self)["_folded_plans"] = OrderedDict()
        # Two threads would write into one plan's memory.
        vars(self)["_folded_lock"] = threading.Lock()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The network's output: a variable, or what the network gives, without a graph."""
        if chainer.config.train:
            self.refold()
            return self._folded_plain.forward(self, *args, **kwargs)  # type: ignore[attr-defined]
        arrays = [_array(argument) for argument in args]
        if kwargs or not args or any(array is None for array in arrays):
            return self._folded_plain.forward(self, *args, **kwargs)  # type: ignore[attr-defined]
        return self._folded_run(tuple(arrays), None)

    def timed(self, inputs: tuple[Any, ...], read: Callable[[], None]) -> Any:
        """A call in test mode that reads a clock; see :meth:`.plan.Plan.__call__`."""
        return self._folded_run(inputs, read)

    def plan(self, inputs: tuple[Any, ...]) -> Plan:
        """The plan for arrays of these shapes; made where there is none yet.

        Raises:
            EngineError: The network fails, or its calls depend on the data.
        """
        return self._folded_planned(inputs).plan

    def _folded_run(self, inputs: tuple[Any, ...], read: Callable[[], None] | None) -> Any:
        with vars(self)["_folded_lock"]:
            planned = self._folded_planned(inputs)
            return planned.formed(planned.plan(inputs, read))

    def _folded_planned(self, inputs: tuple[Any, ...]) -> _Planned:
        device = chainer.backend.get_device_from_array(*inputs)
        key = (str(device), *((array.shape, array.dtype.char) for array in inputs))
        planned = self._folded_plans.get(key)
        if planned is None or planned.stale():
            planned = self._folded_plans[key] = _Planned(self, inputs)
            while len(self._folded_plans) > _KEPT:
                self._folded_plans.popitem(last=False)
        return planned

    def serialize(self, serializer: Any) -> None:
        """Save or load the parameters, as the network's class does."""
        self._folded_plain.serialize(self, serializer)  # type: ignore[attr-defined]
        if isinstance(serializer, Deserializer):
            self.refold()

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        """Copy it, as the network's class does."""
        copied = self._folded_plain.copy(self, *args, **kwargs)  # type: ignore[attr-defined]
        copied.refold()
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """How to copy and pickle it: its class has no name that could be looked up."""
        state = {
            key: value
            for key, value in vars(self).items()
            if key not in ("_folded_plans", "_folded_lock")
        }
        return _again, (self._folded_plain, state)


class _Planned:
    """A plan, what the network gives, and the parameters that were folded."""

    def __init__(self, model: Any, inputs: tuple[Any, ...]) -> None:
        def original(*arrays: Any) -> Any:
            return model._folded_plain.forward(model, *arrays)

        traced: Trace = require_static(original, inputs)
        nodes = fold(nodes_of(traced), traced.outputs)
        xp = chainer.backend.get_array_module(*inputs)
        self.plan = Plan(nodes, traced.inputs, traced.outputs, xp)
        self._form = _formless(traced.result)
        self._parameters = [(parameter, parameter.array) for parameter in model.params()]

    def stale(self) -> bool:
        """Whether a parameter has another array than when it was folded."""
        return any(parameter.array is not array for parameter, array in self._parameters)

    def formed(self, arrays: tuple[Any, ...]) -> Any:
        """Arrays in the form in which the network gives its output."""
        return _formed(self._form, iter(arrays))


def _array(argument: Any) -> Any:
    """An argument's array; None where the call is none for a plan."""
    if isinstance(argument, chainer.Variable):
        if argument.requires_grad and chainer.config.enable_backprop:
            return None
        argument = argument.array
    return argument if isinstance(argument, chainer.get_array_types()) else None


def _formless(result: Any) -> Any:
    """What a network gave, without its arrays."""
    if isinstance(result, dict):
        return {key: _formless(part) for key, part in result.items()}
    if isinstance(result, (tuple, list)):
        return [_formless(part) for part in result], type(result)
    return isinstance(result, chainer.Variable)


def _formed(form: Any, arrays: Iterator[Any]) -> Any:
    if isinstance(form, dict):
        return {key: _formed(part, arrays) for key, part in form.items()}
    if isinstance(form, tuple):
        parts, kind = form
        formed = [_formed(part, arrays) for part in parts]
        return kind(*formed) if hasattr(kind, "_fields") else kind(formed)
    array = next(arrays)
    return chainer.Variable(array, requires_grad=False) if form else array


_classes: dict[type, type] = {}


def _folded_class(plain: type) -> type:
    """The subclass of a network's class that folds."""
    if plain not in _classes:
        members = {"_folded_plain": plain, "__doc__": plain.__doc__, "__module__": plain.__module__}
        _classes[plain] = type(f"Folded{plain.__name__}", (FoldedLink, plain), members)
    return _classes[plain]


def _again(plain: type, state: dict[str, Any]) -> Any:
    kind: Any = _folded_class(plain)
    link = kind.__new__(kind)
    vars(link).update(state)
    link.refold()
    return link
