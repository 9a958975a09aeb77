"""The work of a function's call: floating-point operations and bytes, from shapes alone.

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
  interest is as large as the map, sequences of a CTC loss are as long as the longest.

torchinfo, fvcore and DeepSpeed count otherwise (fvcore: a multiply-add is one; torchinfo: products
and parameters alone). :func:`known_functions` lists the functions with a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
)
from chainer_profile.costs.counting import ArraySpec, Call, Work
from chainer_profile.costs.registry import Formula, FormulaT

__all__ = [
    "ArraySpec",
    "Call",
    "Formula",
    "Work",
    "backward_work",
    "forward_work",
    "known_functions",
    "register_cost",
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
    return _work(registry.FORWARD, function, inputs, outputs, ())


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
        Work | None: None for a function that has no formula.
    """
    if len(needed) != len(inputs):
        raise ValueError(f"needed has {len(needed)} entries, for {len(inputs)} inputs")
    return _work(registry.BACKWARD, function, inputs, outputs, needed)


def _work(
    phase: str,
    function: Any,
    inputs: tuple[ArraySpec, ...],
    outputs: tuple[ArraySpec, ...],
    needed: tuple[bool, ...],
) -> Work | None:
    function = registry.inner(function)
    entry = registry.find(function, phase)
    if entry is None:
        return None
    if phase == registry.BACKWARD and not any(needed):
        return Work(0, 0, 0)
    return registry.evaluate(entry, Call(function, inputs, outputs, needed))


def register_cost(
    function_class: type, *, backward: bool = False
) -> Callable[[FormulaT], FormulaT]:
    """Make a formula count the calls of a function class, and of classes derived from it.

    The formula is called with a :class:`Call`: ``call.function``, ``call.inputs``,
    ``call.outputs`` (shapes and types) and, in backward, ``call.needed``. It returns one of:

    - a number of operations: each array is read or written once;
    - a :class:`Work`;
    - the results of the same computation on ``call.x`` (and ``call.y``, ``call.gy``), which are
      arrays without values that count.

    Its docstring's first line says what it counts. For example::

        @register_cost(Gelu)
        def gelu(call):
            '''0.5 x (1 + erf(x / sqrt(2))): 5 operations an element.'''
            return 5 * call.inputs[0].size

        @register_cost(Gelu, backward=True)
        def gelu_backward(call): ...

    Args:
        function_class: A FunctionNode or an old-style Function. The formula takes the place of
            the one that the class has already.
        backward: Whether the formula is for its backward.
    """

    def register(formula: FormulaT) -> FormulaT:
        phase = registry.BACKWARD if backward else registry.FORWARD
        registry.register_user(function_class, phase, formula)
        return formula

    return register


def known_functions() -> dict[str, tuple[str, str]]:
    """Every function with a formula: by its name, the family and what is counted, in a line."""
    return registry.table()
