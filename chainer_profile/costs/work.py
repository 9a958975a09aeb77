"""Computes the operations and bytes of a call from shapes, as docs/functions.md explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from chainer_profile.basics.checks import flag, short_repr
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.words import BACKWARD, FORWARD, UPDATE
from chainer_profile.costs import formulas
from chainer_profile.costs.call import ArraySpec, Call, Specs, Work
from chainer_profile.costs.table import Formula

__all__ = ["ArraySpec", "Call", "Work", "backward_work", "forward_work", "register_cost"]

_FUNCTIONS = ("chainer.function_node.FunctionNode", "chainer.function.Function")
FormulaT = TypeVar("FormulaT", bound=Callable[[Any], Any])
#: Formulas that the user registered, by phase and class.
_users: dict[tuple[str, type], Callable[[Any], Any]] = {}


def forward_work(function: Any, inputs: Specs, outputs: Specs) -> Work | None:
    """Work of a forward call that has returned; None without a formula."""
    return _work(FORWARD, formulas.FORWARD, Call(inner(function), inputs, outputs))


def backward_work(
    function: Any, inputs: Specs, outputs: Specs, needed: tuple[bool, ...]
) -> Work | None:
    """Work of a backward call; None without a formula. ``needed`` selects inputs with gradients."""
    if len(needed) != len(inputs):
        raise ValueError(f"needed has {len(needed)} entries, but there are {len(inputs)} inputs")
    if not any(needed):
        return Work(0, 0, 0)
    return _work(BACKWARD, formulas.BACKWARD, Call(inner(function), inputs, outputs, needed))


def _work(phase: str, of_chainer: Mapping[str, Formula], call: Call) -> Work | None:
    formula = find(phase, type(call.function), of_chainer)
    result = formula and formula(call)
    return result if result is None or isinstance(result, Work) else call.work(int(result))


def find(phase: str, cls: type, of_chainer: Mapping[str, Any]) -> Any:
    """Find the formula of a class or of its nearest base; None without one.

    A formula that the user registered for a class replaces Chainer's, from ``of_chainer``.
    """
    for base in cls.__mro__:
        if (phase, base) in _users:
            return _users[phase, base]
        if base.__module__.startswith("chainer.") and base.__name__ in of_chainer:
            return of_chainer[base.__name__]
    return None


def inner(function: Any) -> Any:
    """Return an old-style function without its adapter, and other functions unchanged."""
    if is_a(type(function), "chainer.function.FunctionAdapter"):
        return function.function
    return function


def is_a(cls: type, *names: str) -> bool:
    """Whether a class or one of its bases has one of these full names. Does not import Chainer."""
    return any(f"{base.__module__}.{base.__qualname__}" in names for base in cls.__mro__)


def _has_work(cls: type) -> bool:
    """Whether a class is a function, an update rule or possibly a hook, which is callable."""
    is_hook = any("__call__" in vars(base) for base in cls.__mro__)
    is_hook = is_hook and not is_a(cls, "chainer.link.Link")
    return is_hook or is_a(cls, *_FUNCTIONS, "chainer.optimizer.UpdateRule")


def register_cost(cls: type, *, backward: bool = False) -> Callable[[FormulaT], FormulaT]:
    """Register a formula for a class and classes derived from it, as a decorator.

    The formula of a function gets a :class:`Call`: ``call.function``, ``call.inputs``,
    ``call.outputs`` (shapes and types) and, in backward, ``call.needed``. The formula of an update
    rule or optimizer hook gets an :class:`~chainer_profile.costs.update.UpdateCall`:
    ``call.function``, ``call.p`` and ``call.g``; ``call.params`` and ``call.grads`` if a hook is
    called once for all parameters. The formula returns one of:

    - a number of operations: each array is read or written once. A rule writes the parameter, a
      hook the gradient;
    - a :class:`Work`;
    - None if the work is unknown.

    For example::

        @register_cost(Gelu)
        def gelu(call):
            return 5 * call.inputs[0].size

        @register_cost(Gelu, backward=True)  # unless its backward calls Chainer's functions
        def gelu_backward(call): ...

    Args:
        cls: A FunctionNode, an old-style Function, an UpdateRule, or a hook. The formula replaces
            an existing formula of the class.
        backward: Whether the formula is for a function's backward.

    Raises:
        UsageError: ``cls`` is another class, it has no backward, or the formula is not callable.
    """
    if not isinstance(cls, type) or not _has_work(cls):
        raise UsageError(
            f"register_cost({short_repr(cls)}): give the class of a function, an update rule or a "
            "hook"
        )
    if is_a(cls, *_FUNCTIONS):
        phase = BACKWARD if flag("backward", backward) else FORWARD
    elif flag("backward", backward):
        raise UsageError(f"{cls.__name__} is not a function: it has no backward")
    else:
        phase = UPDATE

    def register(formula: FormulaT) -> FormulaT:
        if not callable(formula):
            raise UsageError(
                f"the formula of {cls.__name__} is {short_repr(formula)}: give a function"
            )
        _users[phase, cls] = formula
        return formula

    return register
