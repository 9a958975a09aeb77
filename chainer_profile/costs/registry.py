"""Which formula counts which function: by class, without importing Chainer."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeVar

from chainer_profile.basics.words import BACKWARD, FORWARD, UPDATE
from chainer_profile.costs.counting import Call, Work

#: Counts on a call's arrays and returns the results (see :meth:`Call.work`), or returns the
#: number of operations (see :meth:`Call.plain_work`), or the work itself. It takes a
#: :class:`~chainer_profile.costs.counting.Call`, that of an update rule or hook an
#: :class:`~chainer_profile.costs.update.UpdateCall`.
Formula = Callable[[Any], Any]
FormulaT = TypeVar("FormulaT", bound=Formula)

USER = "user"

_CHAINER = "chainer.functions."


@dataclass(frozen=True)
class Entry:
    """A formula of the table.

    Attributes:
        family: Which part of the table it is in.
        meaning: What it counts, in a line.
        formula: The formula.
    """

    family: str
    meaning: str
    formula: Formula


# By phase; then by class, or by its dotted name for those that may not have been imported.
_TABLE: dict[str, dict[type | str, Entry]] = {FORWARD: {}, BACKWARD: {}, UPDATE: {}}


def forward(*names: str) -> Callable[[FormulaT], FormulaT]:
    """Use a formula for the forward of classes of chainer.functions, by name in that package."""
    return _registering(FORWARD, _CHAINER, names)


def backward(*names: str) -> Callable[[FormulaT], FormulaT]:
    """Use a formula for their backward."""
    return _registering(BACKWARD, _CHAINER, names)


def update(*names: str) -> Callable[[FormulaT], FormulaT]:
    """Use a formula for update rules or optimizer hooks, by their names in the chainer package."""
    return _registering(UPDATE, "chainer.", names)


def _registering(
    phase: str, package: str, names: tuple[str, ...]
) -> Callable[[FormulaT], FormulaT]:
    def register(formula: FormulaT) -> FormulaT:
        entry = Entry(_family(formula), _first_line(formula), formula)
        for name in names:
            if _TABLE[phase].setdefault(package + name, entry) is not entry:
                raise ValueError(f"{name} has two formulas for {phase}")
        return formula

    return register


def register_user(cls: type, phase: str, formula: Formula) -> None:
    """Use a formula for a class, in place of the one that it or its base has."""
    _TABLE[phase][cls] = Entry(USER, _first_line(formula), formula)


def forget(cls: type) -> None:
    """Take back what :func:`register_user` was told of a class."""
    for entries in _TABLE.values():
        entries.pop(cls, None)


def elementwise(family: str, rows: dict[str, tuple[str, str]]) -> None:
    """Register functions of one array that treat every element alike.

    Args:
        family: The part of the table they are in.
        rows: By class, the expression of an element and that of its gradient. Names in them are
            ``x``, ``y`` and ``g`` (input, output, gradient of the output), ``f`` (the function),
            and functions of one element. What they say is what is counted.
    """
    for name, expressions in rows.items():
        for phase, text in zip((FORWARD, BACKWARD), expressions, strict=True):
            code = compile(text, f"<{name} {phase}>", "eval")
            entry = Entry(family, f"{text}, each element", _Expression(code))
            if _TABLE[phase].setdefault(_CHAINER + name, entry) is not entry:
                raise ValueError(f"{name} has two formulas for {phase}")


class _Expression:
    """An expression as a formula."""

    def __init__(self, code: CodeType) -> None:
        self._code = code

    def __call__(self, call: Call) -> Any:
        return eval(self._code, {"__builtins__": {}}, _Names(call))


class _Names(dict[str, Any]):
    """What the names of an expression stand for."""

    def __init__(self, call: Call) -> None:
        super().__init__(f=call.function, x=call.x[0], where=call.where)
        if call.outputs:
            self.update(y=call.y[0], g=call.gy[0])
        self._call = call

    def __missing__(self, name: str) -> Callable[..., Any]:
        def apply(*operands: Any) -> Any:
            if any(hasattr(operand, "shape") for operand in operands):
                return self._call.apply(name, *operands)
            # Of plain numbers it is done once a call, and not counted.
            return getattr(math, name)(*operands)

        return apply


def find(function: Any, phase: str) -> Entry | None:
    """The formula for a function: that of its class, or else of the nearest base that has one."""
    entries = _TABLE[phase]
    for cls in type(function).__mro__:
        entry = entries.get(cls) or entries.get(f"{cls.__module__}.{cls.__qualname__}")
        if entry is not None:
            return entry
    return None


def inner(function: Any) -> Any:
    """The function itself: an old-style one is wrapped in an adapter."""
    if _is_a(type(function), "chainer.function.FunctionAdapter"):
        return function.function
    return function


def is_function(cls: type) -> bool:
    """Whether a class is one of functions, and not of update rules or hooks."""
    return _is_a(cls, "chainer.function_node.FunctionNode", "chainer.function.Function")


def is_rule(cls: type) -> bool:
    """Whether a class is one of update rules."""
    return _is_a(cls, "chainer.optimizer.UpdateRule")


def _is_a(cls: type, *names: str) -> bool:
    """Whether a class is one of these, known by name: this module does not import Chainer."""
    return any(f"{base.__module__}.{base.__qualname__}" in names for base in cls.__mro__)


def evaluate(entry: Entry, call: Call) -> Work:
    """The work of a call by a formula; the call is spent afterwards."""
    try:
        result = entry.formula(call)
        if isinstance(result, Work):
            call.take(*call.x)
            return result
        if isinstance(result, int):
            return call.plain_work(result)
        return call.work(result)
    finally:
        # Its arrays point back at it: without this the function, and with it the graph, would
        # stay until garbage is collected.
        call.function = None


def table() -> dict[str, tuple[str, str]]:
    """Name of every function with a formula: its family, and what is counted, in a line."""
    rows: dict[str, tuple[str, str]] = {}
    for key, entry in (_TABLE[FORWARD] | _TABLE[UPDATE]).items():
        name = (key if isinstance(key, str) else key.__qualname__).rpartition(".")[2]
        meaning = entry.meaning
        gradient = _TABLE[BACKWARD].get(key)
        if gradient is not None:
            meaning = f"{meaning}; backward: {gradient.meaning}"
        rows[name] = (entry.family, meaning)
    return dict(sorted(rows.items(), key=lambda row: (row[1][0], row[0].lower())))


def chainer_names(phase: str = FORWARD) -> set[str]:
    """Dotted names of the Chainer classes that have a formula for a phase, by default forward."""
    return {key for key in _TABLE[phase] if isinstance(key, str)}


def _family(formula: Formula) -> str:
    return formula.__module__.rpartition(".")[2]


def _first_line(formula: Formula) -> str:
    text = inspect.cleandoc(formula.__doc__ or "").partition("\n\n")[0]
    return " ".join(text.split()).rstrip(".") or getattr(formula, "__name__", "formula")
