"""The work of a function's call or of an update: operations and bytes, from shapes alone.

What is counted, in all formulas alike:

- An operation is an addition, subtraction, multiplication, division, change of sign, comparison,
  maximum, absolute value, rounding, or a function of one element such as exp, log, tanh, sqrt or a
  power, however long a processor takes for it: **one operation for each element**. A random number
  drawn is one. Integers count like floating-point numbers, but indices and addresses do not count,
  nor does logic on the results of comparisons, choosing by a condition (or multiplying by a mask of
  zeros and ones, which is the same), or a change of type.
  Numbers of a whole call (``1 - decay``, ``1 / n``) do not count.
- A multiply-add is two. A product over k terms is 2 k operations, its first addition included;
  ``macs`` are the multiply-adds of convolutions and matrix products alone, and 0 elsewhere. Zeros
  of the padding are multiplied like other elements. All other sums of n elements to m take n - m
  operations; adding n elements to places of an array of zeros takes n.
- A branch that is taken for some elements alone counts for all of them.
- Formulas follow Chainer's NumPy code with no step computed twice. Another implementation of the
  same function (cuDNN, a fast convolution) may do less or more.
- Bytes are the least that a call must move, with a perfect cache: each array that it reads once,
  each that it writes once. Parameters are inputs. Where indices pick elements, only those are read.
  A view has neither operations nor bytes; arrays are taken to be contiguous. Temporary arrays, such
  as the windows of im2col, count for nothing.
- Backward counts the gradients that are needed. It reads gradients of the outputs (all of them are
  taken to come in) and what of inputs, outputs and other kept arrays (a dropout's mask, the places
  of maxima) those take. Forward does not count these other arrays as written. Adding up gradients
  of a variable that several functions use is a call of its own.
- What depends on values and not on shapes is counted at its most: no label is ignored, a region of
  interest is as large as the map, sequences of a CTC loss are as long as the longest, gradients
  are above the threshold that they are clipped to.
- An update rule reads the parameter, its gradient and the rule's state, and writes what it changes
  of them. Making the state, which is done once, does not count.

torchinfo, fvcore and DeepSpeed count otherwise (fvcore: a multiply-add is one; torchinfo: products
and parameters alone). :func:`known_functions` lists the functions with a formula. A backward
without one has the work of the functions that it calls, as Chainer makes it of them: see
:class:`~chainer_profile.costs.called.Called`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from chainer_profile.basics.words import BACKWARD, FORWARD, UPDATE
from chainer_profile.costs import (  # noqa: F401  (each registers its formulas)
    activation,
    arithmetic,
    array,
    convolution,
    loss,
    normalization,
    pooling,
    product,
    recurrent,
    reduction,
    registry,
    update,
)
from chainer_profile.costs.called import Called
from chainer_profile.costs.counting import ArraySpec, Call, Work
from chainer_profile.costs.registry import Formula, FormulaT
from chainer_profile.costs.update import UpdateCall

__all__ = [
    "ArraySpec",
    "Call",
    "Formula",
    "UpdateCall",
    "Work",
    "backward_work",
    "following",
    "forward_work",
    "hook_work",
    "known_functions",
    "register_cost",
    "update_work",
]


def forward_work(
    function: Any, inputs: tuple[ArraySpec, ...], outputs: tuple[ArraySpec, ...]
) -> Work | None:
    """Work of a function's forward.

    Args:
        function: The function object, as a hook gets it, once its forward has returned: some learn
            their axes or sizes there. Its attributes are read; no array of it is kept.
        inputs: Its input arrays, parameters included.
        outputs: Its output arrays.

    Returns:
        Work | None: None for a function that has no formula.
    """
    return _work(FORWARD, function, inputs, outputs, ())


def backward_work(
    function: Any,
    inputs: tuple[ArraySpec, ...],
    outputs: tuple[ArraySpec, ...],
    needed: tuple[bool, ...],
) -> Work | None:
    """Work of a function's backward, with all functions that it calls.

    Args:
        function: The function object, at any time after its forward.
        inputs: The input arrays of its forward.
        outputs: The output arrays of its forward; their gradients have the same shapes.
        needed: For each input, whether its gradient is computed (``requires_grad`` of
            ``function.inputs``): a network's first convolution has none of its input.

    Returns:
        Work | None: None for a function that has no formula: see :func:`following`.
    """
    if len(needed) != len(inputs):
        raise ValueError(f"needed has {len(needed)} entries, for {len(inputs)} inputs")
    return _work(BACKWARD, function, inputs, outputs, needed)


def following(function: Any, given: tuple[Any, ...]) -> Called | None:
    """Follow a backward that is about to run, to know its work by the functions that it calls.

    Args:
        function: The function object.
        given: The arrays of its inputs, and the gradients of its outputs.

    Returns:
        Called | None: What is told of the functions it calls, and knows the work once it has
        returned. None where it has a formula; for an old-style function, whose backward computes
        by itself; and for one that adds up gradients itself, for which Chainer calls no backward.
    """
    if registry.inner(function) is not function or registry.find(function, BACKWARD):
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


def _work(
    phase: str,
    function: Any,
    inputs: tuple[ArraySpec, ...],
    outputs: tuple[ArraySpec, ...],
    needed: tuple[bool, ...],
) -> Work | None:
    function = registry.inner(function)
    if phase == BACKWARD and not any(needed):
        return Work(0, 0, 0)
    entry = registry.find(function, phase)
    if entry is None:
        return None
    return registry.evaluate(entry, Call(function, inputs, outputs, needed))


def update_work(rule: Any, params: tuple[ArraySpec, ...], *, scaled: bool = False) -> Work | None:
    """Work of an update rule's ``update``, with the hooks that were added to the rule itself.

    With ``use_fp32_update`` a parameter in float16 is updated by its copy in float32: that is read
    and written, and the parameter written.

    Args:
        rule: The :class:`chainer.UpdateRule`, at any time. Its hyperparameters are read, and no
            array of it is kept.
        params: The parameters that it updates, each by an update of its own. Leave out those
            that have no gradient: the rule does nothing to them.
        scaled: Whether the loss was scaled, and gradients are divided by that scale first.

    Returns:
        Work | None: None for a rule that has no formula, or a hook that has none.
    """
    return _total(update.rule_work(rule, spec, scaled) for spec in params)


def hook_work(hook: Any, params: tuple[ArraySpec, ...]) -> Work | None:
    """Work of a hook of an optimizer, in one update.

    Args:
        hook: The hook, such as :class:`chainer.optimizer_hooks.WeightDecay`.
        params: The parameters of the optimizer's target that have a gradient.

    Returns:
        Work | None: None for a hook that has no formula.
    """
    if getattr(hook, "call_for_each_param", False):
        return _total(update.work((hook,), (spec,)) for spec in params)
    return update.work((hook,), params) if params else Work(0, 0, 0)


def _total(works: Iterable[Work | None]) -> Work | None:
    """The sum; None if one of them is not known."""
    total = Work(0, 0, 0)
    for work in works:
        if work is None:
            return None
        total += work
    return total


def register_cost(cls: type, *, backward: bool = False) -> Callable[[FormulaT], FormulaT]:
    """Make a formula count the calls of a class, and of classes derived from it.

    The class is one of functions, of update rules or of optimizer hooks. For a function the formula
    is called with a :class:`Call`: ``call.function``, ``call.inputs``, ``call.outputs`` (shapes and
    types) and, in backward, ``call.needed``. It returns one of:

    - a number of operations: each array is read or written once;
    - a :class:`Work`;
    - the results of the same computation on ``call.x`` (and ``call.y``, ``call.gy``), which are
      arrays without values that count.

    Its docstring's first line says what it counts. For example::

        @register_cost(Gelu)
        def gelu(call):
            '''0.5 x (1 + erf(x / sqrt(2))): 5 operations an element.'''
            return 5 * call.inputs[0].size

        @register_cost(Gelu, backward=True)  # unless it is made of Chainer's functions
        def gelu_backward(call): ...

    For an update rule or a hook it is called with an :class:`UpdateCall`. A number then means that
    the parameter and its gradient are read, and that a rule writes the parameter, a hook the
    gradient. In place of results it returns the arrays that change, by name (see
    :mod:`chainer_profile.costs.update`)::

        @register_cost(SignSGDRule)
        def sign_sgd(call):
            '''m = beta m + (1 - beta) g; p - lr sign(m): 6 operations an element.'''
            m = call.state("m") * 0.9 + call.g * 0.1
            return {"param": call.p - call.sign(m) * 0.01, "m": m}

    A hook that is not called for each parameter has all of them in one call: ``call.params`` and
    ``call.grads``.

    Args:
        cls: A FunctionNode, an old-style Function, an UpdateRule, or a hook. The formula takes the
            place of the one that the class has already.
        backward: Whether the formula is for a function's backward.

    Raises:
        ValueError: The formula is for a backward that the class does not have.
    """
    if not registry.is_function(cls):
        if backward:
            raise ValueError(f"{cls.__name__} is no function: it has no backward")
        phase = UPDATE
    else:
        phase = BACKWARD if backward else FORWARD

    def register(formula: FormulaT) -> FormulaT:
        registry.register_user(cls, phase, formula)
        return formula

    return register


def known_functions() -> dict[str, tuple[str, str]]:
    """What has a formula, by name: the family and what is counted, in a line.

    These are functions, and of the family ``update`` rules and hooks of optimizers, by their class.
    """
    return registry.table()
