"""The work of a function's call, by docs/functions.md: operations and bytes, from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from chainer_profile.basics.checks import flag, shown
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.words import BACKWARD, FORWARD, UPDATE
from chainer_profile.costs import formulas
from chainer_profile.costs.call import ArraySpec, Call, Specs, Work

__all__ = ["ArraySpec", "Call", "Work", "backward_work", "forward_work", "register_cost"]

_FUNCTIONS = ("chainer.function_node.FunctionNode", "chainer.function.Function")
FormulaT = TypeVar("FormulaT", bound=Callable[[Any], Any])
_users: dict[tuple[str, type], Callable[[Any], Any]] = {}


def forward_work(function: Any, inputs: Specs, outputs: Specs) -> Work | None:
    """Work of a function's forward, once that has returned; None without a formula."""
    return _work(FORWARD, formulas.FORWARD, Call(inner(function), inputs, outputs))


def backward_work(
    function: Any, inputs: Specs, outputs: Specs, needed: tuple[bool, ...]
) -> Work | None:
    """Work of a backward, which needs the gradients of some inputs; None without a formula."""
    if len(needed) != len(inputs):
        raise ValueError(f"needed has {len(needed)} entries, for {len(inputs)} inputs")
    if not any(needed):
        return Work(0, 0, 0)
    return _work(BACKWARD, formulas.BACKWARD, Call(inner(function), inputs, outputs, needed))


def _work(phase: str, chainers: Mapping[str, formulas.Formula], call: Call) -> Work | None:
    formula = find(phase, type(call.function), chainers)
    result = formula and formula(call)
    return result if result is None or isinstance(result, Work) else call.work(int(result))


def find(phase: str, cls: type, chainers: Mapping[str, Any]) -> Any:
    """The formula of a class: that of a user, that of Chainer's class, or that of its base."""
    for base in cls.__mro__:
        if (phase, base) in _users:
            return _users[phase, base]
        if base.__module__.startswith("chainer.") and base.__name__ in chainers:
            return chainers[base.__name__]
    return None


def inner(function: Any) -> Any:
    """The function itself: an old-style one is wrapped in an adapter."""
    if is_a(type(function), "chainer.function.FunctionAdapter"):
        return function.function
    return function


def is_a(cls: type, *names: str) -> bool:
    """Whether a class is, or derives from, a class of these names: this imports no Chainer."""
    return any(f"{base.__module__}.{base.__qualname__}" in names for base in cls.__mro__)


def _has_work(cls: type) -> bool:
    """Whether a class can be of functions, update rules or hooks: hooks can be called."""
    is_hook = any("__call__" in vars(base) for base in cls.__mro__)
    is_hook = is_hook and not is_a(cls, "chainer.link.Link")
    return is_hook or is_a(cls, *_FUNCTIONS, "chainer.optimizer.UpdateRule")


def register_cost(cls: type, *, backward: bool = False) -> Callable[[FormulaT], FormulaT]:
    """Make a formula count the calls of a class, and of classes derived from it.

    The formula of a function is called with a :class:`Call`: ``call.function``, ``call.inputs``,
    ``call.outputs`` (shapes and types) and, in backward, ``call.needed``. That of an update rule
    or of an optimizer hook is called with an :class:`~chainer_profile.costs.update.UpdateCall`:
    ``call.function``, ``call.p`` and ``call.g``; ``call.params`` and ``call.grads`` if a hook is
    called once for all parameters. It returns one of:

    - a number of operations: each array is read or written once. A rule writes the parameter, a
      hook the gradient;
    - a :class:`Work`;
    - None if the work is unknown.

    For example::

        @register_cost(Gelu)
        def gelu(call):
            return 5 * call.inputs[0].size

        @register_cost(Gelu, backward=True)  # unless it is made of Chainer's functions
        def gelu_backward(call): ...

    Args:
        cls: A FunctionNode, an old-style Function, an UpdateRule, or a hook. The formula
            replaces the formula that the class has.
        backward: Whether the formula is for a function's backward.

    Raises:
        UsageError: ``cls`` is no such class, it has no backward, or the formula cannot be called.
    """
    if not isinstance(cls, type) or not _has_work(cls):
        raise UsageError(
            f"register_cost({shown(cls)}): give the class of a function, an update rule or a hook"
        )
    if is_a(cls, *_FUNCTIONS):
        phase = BACKWARD if flag("backward", backward) else FORWARD
    elif flag("backward", backward):
        raise UsageError(f"{cls.__name__} is not a function: it has no backward")
    else:
        phase = UPDATE

    def register(formula: FormulaT) -> FormulaT:
        if not callable(formula):
            raise UsageError(f"the formula of {cls.__name__} is {shown(formula)}: give a function")
        _users[phase, cls] = formula
        return formula

    return register
