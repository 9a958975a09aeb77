"""The work of a function's call or of an update: operations and bytes, from shapes alone.

An operation is one for each element, however long a processor takes for it; a multiply-add is two.
Bytes are the least that a call must move: each array once. docs/functions.md says what counts, and
which figures are exact (:mod:`.exact`) and which are approximate (:mod:`.about`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from chainer_profile.basics.words import BACKWARD, FORWARD, UPDATE
from chainer_profile.costs import table, update
from chainer_profile.costs.call import ArraySpec, Call, Specs, Work, is_a
from chainer_profile.costs.called import Called
from chainer_profile.costs.update import UpdateCall

__all__ = [
    "ArraySpec",
    "Call",
    "UpdateCall",
    "Work",
    "backward_work",
    "following",
    "forward_work",
    "hook_work",
    "register_cost",
    "update_work",
]

FormulaT = TypeVar("FormulaT", bound=Callable[[Any], Any])
_NOTHING = Work(0, 0, 0)


def forward_work(function: Any, inputs: Specs, outputs: Specs) -> Work | None:
    """Work of a function's forward, once that has returned; None without a formula."""
    return _work(FORWARD, function, inputs, outputs, ())


def backward_work(
    function: Any, inputs: Specs, outputs: Specs, needed: tuple[bool, ...]
) -> Work | None:
    """Work of a function's backward; None without a formula: see :func:`following`.

    ``needed`` says for each input whether its gradient is computed.
    """
    if len(needed) != len(inputs):
        raise ValueError(f"needed has {len(needed)} entries, for {len(inputs)} inputs")
    return _work(BACKWARD, function, inputs, outputs, needed) if any(needed) else _NOTHING


def _work(
    phase: str, function: Any, inputs: Specs, outputs: Specs, needed: tuple[bool, ...]
) -> Work | None:
    function = table.inner(function)
    entry = table.find(function, phase)
    return entry and table.evaluate(entry, Call(function, inputs, outputs, needed))


def following(function: Any, given: tuple[Any, ...]) -> Called | None:
    """Follow a backward that is about to run, to know its work by the functions that it calls.

    Args:
        function: The function object.
        given: The arrays of its inputs, and the gradients of its outputs.

    Returns:
        Called | None: None where it has a formula; for an old-style function, whose backward
        computes by itself; and for one that adds up gradients itself, for which Chainer calls no
        backward.
    """
    if table.inner(function) is not function or table.find(function, BACKWARD):
        return None
    accumulate = getattr(type(function), "backward_accumulate", None)
    if getattr(accumulate, "__qualname__", "") != "FunctionNode.backward_accumulate":
        return None
    called = Called(given, vars(function))
    before, backward = vars(function).get("backward"), function.backward

    def followed(indexes: tuple[int, ...], gys: Any) -> Any:
        # Several may follow it at once: each takes itself away.
        if before is None:
            del function.backward
        else:
            function.backward = before
        gradients = backward(indexes, gys)
        n_inputs = len(function.inputs)
        called.end([gradients[i] for i in indexes] if len(gradients) == n_inputs else gradients)
        return gradients

    function.backward = followed
    return called


def update_work(rule: Any, params: Specs, *, scaled: bool = False) -> Work | None:
    """Work of an update rule's ``update`` of each of these parameters, with the rule's own hooks.

    Parameters without a gradient are to be left out. ``scaled`` says that gradients are divided
    first, by the scale of the loss. None where the work is not known.
    """
    hookable = getattr(rule, "_hookable", None)
    before, after = (
        tuple(getattr(hookable, f"_{when}_update_hooks", {}).values()) for when in ("pre", "post")
    )
    in_float32 = bool(getattr(rule, "_use_fp32_update", False))
    return _total(
        _updates((*before, rule, *after), (p,), scaled, in_float32 and p.dtype == "float16")
        for p in params
    )


def hook_work(hook: Any, params: Specs) -> Work | None:
    """Work of an optimizer's hook on these parameters, which have gradients; None if not known."""
    if getattr(hook, "call_for_each_param", False):
        return _total(_updates((hook,), (p,)) for p in params)
    return _updates((hook,), params) if params else _NOTHING


def _updates(
    functions: Iterable[Any], params: Specs, scaled: bool = False, copied: bool = False
) -> Work | None:
    found = [(function, table.find(function, UPDATE)) for function in functions]
    known = [(function, entry.formula) for function, entry in found if entry is not None]
    if len(known) < len(found):
        return None
    return update.work(known, params, scaled=scaled, copied=copied)


def _total(works: Iterable[Work | None]) -> Work | None:
    """The sum; None if one of them is not known."""
    total = _NOTHING
    for work in works:
        if work is None:
            return None
        total += work
    return total


def register_cost(cls: type, *, backward: bool = False) -> Callable[[FormulaT], FormulaT]:
    """Make a formula count the calls of a class, and of classes derived from it.

    The formula of a function is called with a :class:`Call`: ``call.function``, ``call.inputs``,
    ``call.outputs`` (shapes and types) and, in backward, ``call.needed``. That of an update rule
    or of an optimizer hook is called with an :class:`UpdateCall`: ``call.function``, ``call.p``
    and ``call.g``; ``call.params`` and ``call.grads`` where a hook is called once for all
    parameters. It returns one of:

    - a number of operations: each array is read or written once. A rule writes the parameter, a
      hook the gradient;
    - a :class:`Work`;
    - None where the work is not known.

    For example::

        @register_cost(Gelu)
        def gelu(call):
            return 5 * call.inputs[0].size

        @register_cost(Gelu, backward=True)  # unless it is made of Chainer's functions
        def gelu_backward(call): ...

    Args:
        cls: A FunctionNode, an old-style Function, an UpdateRule, or a hook. The formula takes the
            place of the one that the class has already.
        backward: Whether the formula is for a function's backward.

    Raises:
        ValueError: The formula is for a backward that the class does not have.
    """
    if is_a(cls, "chainer.function_node.FunctionNode", "chainer.function.Function"):
        phase = BACKWARD if backward else FORWARD
    elif backward:
        raise ValueError(f"{cls.__name__} is no function: it has no backward")
    else:
        phase = UPDATE

    def register(formula: FormulaT) -> FormulaT:
        table.register_user(cls, phase, formula)
        return formula

    return register
