"""The type of a row in the tables of formulas, and formulas that many functions share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chainer_profile.costs.call import Call, Work

#: Returns operations (each array is then read or written once), a Work, or None if it is unknown.
Formula = Callable[[Call], "int | Work | None"]
#: Returns a number of operations or of multiply-adds.
Count = Callable[[Call], int]


@dataclass(frozen=True)
class FunctionCost:
    """Formulas of some functions of Chainer; None for a phase without a formula."""

    names: str  #: Names of their classes, separated by spaces.
    forward: Formula | None = None
    backward: Formula | None = None


def view(_: Call) -> Work:
    """Count no work: the result is a view of an array, or the array itself."""
    return Work(0, 0, 0)


def exact(operations: int, *, only_gradients: bool = False) -> Formula:
    """Make a formula with a number of operations per element of the largest array.

    Args:
        operations: Operations per element.
        only_gradients: Whether the call reads only the incoming gradients. Otherwise it reads each
            array once.
    """
    return _per_element(operations, only_gradients, is_about=False)


def about(operations: int, *, only_gradients: bool = False) -> Formula:
    """Make an approximate formula, with the arguments of :func:`exact`.

    Memory limits such functions on every machine, so exact figures would change nothing.
    """
    return _per_element(operations, only_gradients, is_about=True)


def _per_element(operations: int, only_gradients: bool, is_about: bool) -> Formula:
    def formula(c: Call) -> Work:
        read = c.read() if only_gradients else None
        return c.work(operations * c.largest, read=read, about=is_about)

    return formula
