"""``optimize(model)``: the same Chainer network, folded, for inference.

It is a chain of the network's own class with the same links and parameters, so that Chainer's
serializers save and load it, and read what they saved of the network itself. Called in test mode it
runs a :class:`~.plan.Plan` in place of Chainer's functions, once that has proved itself; and the
network's own functions wherever a plan could be wrong, or slower.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import chainer
import numpy as np
from chainer import FunctionNode

from chainer_profile.basics.errors import one_line
from chainer_profile.engines.equality import difference, tolerance
from chainer_profile.engines.folded.fold import fold, nodes_of
from chainer_profile.engines.folded.plan import Plan
from chainer_profile.engines.folded.watch import Watch, require_kept, state_of
from chainer_profile.engines.protocol import EngineError, leaves
from chainer_profile.engines.trace import Trace, is_tracing, second_pass, trace

#: Plans for so many shapes of inputs are kept.
_KEPT = 8
#: After so many calls, what was counted of them counts half.
_AGED = 64 * _KEPT

_now: Callable[[], float] = perf_counter


def optimize(model: Any) -> Any:
    """A copy of a network that runs faster in test mode, with Chainer and NumPy (or CuPy) alone.

    Batch normalizations, and scalars that are added or multiplied as Fixup has them, are folded
    into convolutions and linear layers; activations and sums are done in place; there are no type
    checks and no graph; memory is taken once for inputs of a shape, and used again.

    The first call for a shape is the network's own. The second one makes a plan, with one more pass
    of a copy on other inputs, and compares what the plan gives with what the network gives on both.
    Where they differ, where the network's calls depend on its data, where it keeps something from
    call to call or reports values, it stays the network's own, and a warning says why; without a
    word where the plan is slower.

    What the network holds is looked at in every call, and folded anew where it has changed; only
    single numbers that are written into large arrays are seen some calls later: call ``refold()``
    after that.

    A call in train mode, with keyword arguments, with other arguments than arrays and variables,
    or with a variable that needs a gradient, is the network's own. Gradients of parameters come
    from a pass of the network that ``backward()`` makes.

    Args:
        model: The network, a :class:`chainer.Link`; it stays as it is.

    Returns:
        The copy, of a subclass of the network's class.
    """
    folded = copy.deepcopy(model)
    if not isinstance(model, FoldedLink):
        folded.__class__ = _folded_class(type(model))
    folded.refold()
    return folded


class FoldedLink:
    """What :func:`optimize` adds to a network's class."""

    _folded_plain: type
    _folded_own: Callable[..., Any]

    def refold(self) -> None:
        """Forget what was folded: what is there then is folded anew."""
        vars(self)["_folded"] = _Plans()

    def timed(self, inputs: tuple[Any, ...], read: Callable[[], None]) -> Any:
        """A call by the plan that reads a clock; see :meth:`.plan.Plan.__call__`."""
        return self.plan(inputs)(inputs, read)

    def plan(self, inputs: tuple[Any, ...]) -> Plan:
        """The plan for arrays of these shapes; made where there is none yet.

        Raises:
            EngineError: The network cannot be planned, or the plan is wrong: says why.
        """
        plans: _Plans = vars(self)["_folded"]
        key = _key(inputs, inputs)
        planned = plans.of(key)
        if planned is None:
            planned = plans.planned[key] = _FirstPass(self, inputs).planned(strict=False)
        return planned.plan

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        """Copy it, as the network's class does."""
        copied = self._folded_plain.copy(self, *args, **kwargs)  # type: ignore[attr-defined]
        copied.refold()
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """How to copy and pickle it: its class has no name that could be looked up."""
        state = {key: value for key, value in vars(self).items() if key != "_folded"}
        return _again, (self._folded_plain, state)


def _folded_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The network's output: a variable, or what the network gives."""
    own = self._folded_own
    if kwargs or not args or chainer.config.train or is_tracing():
        return own(*args, **kwargs)
    arrays = [_array(argument) for argument in args]
    if any(array is None for array in arrays):
        return own(*args)
    plans: _Plans = vars(self)["_folded"]
    key = _key(args, arrays)
    # Two threads would write into one plan's memory.
    with plans.lock:
        planned = plans.of(key)
        if planned is not None:
            return planned.formed(self, args, planned.plan(arrays))
        if plans.worth(key):
            return _planning_call(self, args, key)
    begin = _now()
    result = own(*args)
    plans.took(key, _now() - begin)
    return result


def _planning_call(self: Any, args: tuple[Any, ...], key: Any) -> Any:
    """A call by the network's own functions, from which a plan is made."""
    plans: _Plans = vars(self)["_folded"]
    pass_ = _FirstPass(self, args)
    try:
        planned = pass_.planned()
    except EngineError as error:
        if isinstance(error, _WrongError):
            plans.without.add(key)
        else:
            plans.refused = True
        name = self._folded_plain.__name__
        warnings.warn(f"optimize: {name} runs as it is: {error}", RuntimeWarning, stacklevel=4)
        return pass_.first.result
    if planned.seconds > min(pass_.seconds, plans.own_seconds(key)):
        plans.without.add(key)
    else:
        plans.planned[key] = planned
    return pass_.first.result


class _Plans:
    """The plans of a network, by the shapes of its inputs, and how often these came."""

    def __init__(self) -> None:
        self.planned: OrderedDict[Any, _Planned] = OrderedDict()
        self.lock = threading.RLock()
        #: Whether the network cannot be planned at all; and shapes for which a plan is wrong or
        #: slower.
        self.refused = False
        self.without: set[Any] = set()
        self._calls: Counter[Any] = Counter()
        self._own_s: dict[Any, float] = {}

    def of(self, key: Any) -> _Planned | None:
        """The plan for a shape, if there is one that holds; all go where one does not."""
        planned = self.planned.get(key)
        if planned is not None and planned.watch.changed():
            self.planned.clear()
            self.without.clear()
            self._calls.clear()
            return None
        if planned is not None:
            self._calls[key] += 1
            self.planned.move_to_end(key)
        return planned

    def worth(self, key: Any) -> bool:
        """Whether a shape comes so often that it is to have a plan; makes place for it."""
        self._calls[key] += 1
        if self._calls.total() > _AGED:
            self._calls = Counter({key: n // 2 for key, n in self._calls.items() if n > 1})
            self.without &= self._calls.keys()
            self._own_s = {key: self.own_seconds(key) for key in self._calls}
        if self.refused or key in self.without or self._calls[key] < 2:
            return False
        if len(self.planned) >= _KEPT:
            oldest = next(iter(self.planned))
            if self._calls[key] <= 2 * self._calls[oldest]:
                return False
            del self.planned[oldest]
        return True

    def took(self, key: Any, seconds: float) -> None:
        """The network's own call took so long."""
        self._own_s[key] = min(seconds, self.own_seconds(key))

    def own_seconds(self, key: Any) -> float:
        """The shortest of the network's own calls."""
        return self._own_s.get(key, float("inf"))


class _WrongError(EngineError):
    """A plan gives other numbers than the network."""


class _FirstPass:
    """A pass of a network, noted; what it draws and leaves is as without a plan."""

    def __init__(self, model: Any, args: tuple[Any, ...]) -> None:
        self._model = model
        self._args = args
        self._before = state_of(model)
        self._drew = np.random.get_state()  # noqa: NPY002 (Chainer draws from it)
        begin = _now()
        self.first = trace(model._folded_own, args, graph=chainer.config.enable_backprop)
        self.seconds = _now() - begin
        self._drawn = np.random.get_state()  # noqa: NPY002 (Chainer draws from it)

    def planned(self, strict: bool = True) -> _Planned:
        """A plan that gives the same.

        Args:
            strict: Refuse a network whose calls do more than give their outputs.

        Raises:
            EngineError: There is none: says why.
        """
        arrays = tuple(map(_array, self._args))
        try:
            if strict:
                require_kept(self._model, self._before)
            others, second, reported = second_pass(self._model, self._args, self.first)
            if strict and reported:
                raise EngineError(
                    f"the network reports values ({', '.join(reported)}) to Chainer's Reporter: "
                    "take the network within it"
                )
            try:
                planned = _Planned(self._model, self.first, arrays)
                planned.prove(arrays, self.first.results, self._drew)
                planned.prove(others, second.results, self._drawn)
            except EngineError:
                raise
            except Exception as error:
                raise _WrongError(f"it cannot be folded: {one_line(error)}") from error
        finally:
            np.random.set_state(self._drawn)  # noqa: NPY002 (Chainer draws from it)
        return planned


class _Planned:
    """A plan, what the network gives, and what it held."""

    def __init__(self, model: Any, first: Trace, arrays: tuple[Any, ...]) -> None:
        nodes = fold(nodes_of(first), first.outputs)
        xp = chainer.backend.get_array_module(*arrays)
        self.plan = Plan(nodes, first.inputs, first.outputs, xp)
        self.watch = Watch(model, first.constants)
        #: What the fastest of its runs took.
        self.seconds = float("inf")
        self._form = _formless(first.result)

    def prove(self, arrays: tuple[Any, ...], expected: tuple[Any, ...], drew: Any) -> None:
        """Compare what the plan gives with what the network gave.

        Args:
            arrays: The inputs.
            expected: The network's outputs.
            drew: The state of NumPy's random numbers before they were made.

        Raises:
            EngineError: They differ.
        """
        np.random.set_state(drew)  # noqa: NPY002 (Chainer draws from it)
        begin = _now()
        got = self.plan(arrays)
        self.seconds = min(self.seconds, _now() - begin)
        for number, (ours, theirs) in enumerate(zip(expected, got, strict=True)):
            found = difference((ours,), (theirs,))
            if not found.relative <= tolerance(ours.dtype):
                raise _WrongError(
                    f"folded, its output {number} is another one, by {found.relative:.2g} of the "
                    "largest number in it"
                )

    def formed(self, model: Any, args: tuple[Any, ...], arrays: tuple[Any, ...]) -> Any:
        """Arrays in the form in which the network gives its output."""
        variables: Any = (chainer.Variable(array, requires_grad=False) for array in arrays)
        if chainer.config.enable_backprop:
            parameters = [p for p in model.params() if p.requires_grad and p.is_initialized]
            if parameters:
                variables = _Folded(model, args, arrays).apply(parameters)
        return _formed(self._form, iter(variables))


class _Folded(FunctionNode):
    """Outputs of a plan as functions of the parameters: a backward runs the network itself."""

    def __init__(self, model: Any, args: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        self._model, self._args, self._outputs = model, args, outputs

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """What the plan gave."""
        outputs, self._outputs = self._outputs, ()
        return outputs

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> Any:
        """Gradients of the parameters, by a pass of the network with a graph."""
        with chainer.force_backprop_mode(), chainer.using_config("train", False):
            made = list(map(chainer.as_variable, leaves(self._model._folded_own(*self._args))))
        wanted = [self.inputs[index].get_variable() for index in indexes]
        given = [(y, g) for y, g in zip(made, grads, strict=True) if g is not None]
        return chainer.grad(
            [y for y, _ in given],
            wanted,
            [g for _, g in given],
            enable_double_backprop=chainer.config.enable_backprop,
        )


def _key(args: Sequence[Any], arrays: Sequence[Any]) -> Any:
    """What tells plans apart: device, kinds, shapes and types of the inputs, and their arrays."""
    device = (
        "" if type(arrays[0]) is np.ndarray else str(chainer.backend.get_device_from_array(*arrays))
    )
    kinds = tuple(isinstance(argument, chainer.Variable) for argument in args)
    return (device, kinds, *((array.shape, array.dtype.char) for array in arrays))


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


def _formed(form: Any, variables: Iterator[Any]) -> Any:
    if isinstance(form, dict):
        return {key: _formed(part, variables) for key, part in form.items()}
    if isinstance(form, tuple):
        parts, kind = form
        formed = [_formed(part, variables) for part in parts]
        return kind(*formed) if hasattr(kind, "_fields") else kind(formed)
    variable = next(variables)
    return variable if form else variable.array


_classes: dict[type, type] = {}


def _folded_class(plain: Any) -> type:
    """The subclass of a network's class that folds."""
    if plain not in _classes:
        # Networks for Chainer up to 4 define the call itself.
        name = "forward" if plain.__call__ is chainer.Link.__call__ else "__call__"
        members = {
            "_folded_plain": plain,
            "_folded_own": getattr(plain, name),
            name: _folded_call,
            "__doc__": plain.__doc__,
            "__module__": plain.__module__,
        }
        _classes[plain] = type(f"Folded{plain.__name__}", (FoldedLink, plain), members)
    return _classes[plain]


def _again(plain: type, state: dict[str, Any]) -> Any:
    kind: Any = _folded_class(plain)
    link = kind.__new__(kind)
    vars(link).update(state)
    link.refold()
    return link
